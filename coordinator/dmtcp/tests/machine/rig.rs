//! Workers without I/O: each message that a worker of DMTCP would send is put into the machine by hand.

use ckpt_dmtcp::machine::{Action, Checkpoint, Event, Identity, Machine, Notice, Peer, Settings};
use ckpt_dmtcp::wire::{Command, ImageName, Kind, Message, Operation, WorkerState};
use protocol::clock::Time;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

pub const SECOND: u64 = 1_000_000_000;

/// The barriers of a checkpoint, and the state in which a worker reaches each.
pub const CHECKPOINT: [(&str, WorkerState); 4] = [
    ("DMT:SUSPEND", WorkerState::Presuspend),
    ("DMT:CHECKPOINT", WorkerState::Suspended),
    ("Socket::Ckpt_Register_Peer_Info", WorkerState::Checkpointing),
    ("DMT:WriteCkpt", WorkerState::Checkpointed),
];

/// Those of a restart.
pub const RESTART: [&str; 2] = ["DMT:Restart", "Socket::Restart_Ns_Register_Data"];

pub struct Rig {
    pub machine: Machine,
    pub now: u64,
    /// Whose connections are, where that is known.
    pub owners: BTreeMap<u64, u32>,
    pub inbox: BTreeMap<u64, Vec<Message>>,
    pub closed: Vec<u64>,
    pub notices: Vec<Notice>,
    pub commits: Vec<Checkpoint>,
    pub dials: Vec<String>,
    pub quit: bool,
    /// Why records can't be made durable.
    pub record_failure: Option<String>,
}

pub fn settings() -> Settings {
    Settings {
        identity: Identity { host: 1, time: 2, pid: 3, generation: 0 },
        own_address: Ipv4Addr::new(10, 0, 0, 10),
        interval: 0,
        directory: "/ckpt".into(),
        exit_on_last: false,
        kill_after: false,
        user: 0,
        patience: 15 * SECOND,
        departed_after: None,
        stand_in: None,
    }
}

impl Rig {
    pub fn new(settings: Settings) -> Self {
        Self {
            machine: Machine::new(settings),
            now: SECOND,
            owners: BTreeMap::new(),
            inbox: BTreeMap::new(),
            closed: Vec::new(),
            notices: Vec::new(),
            commits: Vec::new(),
            dials: Vec::new(),
            quit: false,
            record_failure: None,
        }
    }

    pub fn feed(&mut self, event: Event) {
        let now = Time { nanos: self.now, unix_ms: self.now / 1_000_000 };
        for action in self.machine.step(now, event) {
            match action {
                Action::Send { to, message } => {
                    for connection in to {
                        self.inbox.entry(connection).or_default().push(message.clone());
                    }
                }
                Action::Close { connection } => self.closed.push(connection),
                Action::Commit(checkpoint) => {
                    let generation = checkpoint.group.generation;
                    self.commits.push(*checkpoint);
                    let failure = self.record_failure.clone();
                    self.feed(Event::Recorded { generation, failure });
                }
                Action::DialFor { key, .. } => self.dials.push(key),
                Action::Notice(notice) => self.notices.push(notice),
                Action::Quit => self.quit = true,
            }
        }
    }

    pub fn wait(&mut self, nanos: u64) {
        self.now += nanos;
        self.feed(Event::Clock);
    }

    pub fn remote(connection: u64) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 1, connection as u8)
    }

    fn identity(connection: u64) -> Identity {
        Identity {
            host: 7,
            time: connection,
            pid: 40_000 + 1000 * connection as i32,
            generation: 0,
        }
    }

    pub fn open(&mut self, connection: u64, message: Message) {
        let owner = self.owners.get(&connection).copied();
        let remote = Peer { address: Self::remote(connection), owner };
        self.feed(Event::Opened { connection, remote, message });
    }

    pub fn say(&mut self, connection: u64, message: Message) {
        self.feed(Event::Message { connection, message });
    }

    pub fn close(&mut self, connection: u64) {
        self.feed(Event::Closed { connection });
    }

    /// A launch, up to the program's first words.
    pub fn launch(&mut self, connection: u64) {
        self.open(connection, new_worker(connection));
        self.say(connection, after_exec(connection));
    }

    pub fn barrier(&mut self, connection: u64, name: &str, state: WorkerState) {
        let mut message = Message::new(Kind::Barrier);
        message.name = name.into();
        message.state = state;
        self.say(connection, message);
    }

    pub fn image(&mut self, connection: u64) {
        let mut message = Message::new(Kind::ImageName);
        message.state = WorkerState::Checkpointed;
        let name = ImageName {
            host: format!("host{connection}"),
            shell: String::new(),
            path: format!("/ckpt/{connection}.dmtcp"),
        };
        message.payload = name.payload();
        self.say(connection, message);
    }

    pub fn resume(&mut self, connection: u64) {
        let mut message = Message::new(Kind::Resuming);
        message.state = WorkerState::Running;
        self.say(connection, message);
    }

    /// What a worker does once it has heard of a checkpoint, all of them in step.
    pub fn checkpoint(&mut self, connections: &[u64]) {
        for (name, state) in CHECKPOINT {
            for connection in connections {
                self.barrier(*connection, name, state);
            }
        }
        for connection in connections {
            self.image(*connection);
            self.resume(*connection);
        }
    }

    pub fn restart(&mut self, connection: u64, peers: u32) {
        let mut message = Message::new(Kind::RestartWorker);
        message.state = WorkerState::Restarting;
        message.from = Self::identity(connection);
        message.group = GROUP;
        message.peers = peers;
        message.payload = b"host\0program\0".to_vec();
        self.open(connection, message);
    }

    pub fn command(&mut self, connection: u64, command: Command) {
        let mut message = Message::new(Kind::UserCommand);
        message.command = command.number();
        self.open(connection, message);
    }

    pub fn store(
        &mut self,
        connection: u64,
        operation: Operation,
        database: &str,
        key: &str,
        value: &str,
    ) -> Message {
        let mut message = Message::new(Kind::StoreRequest);
        message.state = WorkerState::Running;
        message.name = database.into();
        message.store_code = operation.number();
        message.payload = format!("{key}\0{value}\0").into_bytes();
        message.key_length = key.len() as u32 + 1;
        message.value_length = value.len() as u32 + 1;
        self.say(connection, message);
        self.last(connection)
    }

    pub fn last(&self, connection: u64) -> Message {
        self.inbox.get(&connection).and_then(|inbox| inbox.last()).cloned().unwrap()
    }

    pub fn kinds(&self, connection: u64) -> Vec<Kind> {
        self.inbox.get(&connection).into_iter().flatten().map(|message| message.kind).collect()
    }

    pub fn warnings(&self) -> Vec<&str> {
        self.notices
            .iter()
            .filter_map(|notice| match notice {
                Notice::Warning(text) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }
}

pub const GROUP: Identity = Identity { host: 7, time: 9, pid: 40_000, generation: 3 };

pub fn new_worker(connection: u64) -> Message {
    let mut message = Message::new(Kind::NewWorker);
    message.from = Identity { host: 7, time: connection, pid: 5, generation: 0 };
    message.real_pid = connection as i32;
    message.payload = format!("host{connection}\0./program\0").into_bytes();
    message
}

pub fn after_exec(connection: u64) -> Message {
    let mut message = Message::new(Kind::AfterExec);
    message.state = WorkerState::Running;
    message.from = Rig::identity(connection);
    message.payload = b"program\0".to_vec();
    message
}
