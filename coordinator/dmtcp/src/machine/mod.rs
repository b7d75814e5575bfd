//! What a coordinator of DMTCP's processes decides: events in, actions out.
//!
//! - `join`: who is let in, as new, restarted, for the store alone.
//! - `owners`: whose a computation is, and who may give orders to it.
//! - `pids`: the processes' numbers.
//! - `round`: checkpoints and restarts, which are sequences of global barriers.
//! - `commands`: what dmtcp_command asks for.
//! - `values`: the key-value store, and what is put right in it.
//! - `time`: intervals, and who is waited for too long.
//!
//! DMTCP's own coordinator has one barrier at a time, reached by all. Here each *round* remembers the barriers
//! that it has released, so that a process that comes late passes those at once and meets the others where they
//! are; and whoever can't come any more is not waited for.

mod commands;
mod join;
mod owners;
mod pids;
mod round;
mod time;
mod values;

use super::store::Store;
pub use super::wire::{Command, Identity};
use super::wire::{ImageName, Kind, Message, WorkerState};
use pids::VirtualPids;
use protocol::clock::Time;
use round::Round;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Number of a connection; never used twice.
pub type Connection = u64;

/// The most workers.
pub const MAX_WORKERS: usize = 200_000;

/// The most connections that only use the store, or wait for an answer.
const MAX_OTHERS: usize = 200_000;

/// How long before a machine is found to be lost its processes may have gone, in nanoseconds: a kernel on its way down may still
/// close their connections.
const LOST_WITHIN: u64 = 60_000_000_000;

/// Bytes of a host's or program's name that are kept.
const MAX_LABEL: usize = 256;

/// How the machine is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the coordinator calls itself.
    pub identity: Identity,
    /// The address that workers of the coordinator's own machine are told, and at which they are told to others.
    pub own_address: Ipv4Addr,
    /// Seconds between checkpoints for computations that ask for none, 0 for only on demand.
    pub interval: u32,
    /// The folder for images that is told to workers who ask.
    pub directory: String,
    /// Whether it ends with the last worker.
    pub exit_on_last: bool,
    /// Whether all processes end with each checkpoint.
    pub kill_after: bool,
    /// The coordinator's own user.
    pub user: u32,
    /// How long a round may stand still before it is said who is waited for, in nanoseconds.
    pub patience: u64,
    /// How long a restart waits for processes that do not connect before it goes on without them, in
    /// nanoseconds; None: for ever.
    pub departed_after: Option<u64>,
    /// Where connections to departed peers are accepted in their stead.
    pub stand_in: Option<SocketAddr>,
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Where it is.
    pub address: Ipv4Addr,
    /// Whose it is; None: it is on another machine, where any user may have it.
    pub owner: Option<u32>,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner {
            Some(owner) => write!(f, "{}, user {owner}", self.address),
            None => self.address.fmt(f),
        }
    }
}

/// What happens.
#[derive(Debug)]
pub enum Event {
    /// The first message of a connection.
    Opened {
        /// The connection.
        connection: Connection,
        /// From where.
        remote: Peer,
        /// The message.
        message: Message,
    },
    /// A further message.
    Message {
        /// The connection.
        connection: Connection,
        /// The message.
        message: Message,
    },
    /// A connection is gone.
    Closed {
        /// The connection.
        connection: Connection,
    },
    /// The machine with these addresses is lost.
    HostLost {
        /// Its addresses, all that are known.
        addresses: Vec<IpAddr>,
    },
    /// A command of the coordinator's own user.
    Order(Command),
    /// A checkpoint's record is durable, or can't be.
    Recorded {
        /// Its generation.
        generation: i32,
        /// Why not.
        failure: Option<String>,
    },
    /// Time has passed.
    Clock,
}

/// What is to be done.
#[derive(Debug)]
pub enum Action {
    /// Send a message to each of them.
    Send {
        /// The connections.
        to: Vec<Connection>,
        /// The message.
        message: Message,
    },
    /// Close a connection, once what is to be sent is sent.
    Close {
        /// The connection.
        connection: Connection,
    },
    /// All images are written: record them, then say [`Event::Recorded`].
    Commit(Box<Checkpoint>),
    /// Connect to a worker's restore listener in the stead of a peer that departed.
    DialFor {
        /// The listener.
        address: SocketAddr,
        /// The connection's name, as in the store.
        key: String,
    },
    /// Say something.
    Notice(Notice),
    /// End.
    Quit,
}

/// A checkpoint whose images are all written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The computation; its generation is the checkpoint's number.
    pub group: Identity,
    /// When it was begun, in milliseconds since 1970 UTC.
    pub begun_at_ms: u64,
    /// From its begin to the last image, in microseconds.
    pub took_us: u64,
    /// The images.
    pub images: Vec<Image>,
    /// Whether their names are of this checkpoint alone.
    pub unique_names: bool,
    /// Seconds between checkpoints.
    pub interval: u32,
    /// Whether the processes end with it.
    pub kills: bool,
}

/// A worker's image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Where it is.
    pub name: ImageName,
    /// The process.
    pub identity: Identity,
    /// Its program.
    pub program: String,
    /// From where it was connected.
    pub remote: Ipv4Addr,
    /// Whose its process is; None: nobody on this machine knows.
    pub owner: Option<u32>,
}

/// What is worth saying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A computation begins with its first process.
    Began {
        /// The computation.
        group: Identity,
        /// The program of its first process.
        program: String,
        /// Whether it is restarted.
        restarted: bool,
    },
    /// A checkpoint was begun.
    Checkpointing {
        /// The computation.
        group: Identity,
        /// Its processes.
        peers: usize,
    },
    /// A checkpoint was given up, or can't be recorded.
    Failed {
        /// The computation.
        group: Identity,
        /// Why, in one line.
        reason: String,
    },
    /// All processes run again after a restart.
    Restarted {
        /// The computation.
        group: Identity,
        /// Its processes.
        peers: usize,
    },
    /// A machine is lost, and with it some of the processes.
    HostLost {
        /// The computation.
        group: Identity,
        /// How many of its processes.
        peers: usize,
    },
    /// All processes have gone.
    Ended {
        /// The computation.
        group: Identity,
        /// Whether they had been told to end.
        asked: bool,
    },
    /// Something to know about, in one line.
    Warning(String),
}

/// One process.
#[derive(Debug)]
struct Worker {
    number: u64,
    remote: Ipv4Addr,
    owner: Option<u32>,
    identity: Identity,
    state: WorkerState,
    host: Arc<str>,
    program: Box<str>,
    virtual_pid: i32,
    real_pid: i32,
    /// Its part in the round.
    part: round::Part,
}

impl Worker {
    /// For people.
    fn label(&self) -> String {
        format!("{}[{}] on {}", self.program, self.real_pid, self.host)
    }
}

/// The state machine.
#[derive(Debug)]
pub struct Machine {
    settings: Settings,
    workers: BTreeMap<Connection, Worker>,
    /// How many workers are in each state.
    states: [usize; 7],
    virtual_pids: VirtualPids,
    next_number: u64,
    hosts: BTreeSet<Arc<str>>,
    /// Connections for the store alone.
    store_only: BTreeMap<Connection, Peer>,
    store: Store,
    group: Identity,
    /// The user whose computation it is, once a process of this machine is in it.
    owner: Option<u32>,
    time_stamp: u64,
    default_interval: u32,
    interval: u32,
    next_checkpoint: Option<u64>,
    round: Round,
    /// Who waits for the checkpoint under way, of dmtcp_command.
    blocked: Vec<Connection>,
    /// Launchers that come while all stand still: they are let in afterwards.
    held: VecDeque<(Connection, Peer, Message)>,
    /// The checkpoint that is being recorded.
    recording: Option<i32>,
    killing: bool,
    /// Whether the processes were told to end, at once or with a checkpoint.
    ending: bool,
    directory: String,
    /// When, and how many, processes went from an address without having been told to.
    departures: BTreeMap<Ipv4Addr, (u64, usize)>,
    actions: Vec<Action>,
}

impl Machine {
    /// A machine without a computation.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            workers: BTreeMap::new(),
            states: [0; 7],
            virtual_pids: VirtualPids::default(),
            next_number: 1,
            hosts: BTreeSet::new(),
            store_only: BTreeMap::new(),
            store: Store::default(),
            group: Identity::default(),
            owner: None,
            time_stamp: 0,
            default_interval: settings.interval,
            interval: settings.interval,
            next_checkpoint: None,
            round: Round::free(0),
            blocked: Vec::new(),
            held: VecDeque::new(),
            recording: None,
            killing: false,
            ending: false,
            directory: settings.directory.clone(),
            departures: BTreeMap::new(),
            actions: Vec::new(),
            settings,
        }
    }

    /// The computation; null without one.
    #[must_use]
    pub fn group(&self) -> Identity {
        self.group
    }

    /// How many processes are connected.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.workers.len()
    }

    /// Seconds between checkpoints, 0 for only on demand.
    #[must_use]
    pub fn interval(&self) -> u32 {
        self.interval
    }

    /// Where restart scripts are wanted, and where workers who ask are told that images go.
    #[must_use]
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// When the next checkpoint falls due, in nanoseconds.
    #[must_use]
    pub fn next_checkpoint(&self) -> Option<u64> {
        self.next_checkpoint
    }

    /// Takes an event in.
    pub fn step(&mut self, now: Time, event: Event) -> Vec<Action> {
        match event {
            Event::Opened { connection, remote, message } => {
                self.opened(now, connection, remote, message);
            }
            Event::Message { connection, message } => self.message(now, connection, message),
            Event::Closed { connection } => self.closed(now, connection),
            Event::HostLost { addresses } => self.host_lost(now, &addresses),
            Event::Order(command) => {
                // Its user reads the notices.
                let _ = self.obey(now, command, None);
            }
            Event::Recorded { generation, failure } => self.recorded(generation, failure),
            Event::Clock => self.clock(now),
        }
        std::mem::take(&mut self.actions)
    }

    fn message(&mut self, now: Time, connection: Connection, message: Message) {
        if let Some(peer) = self.store_only.get(&connection).copied() {
            // A computation of another user may have begun since it was let in.
            if let Some(reason) = self.stranger(peer) {
                self.warn(format!(
                    "a connection for the key-value store ({peer}) is closed: {reason}"
                ));
                self.drop_connection(now, connection);
            } else if message.kind == Kind::StoreRequest {
                self.store_request(connection, &message);
            } else {
                self.warn(format!(
                    "a connection for the key-value store sent {:?}; it is closed",
                    message.kind
                ));
                self.drop_connection(now, connection);
            }
            return;
        }
        if !self.workers.contains_key(&connection) {
            // A command that has been answered, or one that was turned away.
            self.close(connection);
            return;
        }
        match message.kind {
            Kind::AfterFork | Kind::AfterExec => self.update(now, connection, &message),
            Kind::Barrier => self.barrier(now, connection, message),
            Kind::ImageName | Kind::UniqueImageName => self.image(now, connection, &message),
            Kind::Resuming => self.resuming(now, connection, message.state),
            Kind::StoreRequest => {
                self.set_state(connection, message.state);
                self.store_request(connection, &message);
            }
            Kind::GetDirectory => {
                let mut reply = self.say(Kind::Directory);
                reply.payload = terminated(&self.directory);
                self.send(connection, reply);
            }
            Kind::SetDirectory => {
                let end = message.payload.iter().position(|byte| *byte == 0);
                if let Some(end) = end.filter(|end| (1..=4096).contains(end)) {
                    self.directory = String::from_utf8_lossy(&message.payload[..end]).into_owned();
                }
            }
            other => {
                let who = self.label(connection);
                self.warn(format!("{who} sent {other:?}, which no worker sends; it is closed"));
                self.drop_connection(now, connection);
            }
        }
    }

    /// The worker of a connection, for what [`Machine::message`] takes from workers alone. Without it, the fault is our own:
    /// it is told, and the step left out.
    fn known<'a>(
        workers: &'a mut BTreeMap<Connection, Worker>,
        connection: Connection,
        step: &'static str,
    ) -> Option<&'a mut Worker> {
        let worker = workers.get_mut(&connection);
        if worker.is_none() {
            tracing::error!("a fault of ckptd's own: asked to {step} without a worker");
            debug_assert!(false, "asked to {step} without a worker");
        }
        worker
    }

    /// Closes a connection of our own accord.
    fn drop_connection(&mut self, now: Time, connection: Connection) {
        self.close(connection);
        self.closed(now, connection);
    }

    fn closed(&mut self, now: Time, connection: Connection) {
        self.store_only.remove(&connection);
        self.blocked.retain(|waiting| *waiting != connection);
        self.held.retain(|(held, ..)| *held != connection);
        // It may have been a command's, or have been dropped already.
        let Some(worker) = self.workers.remove(&connection) else { return };
        self.states[worker.state as usize] -= 1;
        self.virtual_pids.remove(worker.virtual_pid);
        if !self.ending && !self.killing {
            let departure = self.departures.entry(worker.remote).or_insert((now.nanos, 0));
            let before = now.nanos.saturating_sub(departure.0) <= LOST_WITHIN;
            *departure = (now.nanos, if before { departure.1 + 1 } else { 1 });
        }
        self.departed(now, connection, &worker);
        if self.workers.is_empty() {
            let notice = Notice::Ended { group: self.group, asked: self.ending };
            self.actions.push(Action::Notice(notice));
            self.killing = false;
            self.next_checkpoint = None;
            if self.settings.exit_on_last && self.recording.is_none() {
                self.actions.push(Action::Quit);
            }
        }
    }

    /// Nobody there says anything any more, and its connections would never end.
    fn host_lost(&mut self, now: Time, addresses: &[IpAddr]) {
        let lost: Vec<Connection> = self
            .workers
            .iter()
            .filter(|(_, worker)| addresses.contains(&IpAddr::V4(worker.remote)))
            .map(|(connection, _)| *connection)
            .collect();
        let mut peers = lost.len();
        for (address, (when, count)) in &self.departures {
            let recent = now.nanos.saturating_sub(*when) <= LOST_WITHIN;
            if recent && addresses.contains(&IpAddr::V4(*address)) {
                peers += count;
            }
        }
        if peers == 0 {
            return;
        }
        let notice = Notice::HostLost { group: self.group, peers };
        self.actions.push(Action::Notice(notice));
        for connection in lost {
            self.drop_connection(now, connection);
        }
    }

    fn recorded(&mut self, generation: i32, failure: Option<String>) {
        if self.recording != Some(generation) {
            return;
        }
        self.recording = None;
        let status = failure.is_none();
        if let Some(reason) = failure {
            let notice = Notice::Failed { group: self.group, reason };
            self.actions.push(Action::Notice(notice));
        }
        self.answer_blocked(status);
        if self.settings.exit_on_last && self.workers.is_empty() {
            self.actions.push(Action::Quit);
        }
    }

    /// A message of the coordinator.
    fn say(&self, kind: Kind) -> Message {
        Message { from: self.settings.identity, ..Message::new(kind) }
    }

    fn send(&mut self, to: Connection, message: Message) {
        self.actions.push(Action::Send { to: vec![to], message });
    }

    fn close(&mut self, connection: Connection) {
        self.actions.push(Action::Close { connection });
    }

    fn warn(&mut self, text: String) {
        self.actions.push(Action::Notice(Notice::Warning(text)));
    }

    fn label(&self, connection: Connection) -> String {
        self.workers.get(&connection).map_or_else(|| "somebody".to_owned(), Worker::label)
    }

    fn set_state(&mut self, connection: Connection, state: WorkerState) {
        if let Some(worker) = self.workers.get_mut(&connection) {
            self.states[worker.state as usize] -= 1;
            worker.state = state;
            self.states[state as usize] += 1;
        }
    }

    /// Whether all processes run, and none is at a checkpoint, being launched or restarted.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.workers.is_empty()
            && self.round.is_free()
            && self.states[WorkerState::Running as usize] == self.workers.len()
    }
}

fn terminated(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| *byte != 0).chain([0]).collect()
}

/// A name from outside, short enough to be kept.
fn label(text: &str) -> &str {
    protocol::text::cut(text, MAX_LABEL)
}
