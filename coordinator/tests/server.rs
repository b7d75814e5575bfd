//! A coordinator's process with real sockets: who is let in, who is refused, and why.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

mod connecting;

use connecting::{node, options, refused};
use coordinator::server::{Options, Ready, SOCKET, ServeError, serve};
use protocol::cluster::agent::{FromAgent, JobUser, NodeProfile, ToAgent};
use protocol::cluster::client::{Answer, Ask};
use protocol::cluster::powers::{Powers, SpeaksFor};
use protocol::cluster::succession::Followed;
use protocol::cluster::{VERSIONS, Versions};
use protocol::transport::{
    Arrival, Authority, Credentials, Identity, MAX_BODY, Members, PeerDoor, RefusalKind, Role,
    Sealer, Successor, Token, TransportError,
};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A coordinator in a thread of its own, which ends with the process.
struct Cluster {
    dir: tempfile::TempDir,
    ready: Ready,
}

impl Cluster {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = options_in(dir.path());
        let (sender, ready) = mpsc::channel();
        std::thread::spawn(move || {
            serve(&options, |ready| sender.send(ready.clone()).unwrap()).unwrap();
        });
        let ready = ready.recv_timeout(Duration::from_secs(10)).unwrap();
        Self { dir, ready }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("state").join(SOCKET)
    }

    fn ask(&self, ask: &Ask) -> Answer {
        let lines = [Ask::Hello { version: VERSIONS }, ask.clone()];
        let lines: Vec<String> =
            lines.iter().map(|ask| serde_json::to_string(ask).unwrap() + "\n").collect();
        serde_json::from_str(&self.say(lines.concat().as_bytes())).unwrap()
    }

    fn say(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        // It may be refused before it has said everything.
        let _ = stream.write_all(bytes);
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    }

    fn token(&self, uses: u32, valid_s: u64) -> Token {
        self.token_of(uses, valid_s, Powers::of_all_users(false))
    }

    fn token_of(&self, uses: u32, valid_s: u64, powers: Powers) -> Token {
        match self.ask(&Ask::Token { uses, valid_s, powers }) {
            Answer::Token { token } => token.parse().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn options_in(dir: &Path) -> Options {
    // Connections from 127.0.0.1 come from elsewhere, so to say.
    options(&dir.join("state"), "127.0.0.2:0".parse().unwrap())
}

fn hello(address: SocketAddr) -> FromAgent {
    let profile = NodeProfile {
        address,
        addresses: Vec::new(),
        slots: 2,
        spare: false,
        cores: 2,
        speed: None,
        speed_all: None,
        capacity: None,
        speed_given: false,
        architecture: "x86_64".into(),
        page_size: 4096,
        vdso: String::new(),
        features: Vec::new(),
        memory_top: 0,
        memory: 1 << 30,
        kernel: "6.1".into(),
        owner: None,
        takes: protocol::cluster::agent::Takes::default(),
        allow_root: false,
        job_traffic: None,
        started_ms: 1,
        version: String::new(),
    };
    let (instances, holdings) = (Vec::new(), Vec::new());
    FromAgent::Hello { version: VERSIONS, term: 0, followed: None, profile, instances, holdings }
}

#[tokio::test]
async fn a_token_lets_in_as_often_as_it_says_and_a_certificate_for_ever() {
    let cluster = Cluster::start();
    let token = cluster.token(1, 60);
    let (a, b) = (cluster.folder("a"), cluster.folder("b"));
    let identity = Identity::open(&a, &token, &node("a")).await.unwrap();
    identity.connect_coordinator().await.unwrap();
    // The same command again, with a token that is used up by now.
    let again = Identity::open(&a, &token, &node("a")).await.unwrap();
    assert_eq!(again.credentials().fingerprint(), identity.credentials().fingerprint());
    let other = Identity::open(&a, &token, &node("c")).await.unwrap_err().to_string();
    assert!(other.contains("by the name of a"), "{other}");
    let (kind, reason) = refused(Identity::open(&b, &token, &node("b")).await);
    assert_eq!(kind, RefusalKind::Token);
    assert!(reason.contains("used up"), "{reason}");
    let token = cluster.token(5, 1);
    let (kind, reason) = refused(Identity::open(&b, &token, &node("a")).await);
    assert_eq!(kind, RefusalKind::Name);
    assert!(reason.contains("a is a member already"), "{reason}");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let (_, reason) = refused(Identity::open(&b, &token, &node("b")).await);
    assert!(reason.contains("expired"), "{reason}");
    for file in ["key.pem", "cert.pem", "ca.pem"] {
        use std::os::unix::fs::MetadataExt;
        assert_eq!(std::fs::metadata(a.join(file)).unwrap().mode() & 0o777, 0o600, "{file}");
    }
}

#[tokio::test]
async fn other_clusters_are_told_apart_on_both_sides() {
    let (one, two) = (Cluster::start(), Cluster::start());
    // The address of the one, the authority of the other.
    let mut crossed = two.token(1, 60);
    crossed.addresses.clone_from(&one.ready.addresses);
    let error = Identity::join(&one.folder("x"), &crossed, &node("x")).await.unwrap_err();
    assert!(matches!(&error, TransportError::Impostor { .. }), "{error}");
    assert!(error.to_string().contains("not from this cluster's authority"), "{error}");
    // A wrong secret for the right cluster.
    let mut wrong = one.token(1, 60);
    wrong.secret = two.token(1, 60).secret;
    let (kind, reason) = refused(Identity::join(&one.folder("x"), &wrong, &node("x")).await);
    assert_eq!(kind, RefusalKind::Token);
    assert!(reason.contains("not known here"), "{reason}");
    // A machine that was a member elsewhere joins here with a token of this cluster.
    let folder = one.folder("y");
    Identity::open(&folder, &two.token(1, 60), &node("y")).await.unwrap();
    let identity = Identity::open(&folder, &one.token(1, 60), &node("y")).await.unwrap();
    identity.connect_coordinator().await.unwrap();
}

/// An agent's door at a port, and who has come in.
async fn listen(door: PeerDoor) -> (SocketAddr, tokio::sync::mpsc::Receiver<Arrival>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, arrivals) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(arrival) = door.admit(stream).await {
                sender.send(arrival).await.unwrap();
            }
        }
    });
    (address, arrivals)
}

#[tokio::test]
async fn roles_and_forgeries_are_refused() {
    let cluster = Cluster::start();
    let token = cluster.token(3, 60);
    let a = Identity::open(&cluster.folder("a"), &token, &node("a")).await.unwrap();
    let b = Identity::open(&cluster.folder("b"), &token, &node("b")).await.unwrap();
    let address = cluster.ready.address;
    let of_b = b.credentials().fingerprint();
    // The coordinator is no agent, whatever its port.
    let error = a.connect_peer(&node("b"), address, &of_b).await.unwrap_err().to_string();
    assert!(error.contains("not for the agent of b"), "{error}");
    // One agent is not another.
    let members = Members::default();
    let (port, mut arrivals) = listen(PeerDoor::new(&b, members.clone()).unwrap()).await;
    let error = a.connect_peer(&node("c"), port, &of_b).await.unwrap_err().to_string();
    assert!(error.contains("not for the agent of c"), "{error}");
    // Nobody is a peer before the coordinator names it, nor after it no longer does.
    let (_, reason) = refused(a.connect_peer(&node("b"), port, &of_b).await);
    assert!(reason.contains("a is not, or no longer, a member"), "{reason}");
    // The name is not enough: a certificate of the same name that was revoked is somebody else's.
    members.set([(node("a"), of_b.clone())]);
    let (_, reason) = refused(a.connect_peer(&node("b"), port, &of_b).await);
    assert!(reason.contains("a is not, or no longer, a member"), "{reason}");
    let of_a = a.credentials().fingerprint();
    members.set([(node("a"), of_a.clone())]);
    let wrong = a.connect_peer(&node("b"), port, &of_a).await;
    let error = wrong.unwrap_err().to_string();
    assert!(error.contains("not the one by which the agent of b is known"), "{error}");
    let link = a.connect_peer(&node("b"), port, &of_b).await.unwrap();
    let (mut sender, _) = link.split();
    let Some(Arrival::Peer(name, _, connection)) = arrivals.recv().await else {
        panic!("it is a peer");
    };
    assert_eq!(name, node("a"));
    let (_, mut receiver) = connection.split();
    let message = protocol::cluster::peer::PeerMessage::Hello { version: VERSIONS };
    let body = vec![7; MAX_BODY];
    sender.send(&message, &body).await.unwrap();
    let (received, bytes) = receiver.receive().await.unwrap().unwrap();
    assert_eq!((received, bytes.len()), (message.clone(), MAX_BODY));
    let error = sender.send(&message, &vec![7; MAX_BODY + 1]).await.unwrap_err().to_string();
    assert!(error.contains("exceeds the limit"), "{error}");
    sender.close().await;
    assert!(receiver.receive().await.unwrap().is_none());
    // A certificate of the coordinator's role does not make an agent, nor does another authority's.
    let forged = Authority::open(&cluster.folder("forger")).map(drop);
    assert!(forged.is_err(), "the folder is not there");
    std::fs::create_dir(cluster.folder("forger")).unwrap();
    let forger = Authority::open(&cluster.folder("forger")).unwrap();
    let real = Authority::open(&cluster.dir.path().join("state")).unwrap();
    for (authority, role, expected) in [
        (&forger, Role::Agent(node("a")), "not from this cluster's authority"),
        (&real, Role::Agent(node("a")), "has been revoked"),
        (&real, Role::Coordinator, "is for the coordinator, not for an agent"),
    ] {
        let credentials = authority.issue(&role).unwrap();
        let reason = greet(&cluster.ready.address, &real, &credentials).await;
        assert!(reason.contains(expected), "{role}: {reason}");
    }
}

/// What a member with these credentials is told.
async fn greet(address: &SocketAddr, real: &Authority, credentials: &Credentials) -> String {
    let identity = Identity::with_credentials(
        node("a"),
        credentials.trusting(real.pem()).unwrap(),
        vec![address.to_string()],
    )
    .unwrap();
    refused(identity.connect_coordinator().await).1
}

/// What the cluster answers a member that says that one of its users asks for this.
async fn asks_as(identity: &Identity, user: &JobUser, ask: &Ask) -> Answer {
    let link = identity.connect_coordinator().await.unwrap();
    let local = link.local;
    let (mut sender, mut receiver) = link.split();
    sender.send(&hello(local), &[]).await.unwrap();
    let opened = FromAgent::ClientOpened { client: 1, user: user.clone() };
    sender.send(&opened, &[]).await.unwrap();
    for ask in [&Ask::Hello { version: VERSIONS }, ask] {
        let line = serde_json::to_string(ask).unwrap();
        sender.send(&FromAgent::ClientLine { client: 1, line }, &[]).await.unwrap();
    }
    loop {
        match receiver.receive().await.unwrap().unwrap() {
            (ToAgent::Client { client: 1, line: Some(line) }, _) => {
                return serde_json::from_str(&line).unwrap();
            }
            (ToAgent::Client { line: None, .. }, _) => panic!("no answer"),
            _ => {}
        }
    }
}

fn failure(answer: &Answer) -> &str {
    match answer {
        Answer::Failed { reason, .. } => reason,
        other => panic!("not refused: {other:?}"),
    }
}

/// A member that says whatever it likes of its users gets what its token allows.
#[tokio::test]
async fn a_member_s_word_for_a_user_counts_as_far_as_its_token_says() {
    let cluster = Cluster::start();
    let user = |uid, name: &str| JobUser { uid, name: name.to_owned() };
    let only = SpeaksFor::Only(BTreeSet::from(["alice".to_owned()]));
    let worker = cluster.token_of(1, 60, Powers::default());
    let hers = cluster.token_of(1, 60, Powers { speaks_for: only, operates: false });
    let worker = Identity::open(&cluster.folder("w"), &worker, &node("w")).await.unwrap();
    let hers = Identity::open(&cluster.folder("h"), &hers, &node("h")).await.unwrap();
    let jobs = Ask::Status { job: None };
    let remove = Ask::RemoveNode { node: node("h") };
    for liar in [user(0, "root"), user(1000, "alice"), user(u32::MAX, "")] {
        for ask in [&jobs, &remove, &Ask::Remove { job: "latest".to_owned() }] {
            let answer = asks_as(&worker, &liar, ask).await;
            assert!(failure(&answer).contains("w does not speak for users"), "{answer:?}");
        }
        let leave = asks_as(&worker, &liar, &Ask::Leave { node: Some(node("h")) }).await;
        assert!(failure(&leave).contains("only its owner"), "{leave:?}");
    }
    assert!(matches!(asks_as(&hers, &user(5, "alice"), &jobs).await, Answer::Listing { .. }));
    for (liar, ask) in [(user(0, "root"), &jobs), (user(0, "alice"), &remove)] {
        failure(&asks_as(&hers, &liar, ask).await);
    }
    // Tokens are nobody's who is not at the coordinator's own socket.
    let powers = Powers::of_all_users(true);
    let token = Ask::Token { uses: 1, valid_s: 60, powers };
    failure(&asks_as(&hers, &user(5, "alice"), &token).await);
}

#[tokio::test]
async fn whoever_makes_no_sense_disturbs_nobody() {
    let cluster = Cluster::start();
    let token = cluster.token(1, 60);
    let identity = Identity::open(&cluster.folder("a"), &token, &node("a")).await.unwrap();
    let link = identity.connect_coordinator().await.unwrap();
    let local = link.local;
    let (mut sender, mut receiver) = link.split();
    sender.send(&hello(local), &[]).await.unwrap();

    let mut plain = TcpStream::connect(cluster.ready.address).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = plain.read_to_string(&mut answer);
    assert!(answer.contains("unencrypted connections are refused"), "{answer:?}");

    // Not a hello, and then not a message at all.
    let second = identity.connect_coordinator().await.unwrap();
    let (mut other, mut end) = second.split();
    let leaving = FromAgent::Leaving { reason: String::new() };
    other.send(&leaving, &[]).await.unwrap();
    assert!(matches!(end.receive().await, Ok(None)), "the connection is closed");

    for (line, expected) in [
        ("hello\n".to_owned(), "malformed message"),
        ("{\"ask\":\"jobs\"}\n".to_owned(), "no hello came first"),
        ("{\"ask\":\"hello\",\"version\":99}\n".to_owned(), "speaks version 99"),
        ("x".repeat(17 * 1024 * 1024), "exceeds the limit"),
    ] {
        let answer = cluster.say(line.as_bytes());
        assert!(answer.contains(expected), "{answer}");
    }
    // The member's connection goes on all the while.
    sender.send(&leaving, &[]).await.unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(200), async {
        loop {
            match receiver.receive().await {
                Ok(Some((ToAgent::Farewell, _))) => return false,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return true,
            }
        }
    });
    assert!(!matches!(waited.await, Ok(true)), "its connection was lost");
}

#[test]
fn one_coordinator_a_folder() {
    let cluster = Cluster::start();
    let second = serve(&options_in(cluster.dir.path()), |_| panic!("it runs"));
    assert!(matches!(second, Err(ServeError::Locked(_))), "{second:?}");
    let mut short = options_in(cluster.dir.path());
    short.grace = Some(0.0);
    assert!(matches!(serve(&short, |_| ()), Err(ServeError::Usage(_))));
}

#[tokio::test]
async fn a_silent_client_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::open(dir.path()).unwrap();
    let acceptor =
        protocol::transport::Acceptor::new(&[authority.issue(&Role::Coordinator).unwrap()])
            .unwrap()
            .with_limit(Duration::from_millis(100));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let since = Instant::now();
    let error = acceptor.accept(stream).await.unwrap_err();
    assert!(matches!(error, TransportError::TooSlow(..)), "{error}");
    assert!(since.elapsed() < Duration::from_secs(5));
    drop(silent);
}

/// A certificate of the coordinator's role proves who it is; the term decides who goes on.
#[test]
fn a_coordinator_of_a_lower_term_ends_and_does_not_begin_again() {
    let dir = tempfile::tempdir().unwrap();
    let options = options_in(dir.path());
    let again = options.clone();
    let (sender, ready) = mpsc::channel();
    let lost = std::thread::spawn(move || {
        serve(&options, |ready| sender.send(ready.clone()).unwrap()).unwrap_err()
    });
    let ready = ready.recv_timeout(Duration::from_secs(10)).unwrap();
    let authority = Authority::open(&dir.path().join("state")).unwrap();
    let credentials = authority.issue(&Role::Coordinator).unwrap();
    let (claim, addresses) = ("x".to_owned(), vec!["b:1".to_owned()]);
    let base = Followed { claim, addresses, ..Followed::default() };
    let of = |term| Followed { term, ..base.clone() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = ready.address.to_string();
    for (term, ends) in [(0, false), (1, false), (2, true)] {
        let successor = Successor::new(&credentials, of(term)).unwrap();
        let told = runtime.block_on(successor.tell_coordinator(&address));
        assert_eq!(told.unwrap(), ends, "term {term}");
    }
    let text = lost.join().unwrap().to_string();
    assert!(text.contains("of term 2: b:1;"), "{text}");
    assert_eq!(serve(&again, |_| panic!("it began")).unwrap_err().to_string(), text);
}

/// Says hello as a member that follows a coordinator of another term.
async fn hello_of_term(identity: &Identity, term: u64, seal: Option<&Sealer>) {
    let link = identity.connect_coordinator().await.unwrap();
    let FromAgent::Hello { version, profile, instances, holdings, .. } = hello(link.local) else {
        panic!("it is a hello");
    };
    let followed = Followed { term, claim: "x".to_owned(), ..Followed::default() };
    let followed = match seal {
        Some(sealer) => followed.sealed(sealer).unwrap(),
        None => followed,
    };
    let followed = Some(followed);
    let hello = FromAgent::Hello { version, term, followed, profile, instances, holdings };
    let (mut sender, mut receiver) = link.split();
    sender.send(&hello, &[]).await.unwrap();
    while let Ok(Some(_)) = receiver.receive().await {}
}

/// A member is believed that there is a newer coordinator only with that one's seal.
#[tokio::test]
async fn a_member_s_word_does_not_end_a_coordinator() {
    let dir = tempfile::tempdir().unwrap();
    let options = options_in(dir.path());
    let (sender, ready) = mpsc::channel();
    let server = std::thread::spawn(move || {
        serve(&options, |ready| sender.send(ready.clone()).unwrap()).unwrap_err()
    });
    let cluster = Cluster { ready: ready.recv_timeout(Duration::from_secs(10)).unwrap(), dir };
    let token = cluster.token(1, 60);
    let identity = Identity::open(&cluster.folder("a"), &token, &node("a")).await.unwrap();
    let authority = Authority::open(&cluster.dir.path().join("state")).unwrap();
    let forged = Sealer::new(&authority.issue(&Role::Agent(node("a"))).unwrap()).unwrap();
    for seal in [None, Some(&forged)] {
        hello_of_term(&identity, 2, seal).await;
        cluster.token(1, 60);
    }
    assert!(!cluster.dir.path().join("state/superseded.json").exists());
    let real = Sealer::new(&authority.issue(&Role::Coordinator).unwrap()).unwrap();
    hello_of_term(&identity, 2, Some(&real)).await;
    let text = server.join().unwrap().to_string();
    assert!(text.contains("of term 2"), "{text}");
}

/// Connections of somebody who says nothing, from several addresses, do not take the places of members.
#[tokio::test]
async fn half_open_connections_keep_nobody_out() {
    let cluster = Cluster::start();
    let token = cluster.token(2, 60);
    let known = Identity::open(&cluster.folder("a"), &token, &node("a")).await.unwrap();
    known.connect_coordinator().await.unwrap();
    let mut silent = Vec::new();
    for number in 0..240 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        let from = format!("127.0.1.{}:0", number % 20);
        socket.bind(from.parse().unwrap()).unwrap();
        silent.push(socket.connect(cluster.ready.address).await.unwrap());
    }
    for _ in 0..10 {
        known.connect_coordinator().await.unwrap();
    }
    Identity::open(&cluster.folder("b"), &token, &node("b")).await.unwrap();
}

#[test]
fn local_clients_who_ask_nothing_keep_nobody_out() {
    let cluster = Cluster::start();
    let idle: Vec<_> = (0..300).map(|_| UnixStream::connect(cluster.socket()).unwrap()).collect();
    for _ in 0..10 {
        cluster.token(1, 60);
    }
    drop(idle);
}

/// Says hello as a member that speaks these versions: the first answer.
async fn answer_to(identity: &Identity, version: Versions) -> ToAgent {
    let link = identity.connect_coordinator().await.unwrap();
    let FromAgent::Hello { profile, instances, holdings, .. } = hello(link.local) else {
        panic!("it is a hello");
    };
    let (term, followed) = (0, None);
    let hello = FromAgent::Hello { version, term, followed, profile, instances, holdings };
    let (mut sender, mut receiver) = link.split();
    sender.send(&hello, &[]).await.unwrap();
    receiver.receive().await.unwrap().unwrap().0
}

/// The next release speaks this one's version, too; the one after it need not.
#[tokio::test]
async fn a_member_of_the_next_version_is_taken() {
    let cluster = Cluster::start();
    let token = cluster.token(1, 60);
    let identity = Identity::open(&cluster.folder("a"), &token, &node("a")).await.unwrap();
    let newest = VERSIONS.common(VERSIONS).unwrap();
    let next = Versions::between(newest, newest + 1).unwrap();
    let taken = answer_to(&identity, next).await;
    assert!(matches!(taken, ToAgent::Welcome { .. }), "{taken:?}");
    let after_next = Versions::between(newest + 1, newest + 2).unwrap();
    let ToAgent::Refused { reason } = answer_to(&identity, after_next).await else {
        panic!("it is not refused");
    };
    assert!(reason.contains(&format!("speaks version {after_next}")), "{reason}");
}
