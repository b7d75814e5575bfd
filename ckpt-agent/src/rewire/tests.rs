//! Both ends in this process, each with a port of its own.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use protocol::agent::InstanceId;
use protocol::cluster::InstanceKey;
use tokio::time::Instant;

use super::*;

pub(super) const LIMIT: Duration = Duration::from_secs(20);

/// A pair of a secret that consists of this byte.
pub fn test_pair(number: u8) -> Pair {
    let instance = InstanceKey { job: "job".into(), epoch: 1, instance: InstanceId(0) };
    Pair::new(&Secret::new([number; 32]), &instance)
}

pub(super) fn order(pair: Pair, role: Role, queue: &[u8]) -> WireOrder {
    WireOrder { pair, role, v6: false, queue: queue.to_vec(), shut_write: false }
}

fn pattern(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

/// An agent's port, for connections of jobs alone.
pub(super) struct Port {
    pub(super) wires: Arc<Wires>,
    address: SocketAddr,
}

impl Port {
    pub(super) fn at(address: &str) -> Self {
        let wires = Arc::new(Wires::default());
        let listener = listen(address.parse().unwrap()).unwrap();
        let bound = listener.local_addr().unwrap();
        let doors = wires.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let doors = doors.clone();
                tokio::spawn(async move { doors.admit(stream).await });
            }
        });
        Self { wires, address: SocketAddr::new(bound.ip().to_canonical(), bound.port()) }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) async fn connect(
        &self,
        plan: Vec<WireOrder>,
        deadline: Instant,
    ) -> Result<Vec<std::net::TcpStream>, RewireError> {
        self.wires.connect(plan, deadline).await
    }
}

pub(super) async fn ports() -> (Port, Port) {
    (Port::at("127.0.0.1:0"), Port::at("127.0.0.1:0"))
}

type Joined = (std::net::TcpStream, std::net::TcpStream);

async fn pair(left: &[u8], right: &[u8], shut: (bool, bool)) -> Joined {
    let (here, there) = ports().await;
    let mut passive = order(test_pair(1), Role::Passive, left);
    passive.shut_write = shut.0;
    let mut active = order(test_pair(1), Role::Active { to: here.address() }, right);
    active.shut_write = shut.1;
    let deadline = Instant::now() + LIMIT;
    let (one, other) = tokio::try_join!(
        here.connect(vec![passive], deadline),
        there.connect(vec![active], deadline)
    )
    .unwrap();
    let ends = (one.into_iter().next().unwrap(), other.into_iter().next().unwrap());
    for end in [&ends.0, &ends.1] {
        end.set_read_timeout(Some(LIMIT)).unwrap();
        assert!(!end.nodelay().unwrap());
    }
    ends
}

pub(super) fn expect(stream: &mut std::net::TcpStream, wanted: &[u8]) {
    let mut bytes = vec![0; wanted.len()];
    stream.read_exact(&mut bytes).unwrap();
    assert!(bytes == wanted, "bytes differ");
}

#[tokio::test]
async fn unread_bytes_lie_in_both_queues_and_the_connection_works() {
    for (left, right) in [(0, 0), (1, 0), (0, 1), (70_000, 1), (8 << 20, 8 << 20)] {
        let (left, right) = (pattern(left, 3), pattern(right, 4));
        let (mut one, mut other) = pair(&left, &right, (false, false)).await;
        assert_eq!(ckpt_engine::sys::sockopt::readable(&one).unwrap(), left.len());
        assert_eq!(ckpt_engine::sys::sockopt::readable(&other).unwrap(), right.len());
        let later = pattern(3 << 20, 5);
        let more = later.clone();
        // The kernel tunes buffers on, or this would take ages.
        let writer = std::thread::spawn(move || {
            expect(&mut other, &right);
            other.write_all(&more).unwrap();
            expect(&mut other, b"back");
        });
        expect(&mut one, &left);
        expect(&mut one, &later);
        one.write_all(b"back").unwrap();
        writer.join().unwrap();
        let lock = ckpt_engine::sys::sockopt::get_int(&one, libc::SOL_SOCKET, 72);
        assert_eq!(lock.unwrap() & 2, 0);
    }
}

#[tokio::test]
async fn half_closed_ends_say_so_behind_their_bytes() {
    let (mut one, mut other) = pair(b"unread", b"also unread", (true, false)).await;
    let mut all = Vec::new();
    other.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"also unread");
    assert_eq!(one.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    other.write_all(b", still open").unwrap();
    drop(other);
    all.clear();
    one.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"unread, still open");
}

#[tokio::test]
async fn sockets_are_of_the_family_that_the_job_knew() {
    let (here, there) = ports().await;
    assert!(here.address().is_ipv4());
    let own = Port::at("[::1]:0");
    let domain = |end: &std::net::TcpStream| {
        ckpt_engine::sys::sockopt::get_int(end, libc::SOL_SOCKET, libc::SO_DOMAIN).unwrap()
    };
    let deadline = Instant::now() + LIMIT;
    for (number, (port, v6s)) in [&here, &own]
        .iter()
        .flat_map(|port| [[false; 2], [true; 2], [false, true]].map(|v6s| (port, v6s)))
        .enumerate()
    {
        let pair = test_pair(number as u8);
        let mut passive = order(pair.clone(), Role::Passive, b"one");
        let mut active = order(pair, Role::Active { to: port.address() }, b"two");
        (passive.v6, active.v6, active.shut_write) = (v6s[0], v6s[1], true);
        let (one, other) = tokio::try_join!(
            port.connect(vec![passive], deadline),
            there.connect(vec![active], deadline)
        )
        .unwrap();
        let ends = [one, other].map(|mut made| made.remove(0));
        for (end, v6) in ends.iter().zip(v6s) {
            // Real IPv6 addresses cannot be had by AF_INET.
            let v6 = v6 || port.address().is_ipv6();
            assert_eq!(domain(end), if v6 { libc::AF_INET6 } else { libc::AF_INET });
            assert_eq!(end.local_addr().unwrap().is_ipv6(), v6);
        }
        let mut text = String::new();
        (&ends[0]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "one");
    }
}

#[tokio::test]
async fn strangers_are_dropped_and_peers_still_served() {
    let (here, there) = ports().await;
    let deadline = Instant::now() + LIMIT;
    let waiting = here.connect(vec![order(test_pair(1), Role::Passive, b"mine")], deadline);
    let address = here.address();
    let strange = async {
        let mut wrong = tokio::net::TcpStream::connect(address).await.unwrap();
        let silent = tokio::net::TcpStream::connect(address).await.unwrap();
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        wrong.write_all(&[MARK; 65]).await.unwrap();
        // Closed by the port, without a word.
        assert!(matches!(wrong.read(&mut [0; 8]).await, Ok(0) | Err(_)));
        let active = order(test_pair(1), Role::Active { to: address }, b"");
        let ours = there.connect(vec![active], deadline).await.unwrap();
        drop(silent);
        ours
    };
    let (ours, mut theirs) = tokio::join!(waiting, strange);
    let mut ours = ours.unwrap().into_iter().next().unwrap();
    expect(&mut ours, b"mine");
    theirs[0].write_all(b"!").unwrap();
    expect(&mut ours, b"!");
}

#[tokio::test]
async fn an_active_side_with_another_secret_never_gets_through() {
    let (here, there) = ports().await;
    let deadline = Instant::now() + Duration::from_millis(300);
    let passive = here.connect(vec![order(test_pair(1), Role::Passive, b"")], deadline);
    let active = order(test_pair(2), Role::Active { to: here.address() }, b"");
    let active = there.connect(vec![active], deadline);
    let (passive, active) = tokio::join!(passive, active);
    assert!(matches!(passive, Err(RewireError::Late { index: 0, .. })), "{passive:?}");
    assert!(matches!(active, Err(RewireError::Late { index: 0, .. })), "{active:?}");
}

#[tokio::test]
async fn nobody_is_waited_for_beyond_the_deadline_and_a_secret_is_free_afterwards() {
    let (here, there) = ports().await;
    for _ in 0..2 {
        let began = Instant::now();
        let plan = vec![order(test_pair(9), Role::Passive, b"")];
        let error = here.connect(plan, began + Duration::from_millis(100)).await.unwrap_err();
        assert!(matches!(error, RewireError::Late { .. }), "{error}");
        assert!(began.elapsed() < Duration::from_secs(3));
    }
    let twice =
        vec![order(test_pair(9), Role::Passive, b""), order(test_pair(9), Role::Passive, b"")];
    let error = here.connect(twice, Instant::now() + LIMIT).await.unwrap_err();
    assert!(matches!(error, RewireError::Twice { index: 1 }), "{error}");
    // An active side that comes before the passive one has its orders tries again.
    let deadline = Instant::now() + LIMIT;
    let active = order(test_pair(9), Role::Active { to: here.address() }, b"");
    let late = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        here.connect(vec![order(test_pair(9), Role::Passive, b"late")], deadline).await
    };
    let (early, late) = tokio::join!(there.connect(vec![active], deadline), late);
    early.unwrap();
    expect(&mut late.unwrap()[0], b"late");
}

#[tokio::test]
async fn a_hundred_at_once_keep_their_order() {
    let (here, there) = ports().await;
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for number in 0..100u8 {
        let bytes = pattern(usize::from(number) * 1000, u32::from(number));
        // Both sides are active for half of them.
        let (one, other) =
            if number % 2 == 0 { (&mut left, &mut right) } else { (&mut right, &mut left) };
        let to = if number % 2 == 0 { here.address() } else { there.address() };
        one.push(order(test_pair(number), Role::Passive, &bytes));
        other.push(order(test_pair(number), Role::Active { to }, &[number]));
    }
    let deadline = Instant::now() + LIMIT;
    let (left, right) =
        tokio::try_join!(here.connect(left, deadline), there.connect(right, deadline)).unwrap();
    for (number, (mut one, mut other)) in left.into_iter().zip(right).enumerate() {
        if number % 2 == 1 {
            std::mem::swap(&mut one, &mut other);
        }
        expect(&mut one, &pattern(number * 1000, number as u32));
        expect(&mut other, &[number as u8]);
    }
}

#[tokio::test]
async fn a_peer_that_tells_of_too_much_is_refused() {
    let (here, _there) = ports().await;
    let waiting =
        here.connect(vec![order(test_pair(1), Role::Passive, b"")], Instant::now() + LIMIT);
    let address = here.address();
    let liar = async {
        use tokio::io::AsyncWriteExt;
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        handshake::call(&mut stream, &test_pair(1)).await.unwrap();
        stream.write_all(&u64::MAX.to_le_bytes()).await.unwrap();
        stream
    };
    let (refused, _stream) = tokio::join!(waiting, liar);
    assert!(refused.unwrap_err().to_string().contains("bytes in flight"));
}

#[test]
fn secrets_are_read_from_hexadecimal_digits_only() {
    let text = "00ff".repeat(16);
    let bytes: Vec<u8> = [0, 255].repeat(16);
    let instance = InstanceKey { job: "job".into(), epoch: 1, instance: InstanceId(0) };
    let named = |secret: &Secret| Pair::new(secret, &instance).name();
    let secret = Secret::new(bytes.try_into().unwrap());
    assert_eq!(named(&Secret::from_hex(&text).unwrap()), named(&secret));
    for wrong in ["", "00", &"zz".repeat(32), &"+f".repeat(32), &"é".repeat(32)] {
        assert!(Secret::from_hex(wrong).is_none());
    }
}
