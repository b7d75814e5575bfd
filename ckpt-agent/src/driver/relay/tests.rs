//! Two agents in one process, tied by channels that can be cut.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::agent::InstanceId;
use protocol::cluster::agent::{Peer, RelayLink, RelaySide};
use protocol::cluster::{InstanceKey, NodeName};
use protocol::transport::Precedence;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Carried, Hub, RelayHandle, start};
use crate::driver::busy::Busy;
use crate::driver::grants::Grants;
use ckpt_node::{RelayEvent, RelayOrder, RelayState};

use crate::driver::folders::Folders;
use crate::driver::instance::RelayEndKind;
use crate::driver::link::{CoordinatorLink, Dial, DialError, Link, PeerLink, Promise, Refusal};
use crate::driver::peers::Peers;
use crate::driver::serving::Server;
use crate::driver::whereabouts::Validity;

const LIMIT: Duration = Duration::from_secs(10);

/// Connects to whom it is told, and remembers each connection so that it can be cut.
#[derive(Default)]
struct Wires {
    servers: Mutex<Vec<(NodeName, Server)>>,
    serving: Mutex<Vec<JoinHandle<()>>>,
    /// Who can't connect to anybody yet.
    held: watch::Sender<Option<NodeName>>,
}

struct Wired {
    own: NodeName,
    wires: Arc<Wires>,
}

impl Dial for Wired {
    fn coordinator(&self) -> Promise<'_, Result<(CoordinatorLink, IpAddr), Refusal>> {
        Box::pin(async { Err(Refusal::Passing("there is none".to_owned())) })
    }

    fn peer(
        &self,
        node: NodeName,
        _: SocketAddr,
        _: Validity,
        _: Precedence,
    ) -> Promise<'_, Result<PeerLink, DialError>> {
        Box::pin(async move {
            let mut held = self.wires.held.subscribe();
            let _ = held.wait_for(|held| held.as_ref() != Some(&self.own)).await;
            let servers = self.wires.servers.lock().unwrap();
            let found = servers.iter().find(|(name, _)| *name == node);
            let server = found.ok_or(DialError::Unknown(node))?.1.clone();
            let (near, far) = Link::pair();
            let from = self.own.clone();
            let task = tokio::spawn(async move { server.serve(from, far).await });
            self.wires.serving.lock().unwrap().push(task);
            Ok(near)
        })
    }
}

impl Wires {
    fn node(self: &Arc<Self>, name: &str) -> (NodeName, Hub) {
        let own: NodeName = name.parse().unwrap();
        let dialer = Arc::new(Wired { own: own.clone(), wires: self.clone() });
        let peers = Peers::new(dialer, Grants::none());
        let known = ["a", "b"].map(|name| Peer {
            name: name.parse().unwrap(),
            address: "127.0.0.1:1".parse().unwrap(),
            key: protocol::transport::Fingerprint::default(),
            job_traffic: None,
            addresses: Vec::new(),
        });
        peers.set(&Vec::from(known).into(), Vec::new());
        let hub = Hub::new(own.clone(), peers);
        let folders = Folders::new("/nonexistent".into());
        let (hub_of, grants, busy) = (hub.clone(), Grants::none(), Busy::default());
        let server = Server { hub: hub_of, folders, grants, tree: None, busy, traffic: None };
        self.servers.lock().unwrap().push((own.clone(), server));
        (own, hub)
    }

    /// All connections end; what is in them is lost.
    fn cut(&self) {
        self.serving.lock().unwrap().drain(..).for_each(|task| task.abort());
    }
}

struct Pair {
    wires: Arc<Wires>,
    hubs: [(NodeName, Hub); 2],
    keys: [InstanceKey; 2],
    events: Arc<Mutex<Vec<(usize, RelayEvent)>>>,
}

impl Pair {
    fn new() -> Self {
        let wires = Arc::new(Wires::default());
        let hubs = [wires.node("a"), wires.node("b")];
        let keys = [1, 2].map(|number| InstanceKey {
            job: "job".to_owned(),
            epoch: 1,
            instance: InstanceId(number),
        });
        Self { wires, hubs, keys, events: Arc::default() }
    }

    fn side(&self, at: usize, kind: RelayEndKind, prefix: RelayState) -> (RelayHandle, UnixStream) {
        let (native, ours) = match kind {
            RelayEndKind::Messages => {
                let (a, b) = nix::sys::socket::socketpair(
                    nix::sys::socket::AddressFamily::Unix,
                    nix::sys::socket::SockType::SeqPacket,
                    None,
                    nix::sys::socket::SockFlag::SOCK_CLOEXEC,
                )
                .unwrap();
                (a, UnixStream::from(b))
            }
            _ => {
                let (a, b) = UnixStream::pair().unwrap();
                (a.into(), b)
            }
        };
        let side = RelaySide { relay: "job/1@1#0-1".to_owned(), side: at as u8 };
        let link = RelayLink {
            side: side.clone(),
            peer: self.keys[1 - at].clone(),
            node: self.hubs[1 - at].0.clone(),
        };
        let key = self.keys[at].clone();
        let carried = Carried { key, side, kind, prefix, link: Some(link), gated: false };
        let events = self.events.clone();
        let report = move |event| events.lock().unwrap().push((at, event));
        let handle = start(&self.hubs[at].1, carried, native, false, report).unwrap();
        ours.set_read_timeout(Some(LIMIT)).unwrap();
        (handle, ours)
    }

    fn both(&self, kind: RelayEndKind) -> [(RelayHandle, UnixStream); 2] {
        [0, 1].map(|at| self.side(at, kind, RelayState::default()))
    }

    async fn until_done(&self, count: usize) {
        let done = async {
            loop {
                let events = self.events.lock().unwrap().clone();
                let done = |(_, event): &&(usize, RelayEvent)| matches!(event, RelayEvent::Done(_));
                if events.iter().filter(done).count() >= count {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(LIMIT, done).await.expect("both sides have carried everything");
    }
}

/// Reads on a thread of its own.
fn reading(mut stream: UnixStream) -> tokio::task::JoinHandle<Vec<u8>> {
    tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(step).collect()
}

#[tokio::test]
async fn bytes_go_both_ways_and_each_end_is_seen() {
    let pair = Pair::new();
    let [(_first, mut a), (_second, b)] = pair.both(RelayEndKind::Stream);
    let there = pattern(1 << 20, 3);
    let sent = there.clone();
    let mut back = b.try_clone().unwrap();
    let writer = tokio::task::spawn_blocking(move || {
        a.write_all(&sent).unwrap();
        a.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        a.read_to_end(&mut answer).unwrap();
        answer
    });
    assert!(reading(b).await.unwrap() == there);
    // Only one direction has ended.
    let answer = pattern(400_000, 5);
    let sent = answer.clone();
    tokio::task::spawn_blocking(move || {
        back.write_all(&sent).unwrap();
        back.shutdown(std::net::Shutdown::Write).unwrap();
    });
    assert!(writer.await.unwrap() == answer);
    pair.until_done(2).await;
}

#[tokio::test]
async fn cut_connections_lose_nothing() {
    let pair = Pair::new();
    let [(_first, mut a), (_second, b)] = pair.both(RelayEndKind::Stream);
    let there = pattern(3 << 20, 7);
    let sent = there.clone();
    tokio::task::spawn_blocking(move || {
        for piece in sent.chunks(50_000) {
            a.write_all(piece).unwrap();
        }
    });
    let reader = reading(b);
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(3)).await;
        pair.wires.cut();
    }
    assert!(timeout(LIMIT, reader).await.unwrap().unwrap() == there);
}

#[tokio::test]
async fn a_side_that_begins_late_misses_nothing() {
    let pair = Pair::new();
    let (first, mut a) = pair.side(0, RelayEndKind::Stream, RelayState::default());
    a.write_all(b"too early").unwrap();
    a.shutdown(std::net::Shutdown::Write).unwrap();
    let paused = first.pause(3).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (second, b) = pair.side(1, RelayEndKind::Stream, RelayState::default());
    for state in [paused, second.pause(3).unwrap()] {
        timeout(LIMIT, state).await.unwrap().unwrap();
    }
    first.order(RelayOrder::Resume);
    second.order(RelayOrder::Resume);
    assert_eq!(timeout(LIMIT, reading(b)).await.unwrap().unwrap(), b"too early");
}

/// What it asks for at its beginning is lost while its first connection is being made.
#[tokio::test]
async fn a_side_that_begins_late_and_connects_later_misses_nothing() {
    let pair = Pair::new();
    let (_first, mut a) = pair.side(0, RelayEndKind::Stream, RelayState::default());
    a.write_all(b"too early").unwrap();
    a.shutdown(std::net::Shutdown::Write).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    pair.wires.held.send_replace(Some(pair.hubs[1].0.clone()));
    let (_second, b) = pair.side(1, RelayEndKind::Stream, RelayState::default());
    tokio::time::sleep(Duration::from_millis(50)).await;
    pair.wires.held.send_replace(None);
    assert_eq!(timeout(LIMIT, reading(b)).await.unwrap().unwrap(), b"too early");
}

/// What a side says before it ends may be lost with a connection when nobody is left there who says it again.
#[tokio::test]
async fn last_words_come_over_a_connection_that_is_made_later() {
    let pair = Pair::new();
    pair.wires.held.send_replace(Some(pair.hubs[1].0.clone()));
    let [(_first, mut a), (_second, b)] = pair.both(RelayEndKind::Stream);
    a.write_all(b"one way").unwrap();
    a.shutdown(std::net::Shutdown::Write).unwrap();
    b.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(timeout(LIMIT, reading(b)).await.unwrap().unwrap(), b"one way");
    pair.until_done(1).await;
    pair.wires.held.send_replace(None);
    pair.until_done(2).await;
}

#[tokio::test]
async fn the_next_checkpoints_mark_may_come_before_this_ones_end() {
    let pair = Pair::new();
    let [(first, _a), (second, _b)] = pair.both(RelayEndKind::Stream);
    for state in [first.pause(3).unwrap(), second.pause(3).unwrap()] {
        timeout(LIMIT, state).await.unwrap().unwrap();
    }
    first.order(RelayOrder::Resume);
    let next = first.pause(4).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    second.order(RelayOrder::Resume);
    for state in [next, second.pause(4).unwrap()] {
        timeout(LIMIT, state).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn messages_keep_their_bounds() {
    let pair = Pair::new();
    let [(_first, mut a), (_second, mut b)] = pair.both(RelayEndKind::Messages);
    let lengths = [1, 100_000, 7, 65_536, 2];
    for length in lengths {
        a.write_all(&pattern(length, 9)).unwrap();
    }
    let received = tokio::task::spawn_blocking(move || {
        let mut buffer = vec![0; 200_000];
        lengths.map(|_| b.read(&mut buffer).unwrap())
    });
    assert_eq!(received.await.unwrap(), lengths);
}

#[tokio::test]
async fn what_is_under_way_at_a_checkpoint_is_told_and_comes_first_after_a_restore() {
    let pair = Pair::new();
    let [(first, mut a), (second, mut b)] = pair.both(RelayEndKind::Stream);
    a.set_nonblocking(true).unwrap();
    let sent = pattern(4 << 20, 11);
    // Nobody reads: native buffers and the window fill up.
    let mut written = 0;
    let mut idle = 0;
    while idle < 20 {
        match a.write(&sent[written..]) {
            Ok(length) => (written, idle) = (written + length, 0),
            Err(_) => {
                idle += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
    let paused = [first.pause(3).unwrap(), second.pause(3).unwrap()];
    let mut states = Vec::new();
    for state in paused {
        states.push(timeout(LIMIT, state).await.unwrap().unwrap());
    }
    assert_eq!(states[0], RelayState::default());
    assert!(!states[1].undelivered.is_empty() && !states[1].far_closed);
    // What is nowhere in a native object is in the state, and nothing is in both.
    let in_b = drain(&mut b);
    let mut all = in_b.clone();
    all.extend(&states[1].undelivered);
    assert!(sent.starts_with(&all));
    // Nothing moves while the job stands still.
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert!(drain(&mut b).is_empty());
    // The job goes on.
    first.order(RelayOrder::Resume);
    second.order(RelayOrder::Resume);
    let rest = written - in_b.len();
    b.set_nonblocking(false).unwrap();
    let reader = tokio::task::spawn_blocking(move || {
        let mut bytes = vec![0; rest];
        b.read_exact(&mut bytes).unwrap();
        bytes
    });
    assert!(timeout(LIMIT, reader).await.unwrap().unwrap() == sent[in_b.len()..written]);
    drop((first, second));
    // In another life, from the image.
    let pair = Pair::new();
    let (_first, mut a) = pair.side(0, RelayEndKind::Stream, RelayState::default());
    let (_second, mut b) = pair.side(1, RelayEndKind::Stream, states[1].clone());
    a.write_all(b"after").unwrap();
    let expected = [&states[1].undelivered[..], b"after"].concat();
    let reader = tokio::task::spawn_blocking(move || {
        let mut bytes = vec![0; expected.len()];
        b.read_exact(&mut bytes).unwrap();
        bytes == expected
    });
    assert!(timeout(LIMIT, reader).await.unwrap().unwrap());
}

fn drain(stream: &mut UnixStream) -> Vec<u8> {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

#[tokio::test]
async fn a_pipe_whose_reader_has_gone_tells_its_writer() {
    let pair = Pair::new();
    let pipe = || nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
    let (read, write) = pipe();
    let mut write = std::fs::File::from(write);
    let (far_read, far_write) = pipe();
    let side = |at: usize| RelaySide { relay: "job/1#out".to_owned(), side: at as u8 };
    let mut handles = Vec::new();
    for (at, kind, native) in
        [(0, RelayEndKind::PipeRead, read), (1, RelayEndKind::PipeWrite, far_write)]
    {
        let (peer, node) = (pair.keys[1 - at].clone(), pair.hubs[1 - at].0.clone());
        let link = Some(RelayLink { side: side(at), peer, node });
        let (key, prefix) = (pair.keys[at].clone(), RelayState::default());
        let carried = Carried { key, side: side(at), kind, prefix, link, gated: false };
        let events = pair.events.clone();
        let report = move |event| events.lock().unwrap().push((at, event));
        handles.push(start(&pair.hubs[at].1, carried, native, false, report).unwrap());
    }
    drop(far_read);
    let writer = tokio::task::spawn_blocking(move || {
        loop {
            if let Err(error) = write.write_all(&[1; 4096]) {
                return error.kind();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let kind = timeout(LIMIT, writer).await.unwrap().unwrap();
    assert_eq!(kind, std::io::ErrorKind::BrokenPipe);
    pair.until_done(2).await;
}

#[tokio::test]
async fn other_epochs_and_strangers_are_not_heard() {
    use protocol::cluster::peer::PeerMessage;
    let pair = Pair::new();
    let (_handle, mut ours) = pair.side(0, RelayEndKind::Stream, RelayState::default());
    let side = RelaySide { relay: "job/1@1#0-1".to_owned(), side: 0 };
    let relay =
        |to: InstanceKey| PeerMessage::Relay { to, side: side.clone(), offset: 0, datagram: false };
    let old = InstanceKey { epoch: 0, ..pair.keys[0].clone() };
    let (b, stranger) = (pair.hubs[1].0.clone(), "c".parse().unwrap());
    let hub = &pair.hubs[0].1;
    hub.deliver(&b, relay(old), b"old".to_vec());
    hub.deliver(&stranger, relay(pair.keys[0].clone()), b"strange".to_vec());
    hub.deliver(&b, relay(pair.keys[0].clone()), b"right".to_vec());
    let reader = tokio::task::spawn_blocking(move || {
        let mut bytes = [0; 5];
        ours.read_exact(&mut bytes).unwrap();
        bytes
    });
    assert_eq!(&timeout(LIMIT, reader).await.unwrap().unwrap(), b"right");
}
