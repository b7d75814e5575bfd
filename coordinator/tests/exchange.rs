//! A coordinator's process whose cluster gets a new authority: who is taken after it, and whom members follow.
//!
//! One test in a file of its own: it ends the coordinator as users do, by a signal to the process.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

mod connecting;

use connecting::{node, options, refused};
use coordinator::server::{Ready, SOCKET, ServeError, exchange_authority, serve};
use protocol::cluster::VERSIONS;
use protocol::cluster::client::{Answer, Ask};
use protocol::cluster::powers::Powers;
use protocol::cluster::succession::Followed;
use protocol::transport::{
    Arrival, Authority, Credentials, Identity, Members, PeerDoor, RefusalKind, Role, Sealer,
    Successor, Token, TransportError,
};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A coordinator of that folder, in a thread.
fn start(state: &Path, listen: SocketAddr) -> (JoinHandle<()>, Ready) {
    let options = options(state, listen);
    let (sender, ready) = mpsc::channel();
    let running = std::thread::spawn(move || {
        serve(&options, |ready| sender.send(ready.clone()).unwrap()).unwrap();
    });
    (running, ready.recv_timeout(Duration::from_secs(10)).unwrap())
}

fn end(running: JoinHandle<()>) {
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM).unwrap();
    running.join().unwrap();
}

fn token(state: &Path) -> Token {
    let mut stream = UnixStream::connect(state.join(SOCKET)).unwrap();
    let powers = Powers::of_all_users(false);
    for ask in [Ask::Hello { version: VERSIONS }, Ask::Token { uses: 5, valid_s: 600, powers }] {
        stream.write_all((serde_json::to_string(&ask).unwrap() + "\n").as_bytes()).unwrap();
    }
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    match serde_json::from_str(&line).unwrap() {
        Answer::Token { token } => token.parse().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Where an agent listens, which lets the other one in.
async fn door(of: &Identity, other: &Identity) -> SocketAddr {
    let members = Members::default();
    members.set([(other.name().clone(), other.credentials().fingerprint())]);
    let door = PeerDoor::new(of, members).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(Arrival::Peer(_, _, connection)) = door.admit(stream).await {
                open.push(connection);
            }
        }
    });
    address
}

async fn reaches(from: &Identity, to: &Identity, address: SocketAddr) {
    from.connect_peer(to.name(), address, &to.credentials().fingerprint()).await.unwrap();
}

#[tokio::test]
async fn after_an_exchange_the_old_key_is_worth_nothing_and_members_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (state, stolen) = (dir.path().join("state"), dir.path().join("stolen"));
    let folder = |name: &str| dir.path().join(name);
    let (running, ready) = start(&state, "127.0.0.2:0".parse().unwrap());
    let invited = token(&state);
    let a = Identity::open(&folder("a"), &invited, &node("a")).await.unwrap();
    let b = Identity::open(&folder("b"), &invited, &node("b")).await.unwrap();
    let old = a.cluster();
    let of_a = a.credentials().fingerprint();
    let (at_a, at_b) = (door(&a, &b).await, door(&b, &a).await);

    // The authority's key is in other hands.
    std::fs::create_dir(&stolen).unwrap();
    for file in ["authority.pem", "authority-key.pem"] {
        std::fs::copy(state.join(file), stolen.join(file)).unwrap();
    }
    assert!(matches!(exchange_authority(&state), Err(ServeError::Locked(_))));
    end(running);
    let done = exchange_authority(&state).unwrap();
    assert_eq!(done.members, [node("a"), node("b")]);
    let (_running, ready) = start(&state, ready.address);

    // Members are the same, before and after they have come.
    a.connect_coordinator().await.unwrap();
    assert_eq!((a.cluster(), a.credentials().fingerprint()), (done.authority.clone(), of_a));
    assert_eq!(b.cluster(), old);
    reaches(&a, &b, at_b).await;
    reaches(&b, &a, at_a).await;
    let again = Identity::load(&folder("a")).unwrap().unwrap();
    assert_eq!(again.cluster(), done.authority);
    again.connect_coordinator().await.unwrap();
    // As its unit starts it.
    Identity::open(&folder("a"), &invited, &node("a")).await.unwrap();
    let late = Identity::join(&folder("c"), &invited, &node("c")).await.unwrap_err();
    assert!(matches!(&late, TransportError::Impostor { .. }), "{late}");

    // Who has the old key is neither the coordinator to a member, nor another one to the coordinator, nor a member.
    let thief = Authority::open(&stolen).unwrap();
    assert_eq!(thief.fingerprint(), old);
    let made: Credentials = thief.issue(&Role::Coordinator).unwrap();
    let higher = Followed { term: 9, claim: "mine".to_owned(), ..Followed::default() };
    // It takes whatever certificate it is shown: it is the others who are to believe.
    let new = std::fs::read_to_string(state.join("authority.pem")).unwrap();
    let made = made.trusting(&new).unwrap();
    let successor = Successor::new(&made, higher).unwrap();
    let (kind, reason) = refused(successor.connect_agent(a.name(), at_a).await);
    assert!(
        kind == RefusalKind::Certificate && reason.contains("not from this cluster's authority"),
        "{reason}"
    );
    let text = ("freeze", 7);
    let seal = Sealer::new(&made).unwrap().seal(&text).unwrap();
    a.trust().check(Some(&seal), &text).unwrap_err();
    let told = successor.tell_coordinator(&ready.address.to_string()).await.unwrap_err();
    assert_eq!(told.refusal(), Some(RefusalKind::Certificate), "{told}");
    let forged = thief.issue(&Role::Agent(node("a"))).unwrap();
    let addresses = vec![ready.address.to_string()];
    let forged = forged.trusting(&new).unwrap();
    let forged = Identity::with_credentials(node("a"), forged, addresses).unwrap();
    let (kind, reason) = refused(forged.connect_coordinator().await);
    assert!(kind == RefusalKind::Certificate && reason.contains("revoked"), "{reason}");

    // With the last one that comes, the old authority goes.
    b.connect_coordinator().await.unwrap();
    assert_eq!(b.cluster(), done.authority);
    reaches(&b, &a, at_a).await;
    let kept = std::fs::read_to_string(state.join("authority.pem")).unwrap();
    assert_eq!(kept.matches("BEGIN CERTIFICATE").count(), 1);
}
