//! Stand-in workers that speak DMTCP's protocol byte for byte, over TCP: what is refused, what is survived, and ten
//! thousand of them.

#![allow(clippy::unwrap_used)] // A test that finds the unexpected ends there.

use ckpt_dmtcp::address::{publish, published};
use ckpt_dmtcp::machine::{Checkpoint, Command, Identity, Notice};
use ckpt_dmtcp::server::{Options, Port, RecordError, Recorder};
use ckpt_dmtcp::wire::{CommandStatus, HEADER, ImageName, Kind, Message, Operation, WorkerState};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Only so that a test that hangs ends.
const LIMIT: Duration = Duration::from_secs(600);

#[derive(Default)]
struct Kept {
    checkpoints: Vec<Checkpoint>,
}

impl Recorder for Kept {
    fn commit(&mut self, checkpoint: &Checkpoint) -> Result<(), RecordError> {
        self.checkpoints.push(checkpoint.clone());
        Ok(())
    }

    fn notice(&mut self, _: &Notice) {}
}

async fn port(folder: &Path) -> (SocketAddr, Arc<Mutex<Kept>>) {
    let port = Port::bind(Options::local(0, folder.to_owned())).await.unwrap();
    let address = port.address();
    let kept: Arc<Mutex<Kept>> = Arc::default();
    let (_, orders) = mpsc::channel(1);
    tokio::spawn(port.serve(kept.clone(), orders));
    (address, kept)
}

async fn send(stream: &mut TcpStream, message: &Message) {
    stream.write_all(&message.encode()).await.unwrap();
}

async fn receive(stream: &mut TcpStream) -> Option<Message> {
    let mut header = [0; HEADER];
    let read = tokio::time::timeout(LIMIT, stream.read_exact(&mut header)).await.unwrap();
    read.ok()?;
    let (mut message, length) = Message::decode(&header).unwrap();
    message.payload = vec![0; length];
    stream.read_exact(&mut message.payload).await.ok()?;
    Some(message)
}

struct Worker {
    stream: TcpStream,
    identity: Identity,
    path: String,
}

impl Worker {
    async fn launch(address: SocketAddr, number: u64) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut hello = Message::new(Kind::NewWorker);
        hello.from = Identity { host: 0x98ff, time: number, pid: 1, generation: 0 };
        hello.payload = b"node0001\0nqueens\0".to_vec();
        send(&mut stream, &hello).await;
        let accepted = receive(&mut stream).await.unwrap();
        assert_eq!(accepted.kind, Kind::Accept);
        let identity = Identity { pid: accepted.virtual_pid, ..hello.from };
        let mut update = Message::new(Kind::AfterExec);
        update.state = WorkerState::Running;
        update.from = identity;
        update.payload = b"nqueens\0".to_vec();
        send(&mut stream, &update).await;
        Self { stream, identity, path: format!("/ckpt/ckpt_nqueens_{identity}.dmtcp") }
    }

    async fn barrier(&mut self, name: &str, state: WorkerState) -> Message {
        let mut message = Message::new(Kind::Barrier);
        message.name = name.into();
        message.state = state;
        message.from = self.identity;
        send(&mut self.stream, &message).await;
        let released = receive(&mut self.stream).await.unwrap();
        assert_eq!(released.kind, Kind::BarrierReleased);
        assert_eq!(released.payload, format!("{name}\0").into_bytes());
        released
    }

    /// One checkpoint, from the coordinator's word to the worker's going on.
    async fn checkpoint(&mut self) {
        assert_eq!(receive(&mut self.stream).await.unwrap().kind, Kind::DoCheckpoint);
        for (name, state) in [
            ("DMT:SUSPEND", WorkerState::Presuspend),
            ("DMT:CHECKPOINT", WorkerState::Suspended),
            ("Socket::Ckpt_Register_Peer_Info", WorkerState::Checkpointing),
            ("DMT:WriteCkpt", WorkerState::Checkpointed),
        ] {
            self.barrier(name, state).await;
        }
        let mut message = Message::new(Kind::ImageName);
        message.state = WorkerState::Checkpointed;
        let name =
            ImageName { host: "node0001".into(), shell: String::new(), path: self.path.clone() };
        message.payload = name.payload();
        let mut bytes = message.encode();
        let mut resuming = Message::new(Kind::Resuming);
        resuming.state = WorkerState::Running;
        bytes.extend(resuming.encode());
        self.stream.write_all(&bytes).await.unwrap();
    }
}

async fn command(address: SocketAddr, command: Command) -> Message {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut message = Message::new(Kind::UserCommand);
    message.command = command.number();
    send(&mut stream, &message).await;
    receive(&mut stream).await.unwrap()
}

/// Waits until that many workers run.
async fn until_running(address: SocketAddr, peers: u32) {
    let since = Instant::now();
    loop {
        let status = command(address, Command::Status).await;
        if status.peers == peers && (status.is_running || peers == 0) {
            return;
        }
        assert!(since.elapsed() < LIMIT, "{} of {peers} workers", status.peers);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn workers_are_checkpointed_over_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let (address, kept) = port(folder.path()).await;
    let mut one = Worker::launch(address, 1).await;
    let mut two = Worker::launch(address, 2).await;
    until_running(address, 2).await;
    let blocking = tokio::spawn(command(address, Command::BlockingCheckpoint));
    tokio::join!(one.checkpoint(), two.checkpoint());
    let reply = blocking.await.unwrap();
    assert_eq!((reply.command_status, reply.peers), (CommandStatus::Success, 2));
    assert_eq!(kept.lock().unwrap().checkpoints[0].images.len(), 2);
    let script = std::fs::read_to_string(folder.path().join("dmtcp_restart_script.sh")).unwrap();
    assert!(script.contains(&one.path) && script.contains(&two.path), "{script}");
}

#[tokio::test]
async fn what_is_no_message_is_refused_and_harms_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (address, _) = port(folder.path()).await;
    let _worker = Worker::launch(address, 1).await;
    let good = Message::new(Kind::NewWorker).encode();
    let with = |at: usize, bytes: &[u8]| {
        let mut header = good.clone();
        header[at..at + bytes.len()].copy_from_slice(bytes);
        header
    };
    for (what, bytes) in [
        ("another protocol", [b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![b' '; HEADER]].concat()),
        ("another version", with(88, &[216, 0, 0, 0])),
        ("a payload without end", with(92, &[255, 255, 255, 255])),
        ("an unknown type", with(96, &[99, 0, 0, 0])),
        ("an unknown state", with(100, &[9, 0, 0, 0])),
        ("no greeting", Message::new(Kind::Resuming).encode()),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let answer = receive(&mut stream).await.map(|message| message.kind);
        assert_eq!(answer, Some(Kind::RejectWrongGroup), "{what}");
        assert_eq!(receive(&mut stream).await, None, "{what}");
    }
    // Some say part of a message, and go.
    for length in [0, 1, 100, 207] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&good[..length]).await.unwrap();
    }
    // Or a header that promises more.
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&with(92, &[0, 0, 16, 0])).await.unwrap();
    drop(stream);
    until_running(address, 1).await;
}

/// One that is restarted as one of two.
async fn restarted(address: SocketAddr) -> Worker {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let identity = Identity { host: 0x98ff, time: 1, pid: 40_000, generation: 1 };
    let mut hello = Message::new(Kind::RestartWorker);
    hello.state = WorkerState::Restarting;
    hello.from = identity;
    hello.group = identity;
    hello.peers = 2;
    hello.payload = b"node0001\0nqueens\0".to_vec();
    send(&mut stream, &hello).await;
    assert_eq!(receive(&mut stream).await.unwrap().kind, Kind::Accept);
    Worker { stream, identity, path: String::new() }
}

impl Worker {
    async fn store(&mut self, operation: Operation, key: &str, value: &str) -> String {
        let mut message = Message::new(Kind::StoreRequest);
        message.state = WorkerState::Restarting;
        message.name = "/plugin/socket/rst".into();
        message.store_code = operation.number();
        message.key_length = key.len() as u32 + 1;
        message.value_length = value.len() as u32 + 1;
        message.payload = format!("{key}\0{value}\0").into_bytes();
        send(&mut self.stream, &message).await;
        let answer = receive(&mut self.stream).await.unwrap();
        assert_eq!(answer.kind, Kind::StoreResponse);
        String::from_utf8(answer.payload).unwrap().trim_end_matches('\0').to_owned()
    }
}

#[tokio::test]
async fn departed_peers_are_stood_in_for_over_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::local(0, folder.path().to_owned());
    options.departed_after = Some(Duration::from_millis(200));
    let port = Port::bind(options).await.unwrap();
    let address = port.address();
    let (_, orders) = mpsc::channel(1);
    tokio::spawn(port.serve(Arc::new(Mutex::new(Kept::default())), orders));
    let mut worker = restarted(address).await;
    // Its peer never comes: it goes on alone.
    let released = worker.barrier("DMT:Restart", WorkerState::Restarting).await;
    assert_eq!(released.peers, 1);
    // It waits as the accepting side of one connection ...
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let everywhere = SocketAddr::new([0, 0, 0, 0].into(), listener.local_addr().unwrap().port());
    let name = "98ff-40000-7770a9950e1(99005)";
    worker.store(Operation::Set, name, &publish(everywhere)).await;
    worker.barrier("Socket::Restart_Ns_Register_Data", WorkerState::Restarting).await;
    // ... and is the connecting side of another, whose listener is not there.
    let found = worker.store(Operation::Get, "98ff-41000-1(7)", "").await;
    let stand_in = published(&found).unwrap();
    let mut silent = TcpStream::connect(stand_in).await.unwrap();
    silent.write_all(&[7; 32]).await.unwrap();
    silent.write_all(b"said to nobody").await.unwrap();
    let said = tokio::time::timeout(Duration::from_millis(200), silent.read_u8()).await;
    assert!(said.is_err(), "it stays open and says nothing");
    let (mut dialled, _) = tokio::time::timeout(LIMIT, listener.accept()).await.unwrap().unwrap();
    let mut told = [0; 32];
    dialled.read_exact(&mut told).await.unwrap();
    assert_eq!((&told[..2], &told[16..20]), (&[0xff, 0x98][..], &40_000_i32.to_le_bytes()[..]));
    assert_eq!(told[24..], 99_005_i64.to_le_bytes());
    let said = tokio::time::timeout(Duration::from_millis(200), dialled.read_u8()).await;
    assert!(said.is_err(), "it stays open and says nothing");
    let mut resuming = Message::new(Kind::Resuming);
    resuming.state = WorkerState::Running;
    send(&mut worker.stream, &resuming).await;
    until_running(address, 1).await;
}

#[tokio::test]
async fn a_port_for_all_needs_to_know_for_whom() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::local(0, folder.path().to_owned());
    options.listen = "0.0.0.0:0".parse().unwrap();
    let error = Port::bind(options.clone()).await.unwrap_err().to_string();
    assert!(error.contains("--dmtcp-allow"), "{error}");
    options.allow = vec!["10.0.0.0/8".parse().unwrap()];
    Port::bind(options).await.unwrap();
}

/// The coordinator of [`ten_thousand_workers`], in a process of its own so that it can be measured.
#[test]
fn a_coordinator_to_be_measured() {
    let Some(folder) = std::env::var_os("CKPTD_DMTCP_MEASURED") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let port = Port::bind(Options::local(0, folder.into())).await.unwrap();
        println!("\nPORT {}", port.address());
        let (_, orders) = mpsc::channel(1);
        port.serve(Arc::new(Mutex::new(Kept::default())), orders).await;
    });
}

struct Measured(Child);

impl Drop for Measured {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Measured {
    /// Memory in KiB: /proc/PID/status, proc_pid_status(5).
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Processor time: utime and stime of /proc/PID/stat, proc_pid_stat(5), in ticks of 10 ms (as for all x86 and
    /// aarch64 kernels, what user space is told).
    fn time(&self) -> Duration {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let (_, fields) = text.rsplit_once(") ").unwrap();
        let fields: Vec<&str> = fields.split(' ').collect();
        let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 10)
    }
}

/// The machine's own limit: the messages of a round's barriers, sent back by a thread that does nothing else.
async fn echoed(connections: u64) -> Duration {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            for _ in 0..connections {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut header = [0; HEADER];
                    while stream.read_exact(&mut header).await.is_ok() {
                        stream.write_all(&header).await.unwrap();
                    }
                });
            }
            std::future::pending::<()>().await;
        });
    });
    let mut streams = Vec::new();
    for _ in 0..connections {
        streams.push(TcpStream::connect(address).await.unwrap());
    }
    let since = Instant::now();
    let mut tasks = Vec::new();
    for mut stream in streams {
        tasks.push(tokio::spawn(async move {
            let mut header = [0; HEADER];
            for _ in 0..4 {
                stream.write_all(&header).await.unwrap();
                stream.read_exact(&mut header).await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    since.elapsed()
}

#[test]
fn ten_thousand_workers() {
    const WORKERS: u64 = 10_000;
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    if hard < WORKERS + 100 {
        println!("skipped: {hard} descriptors are not enough");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_coordinator_to_be_measured", "--nocapture"])
        .env("CKPTD_DMTCP_MEASURED", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let coordinator = Measured(child);
    let address: SocketAddr = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("PORT ").and_then(|text| text.parse().ok()))
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let before = coordinator.memory();
        let since = Instant::now();
        let mut workers = Vec::new();
        for number in 0..WORKERS {
            workers.push(Worker::launch(address, number).await);
        }
        until_running(address, WORKERS as u32).await;
        let connected = since.elapsed();
        let idle = coordinator.memory() - before;
        let (since, used) = (Instant::now(), coordinator.time());
        let blocking = tokio::spawn(command(address, Command::BlockingCheckpoint));
        let mut tasks = Vec::new();
        for mut worker in workers {
            tasks.push(tokio::spawn(async move {
                worker.checkpoint().await;
                worker
            }));
        }
        let mut workers = Vec::new();
        for task in tasks {
            workers.push(task.await.unwrap());
        }
        assert_eq!(blocking.await.unwrap().command_status, CommandStatus::Success);
        let (took, worked) = (since.elapsed(), coordinator.time() - used);
        let most = coordinator.memory() - before;
        drop(workers);
        until_running(address, 0).await;
        // Both ends are of this process.
        let echoing = WORKERS.min(hard / 2 - 100);
        let limit = echoed(echoing).await;
        // Printed only: times depend on what else the machine does.
        println!(
            "{WORKERS} workers: connected in {connected:?}; {} bytes each idle, {} after a checkpoint, of which the \
             record of its images is a part; a whole round of barriers in {took:?}, {worked:?} of the coordinator's \
             processor time; the same messages of {echoing} connections to and from a server \
             that decides nothing: {limit:?} (wanted: a round in 2 s)",
            idle * 1024 / WORKERS,
            most * 1024 / WORKERS,
        );
        assert!(idle * 1024 / WORKERS <= 4096, "{idle} KiB");
        assert!(most * 1024 / WORKERS <= 4096, "{most} KiB");
    });
}

/// A connection whose socket is another user's, as the programs of that user have.
fn connect_as(user: u32, address: SocketAddr) -> std::net::TcpStream {
    std::thread::spawn(move || {
        // Of this thread alone, as each has its own.
        nix::unistd::setfsuid(nix::unistd::Uid::from_raw(user));
        std::net::TcpStream::connect(address).unwrap()
    })
    .join()
    .unwrap()
}

async fn ask_as(user: u32, address: SocketAddr, message: &Message) -> Message {
    let stream = connect_as(user, address);
    stream.set_nonblocking(true).unwrap();
    let mut stream = TcpStream::from_std(stream).unwrap();
    send(&mut stream, message).await;
    receive(&mut stream).await.unwrap()
}

#[tokio::test]
async fn users_of_one_machine_are_told_apart_by_their_sockets() {
    // Nobody else makes sockets of other users.
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    const ALICE: u32 = 61_001;
    const BOB: u32 = 61_002;
    let folder = tempfile::tempdir().unwrap();
    let (address, _) = port(folder.path()).await;
    let mut hello = Message::new(Kind::NewWorker);
    hello.from = Identity { host: 1, time: 1, pid: 1, generation: 0 };
    hello.payload = b"node0001\0hers\0".to_vec();
    let stream = connect_as(ALICE, address);
    stream.set_nonblocking(true).unwrap();
    let mut hers = TcpStream::from_std(stream).unwrap();
    send(&mut hers, &hello).await;
    assert_eq!(receive(&mut hers).await.unwrap().kind, Kind::Accept);
    for other in [BOB, 0] {
        assert_eq!(ask_as(other, address, &hello).await.kind, Kind::RejectWrongGroup, "{other}");
    }
    let mut order = Message::new(Kind::UserCommand);
    for (command, user, status) in [
        (Command::Kill, BOB, CommandStatus::NotFound),
        (Command::Quit, BOB, CommandStatus::NotFound),
        (Command::List, BOB, CommandStatus::NotFound),
        (Command::List, ALICE, CommandStatus::Success),
        (Command::Status, 0, CommandStatus::Success),
    ] {
        order.command = command.number();
        let reply = ask_as(user, address, &order).await;
        assert_eq!(reply.command_status, status, "{command:?} of {user}");
    }
    order.command = Command::Kill.number();
    assert_eq!(ask_as(ALICE, address, &order).await.command_status, CommandStatus::Success);
    assert_eq!(receive(&mut hers).await.unwrap().kind, Kind::Kill);
}
