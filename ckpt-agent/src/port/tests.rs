//! A real port of this process, and whoever connects to it.

use std::net::Ipv4Addr;

use protocol::cluster::NodeName;
use protocol::transport::{Arrival, Authority, Identity, Members, PeerDoor, PlaceLimits, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;

use super::*;
use crate::rewire::{MARK, WireOrder, Wires, test_pair};

const LIMIT: Duration = Duration::from_secs(20);
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// Of documentation (RFC 5737).
const NOBODYS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const ANY: Wanted = Wanted { host: None, port: Some(0) };

/// Two members, and what leads to the second.
struct Agents {
    caller: Identity,
    called: Identity,
    doors: Doors,
    arrivals: Receiver<Arrival>,
    wires: Arc<Wires>,
}

fn node(name: &str) -> NodeName {
    name.parse().unwrap()
}

fn agents() -> Agents {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::open(folder.path()).unwrap();
    let [caller, called] = ["caller", "called"].map(|name| {
        let credentials = authority.issue(&Role::Agent(node(name))).unwrap();
        Identity::with_credentials(node(name), credentials, Vec::new()).unwrap()
    });
    let members = Members::default();
    members.set([(node("caller"), caller.credentials().fingerprint())]);
    let wires = Arc::new(Wires::default());
    let (doors, arrivals) = Doors::new(PeerDoor::new(&called, members).unwrap(), wires.clone());
    Agents { caller, called, doors, arrivals, wires }
}

/// The port of the second, with these limits, and what else is needed.
fn open(agents: Agents, silence: Duration, places: PlaceLimits) -> (Port, SocketAddr, Guests) {
    let Agents { caller, called, doors, arrivals, wires } = agents;
    let mut port = Port::new(ANY, Arc::new(doors.with_limits(silence, places)));
    let address = port.open_at(HERE).unwrap();
    (port, address, Guests { caller, called, arrivals, wires })
}

struct Guests {
    caller: Identity,
    called: Identity,
    arrivals: Receiver<Arrival>,
    wires: Arc<Wires>,
}

impl Guests {
    /// A conversation of agents begins.
    async fn greet(&mut self, address: SocketAddr) {
        let key = self.called.credentials().fingerprint();
        let link = self.caller.connect_peer(&node("called"), address, &key).await.unwrap();
        match self.arrivals.recv().await {
            Some(Arrival::Peer(name, ..)) => assert_eq!(name, node("caller")),
            other => panic!("{other:?}"),
        }
        drop(link);
    }

    /// A connection of a job is made again.
    async fn wire(&self, address: SocketAddr, number: u8) {
        let order = |role| WireOrder {
            pair: test_pair(number),
            role,
            v6: false,
            queue: vec![number],
            shut_write: false,
        };
        let deadline = Instant::now() + LIMIT;
        let other = Wires::default();
        let active = vec![order(rewire::Role::Active { to: address })];
        let (passive, active) = tokio::join!(
            self.wires.connect(vec![order(rewire::Role::Passive)], deadline),
            other.connect(active, deadline)
        );
        for mut made in [passive.unwrap(), active.unwrap()] {
            let mut unread = [0];
            std::io::Read::read_exact(&mut made[0], &mut unread).unwrap();
            assert_eq!(unread, [number]);
        }
    }
}

const ROOMY: PlaceLimits = PlaceLimits { all: 64, each: 64, kept: 0 };

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// What the port still says before it closes.
async fn last_words(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    let read = tokio::time::timeout(LIMIT, stream.read_to_end(&mut said));
    // It may close with bytes unread, which the kernel reports as a reset.
    let _ = read.await.expect("the port closes it");
    said
}

#[tokio::test]
async fn agents_and_connections_of_jobs_come_by_one_port() {
    let (_port, address, mut guests) = open(agents(), LIMIT, ROOMY);
    for number in 0..3 {
        guests.greet(address).await;
        guests.wire(address, number).await;
    }
}

#[tokio::test]
async fn what_is_neither_is_closed_and_nobody_waits_for_it() {
    let (_port, address, mut guests) = open(agents(), LIMIT, ROOMY);
    // Begins as TLS does, and goes on as nothing does.
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &[22; 64], b"x"] {
        let mut stream = connect(address).await;
        stream.write_all(garbage).await.unwrap();
        let said = last_words(stream).await;
        let told = said.starts_with(b"ckptd: unencrypted");
        assert!(told == (garbage[0] != 22), "{:?}", String::from_utf8_lossy(&said));
    }
    // The right mark with a pair of nobody's.
    let mut stream = connect(address).await;
    stream.write_all(&[MARK; 65]).await.unwrap();
    assert_eq!(last_words(stream).await, b"");
    // One who closes without a word.
    drop(connect(address).await);
    guests.greet(address).await;
    guests.wire(address, 1).await;
}

#[tokio::test]
async fn a_connection_over_which_nothing_comes_ends() {
    let (_port, address, _guests) = open(agents(), Duration::from_millis(50), ROOMY);
    assert_eq!(last_words(connect(address).await).await, b"");
}

/// Passes one connection on, the first byte long before all others.
async fn slowly(to: SocketAddr) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind((HERE, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = connect(to).await;
        far.write_u8(near.read_u8().await.unwrap()).await.unwrap();
        // Longer than it might have been silent.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        tokio::io::copy_bidirectional(&mut near, &mut far).await
    });
    address
}

#[tokio::test]
async fn a_slow_one_that_has_begun_may_go_on() {
    let (_port, address, guests) = open(agents(), Duration::from_secs(1), ROOMY);
    guests.wire(slowly(address).await, 5).await;
}

#[tokio::test]
async fn those_who_say_nothing_make_room_and_keep_nobody_out() {
    let places = PlaceLimits { all: 4, each: 3, kept: 1 };
    let (_port, address, mut guests) = open(agents(), LIMIT, places);
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(connect(address).await);
    }
    // The fourth has pushed the first out, whose limit is far away.
    assert_eq!(last_words(silent.remove(0)).await, b"");
    for _ in 0..8 {
        silent.push(connect(address).await);
    }
    guests.greet(address).await;
    guests.wire(address, 9).await;
    // Those who are left are the last ones.
    let left = silent.iter().filter(|stream| {
        matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    });
    let left = left.count();
    assert!((1..=3).contains(&left), "{left} are left");
}

fn port(wanted: Wanted) -> Port {
    Port::new(wanted, Arc::new(agents().doors))
}

fn answers(address: SocketAddr) -> bool {
    std::net::TcpStream::connect_timeout(&address, LIMIT).is_ok()
}

#[tokio::test]
async fn it_listens_at_one_address_and_moves_with_it() {
    let mut port = port(ANY);
    let first = port.open_at(HERE).unwrap();
    assert_eq!(first.ip(), HERE);
    assert!(answers(first) && !answers(SocketAddr::new(ELSEWHERE, first.port())));
    assert_eq!(port.open_at("::ffff:127.0.0.1".parse().unwrap()).unwrap(), first);
    // The same port at the other address, and the first is closed.
    let second = port.open_at(ELSEWHERE).unwrap();
    assert_eq!(second, SocketAddr::new(ELSEWHERE, first.port()));
    tokio::task::yield_now().await;
    assert!(answers(second) && !answers(first));
    let error = port.open_at(NOBODYS).unwrap_err();
    assert_eq!(error.source.kind(), ErrorKind::AddrNotAvailable);
    assert!(answers(second), "it stays where it was");
}

#[tokio::test]
async fn the_users_address_counts_and_the_port_may_be_taken() {
    let mut all = port(Wanted { host: Some(Ipv4Addr::UNSPECIFIED.into()), port: Some(0) });
    let told = all.open_at(ELSEWHERE).unwrap();
    assert_eq!(told.ip(), ELSEWHERE);
    assert!(answers(told) && answers(SocketAddr::new(HERE, told.port())));
    assert_eq!(all.open_at(HERE).unwrap(), SocketAddr::new(HERE, told.port()));

    let mut own = port(Wanted { host: Some(ELSEWHERE), port: Some(0) });
    let own = own.open_at(HERE).unwrap();
    assert_eq!(own.ip(), ELSEWHERE);

    // Asked for by its number, it is that one or none.
    let error = port(Wanted { host: None, port: Some(own.port()) }).open_at(ELSEWHERE).unwrap_err();
    assert_eq!(error.source.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().contains("--port"), "{error}");
}

#[tokio::test]
async fn two_agents_of_one_machine_both_find_a_port() {
    let (mut first, mut second) = (port(Wanted::default()), port(Wanted::default()));
    let (one, other) = (first.open_at(HERE).unwrap(), second.open_at(HERE).unwrap());
    assert_ne!(one, other);
    assert!(answers(one) && answers(other));
    // Where the first is not in the way, the second is where everybody expects it.
    let again = second.open_at(Ipv4Addr::new(127, 0, 17, 70).into()).unwrap();
    assert_eq!(again.port(), DEFAULT_AGENT_PORT);
}

#[tokio::test]
async fn a_port_is_had_again_while_connections_of_jobs_are_open_at_it() {
    let Agents { doors, wires, .. } = agents();
    let mut before = Port::new(ANY, Arc::new(doors));
    let address = before.open_at(HERE).unwrap();
    let order = |role| WireOrder {
        pair: test_pair(1),
        role,
        v6: false,
        queue: Vec::new(),
        shut_write: false,
    };
    let (deadline, other) = (Instant::now() + LIMIT, Wires::default());
    let held = tokio::try_join!(
        wires.connect(vec![order(rewire::Role::Passive)], deadline),
        other.connect(vec![order(rewire::Role::Active { to: address })], deadline)
    );
    drop(before);
    tokio::task::yield_now().await;
    let mut after = port(Wanted { host: None, port: Some(address.port()) });
    assert_eq!(after.open_at(HERE).unwrap(), address);
    drop(held.unwrap());
}

#[test]
fn the_way_to_a_coordinator_is_found_without_a_word_to_it() {
    let towards = |text: &str| address_towards(&[text.to_owned()]);
    assert_eq!(towards("127.0.0.1:9"), Some(HERE));
    assert_eq!(towards("nowhere"), None);
    let several = ["nowhere".to_owned(), "127.0.0.1:9".to_owned()];
    assert_eq!(address_towards(&several), Some(HERE));
}
