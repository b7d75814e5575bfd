//! The agent of one job on this machine: takes commands, reports events. All tracing happens on
//! one operating-system thread, since ptrace(2) and PR_SET_PDEATHSIG are tied to one.

mod addresses;
mod cluster;
mod instance;
mod job;
mod memory_watch;
mod note;
mod previous;
mod rehearsal;
mod reports;
pub(crate) mod temporary;
mod worker;
mod writer;

pub use rehearsal::{InstanceRehearsal, Rehearsed, rehearse, rehearse_instance};

pub use cluster::{Adopted, InstanceEvent, Launched, RestoreOrder, Restored};

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use protocol::agent::{AgentCommand, AgentEvent};
use protocol::cluster::InstanceKey;
use protocol::cluster::addresses::AddressBook;
use protocol::launch::{Console, LaunchSpec, RestoreSpec};

use crate::EngineError;
use crate::graph::{OuterEnd, RelayEnd};
use crate::job_init::{ChannelError, ClusterOrder, Instruction, Report};
use crate::sys::allocator;

/// Why a job could not be started or restored.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The engine could not.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The job's init says why.
    #[error("{0}")]
    Init(String),
    /// The job's init could not be talked to.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The job's init could not be started.
    #[error("the job's init cannot be started: {0}")]
    Spawn(std::io::Error),
    /// No init answers at a socket.
    #[error("the job's init cannot be reached at {path}: {source}")]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Somebody else listens where an init should.
    #[error("the socket {path} is not an init of this user's: user {uid} listens there")]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// Who listens.
        uid: u32,
    },
    /// What was asked for cannot be done as things stand.
    #[error("the job {0}")]
    OutOfOrder(&'static str),
    /// A second job for one agent.
    #[error("this agent has a job already")]
    Busy,
    /// The agent's thread has ended by a bug of ours.
    #[error("the agent's own thread has ended")]
    Stopped,
}

impl AgentError {
    /// Whether it says nothing about the restart that was to be rehearsed.
    #[must_use]
    pub fn is_not_rehearsable(&self) -> bool {
        matches!(self, Self::Engine(EngineError::NotRehearsable(_)))
    }
}

/// Takes the answer to a request.
type Answer<T> = Sender<Result<T, AgentError>>;

/// What the agent's thread is asked to do.
enum Request {
    Launch(Box<LaunchSpec>, Answer<Console>),
    Restore(RestoreSpec, Answer<Console>),
    LaunchInstance(Box<(LaunchSpec, ClusterOrder)>, Answer<Launched>),
    RestoreInstance(Box<RestoreOrder>, Answer<Restored>),
    Adopt(PathBuf, Option<InstanceKey>, Answer<Adopted>),
    Go(Answer<()>),
    Hold(Answer<u32>),
    Release(Answer<()>),
    Instruct(Instruction),
    Machines(BTreeSet<IpAddr>),
    Book(AddressBook),
    RelayStates(Vec<(RelayEnd, Vec<u8>, bool)>),
    HoldRelays(Vec<(OuterEnd, OwnedFd)>),
    Kill(Sender<()>),
    Command(AgentCommand),
    Written(u64, Box<writer::Outcome>),
    Report(Report),
    Ended(Option<protocol::agent::ExitKind>),
    Quit,
}

/// An agent for one job, or for one instance of it in a cluster.
///
/// Where the last handle to an instance's agent is dropped, its init lives on and waits for another
/// one to take it over.
#[derive(Debug, Clone)]
pub struct Agent {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    requests: Sender<Request>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A thread that has ended has nothing to be told.
        let _ = self.requests.send(Request::Quit);
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Launch(..) | Self::LaunchInstance(..) => "launch",
            Self::Restore(..) | Self::RestoreInstance(..) => "restore",
            Self::Adopt(..) => "adopt",
            Self::Go(_) => "go",
            Self::Hold(_) => "hold",
            Self::Release(_) => "release",
            Self::Instruct(_) => "instruct",
            Self::Machines(_) => "machines",
            Self::Book(_) => "book",
            Self::RelayStates(_) => "relay states",
            Self::HoldRelays(_) => "hold relays",
            Self::Kill(_) => "kill",
            Self::Command(_) => "command",
            Self::Written(..) => "written",
            Self::Report(_) => "report",
            Self::Ended(_) => "ended",
            Self::Quit => "quit",
        })
    }
}

impl Agent {
    /// Starts an agent for the job kept in `job_dir`. `events` is called on the agent's own threads and
    /// must not block.
    ///
    /// # Errors
    /// No threads.
    pub fn start(
        job_dir: PathBuf,
        events: impl Fn(AgentEvent) + Send + Sync + 'static,
    ) -> Result<Self, AgentError> {
        Self::start_for_instance(job_dir, move |event| {
            if let InstanceEvent::Agent(event) = event {
                events(event);
            }
        })
    }

    /// Starts an agent for one instance of a cluster's job, whose images are kept in `instance_dir`.
    /// `events` is called on the agent's own threads and must not block.
    ///
    /// All methods of an instance's agent but [`Agent::command`], [`Agent::lease`] and
    /// [`Agent::close_end`] block, from microseconds to the length of a restore.
    ///
    /// # Errors
    /// No threads.
    pub fn start_for_instance(
        instance_dir: PathBuf,
        events: impl Fn(InstanceEvent) + Send + Sync + 'static,
    ) -> Result<Self, AgentError> {
        allocator::few_arenas();
        let (requests, inbox) = channel();
        let sender = requests.clone();
        std::thread::Builder::new()
            .name("tracer".into())
            .spawn(move || worker::run(instance_dir, &inbox, sender, Box::new(events)))
            .map_err(AgentError::Spawn)?;
        Ok(Self { handle: Arc::new(Handle { requests }) })
    }

    /// Starts the job. Blocks until its first process has been started.
    ///
    /// # Errors
    /// As [`AgentError`] tells; nothing runs then.
    pub fn launch(&self, spec: LaunchSpec) -> Result<Console, AgentError> {
        self.ask(|answer| Request::Launch(Box::new(spec), answer))
    }

    /// Brings the job back. Blocks until its processes run.
    ///
    /// # Errors
    /// As [`AgentError`] tells; nothing runs then.
    pub fn restore(&self, spec: RestoreSpec) -> Result<Console, AgentError> {
        self.ask(|answer| Request::Restore(spec, answer))
    }

    /// Starts an instance of a cluster's job, whose init outlives this program.
    ///
    /// # Errors
    /// As [`AgentError`] tells; nothing runs then.
    pub fn launch_in_cluster(
        &self,
        spec: LaunchSpec,
        order: ClusterOrder,
    ) -> Result<Launched, AgentError> {
        self.ask(|answer| Request::LaunchInstance(Box::new((spec, order)), answer))
    }

    /// Brings an instance, or a part of it, back. With [`ClusterOrder::hold`] it is complete when this
    /// returns, and stands still until [`Agent::go`].
    ///
    /// # Errors
    /// As [`AgentError`] tells; nothing runs then.
    pub fn restore_in_cluster(&self, order: RestoreOrder) -> Result<Restored, AgentError> {
        self.ask(|answer| Request::RestoreInstance(Box::new(order), answer))
    }

    /// Takes an instance over from its init, at the socket that [`ClusterOrder::socket`] named. Where
    /// `identity` is given, one of another identity is left alone.
    ///
    /// # Errors
    /// [`AgentError::Unreachable`]: no init lives there any more. [`AgentError::Foreign`].
    pub fn adopt(
        &self,
        socket: &Path,
        identity: Option<InstanceKey>,
    ) -> Result<Adopted, AgentError> {
        self.ask(|answer| Request::Adopt(socket.to_owned(), identity, answer))
    }

    /// Lets an instance run that its init holds: after a restore with [`ClusterOrder::hold`], or after
    /// its lease had run out.
    ///
    /// # Errors
    /// The init has ended.
    pub fn go(&self) -> Result<(), AgentError> {
        self.ask(Request::Go)
    }

    /// Stops all threads of the instance until [`Agent::release`], without a checkpoint; one in flight is
    /// given up ([`AgentEvent::Failed`]). The number of processes stopped.
    ///
    /// # Errors
    /// A process that does not stop; everything runs then.
    pub fn hold(&self) -> Result<u32, AgentError> {
        self.ask(Request::Hold)
    }

    /// Lets go what [`Agent::hold`] stopped.
    ///
    /// # Errors
    /// There is no instance.
    pub fn release(&self) -> Result<(), AgentError> {
        self.ask(Request::Release)
    }

    /// Says how long the instance may run without an agent: until this CLOCK_BOOTTIME, ns.
    pub fn lease(&self, until_ns: u64) {
        self.instruct(Instruction::Lease { until_ns });
    }

    /// Lets the job see the end of a stream or relay whose descriptor has been closed here: the init
    /// closes the copy that it keeps for the next agent.
    pub fn close_end(&self, end: OuterEnd) {
        self.instruct(Instruction::Close { end });
    }

    /// Ends every process of the instance without letting one of them run on, and the init. Blocks until
    /// they are gone; nothing is reported afterwards. To be called after
    /// [`AgentEvent::Ended`] or [`InstanceEvent::Empty`], too, once the end is known where
    /// it must be: until then the init keeps it.
    pub fn kill(&self) {
        let (answer, answered) = channel();
        if self.handle.requests.send(Request::Kill(answer)).is_ok() {
            let _ = answered.recv();
        }
    }

    /// Tells what this agent holds of relays, for the checkpoint in flight: bytes that no native object has
    /// taken yet, and whether they are the last. To be called between freeze and quiesce.
    pub fn relay_states(&self, states: Vec<(RelayEnd, Vec<u8>, bool)>) {
        // A thread that has ended has reported the job's end before.
        let _ = self.handle.requests.send(Request::RelayStates(states));
    }

    /// Tells of more relays, of which this agent holds ends that the init knows nothing of: those of a remote
    /// shell within the job, and of the link to one elsewhere. The descriptors tell which objects are meant.
    pub fn hold_relays(&self, ends: Vec<(RelayEnd, OwnedFd)>) {
        let ends = ends.into_iter().map(|(end, fd)| (OuterEnd::Relay(end), fd)).collect();
        // A thread that has ended has reported the job's end before.
        let _ = self.handle.requests.send(Request::HoldRelays(ends));
    }

    /// Tells the addresses of the machines that the job may run on: a connection to one of them is waited
    /// for at a checkpoint as one of the job's own.
    pub fn machines(&self, machines: BTreeSet<IpAddr>) {
        // A thread that has ended has reported the job's end before.
        let _ = self.handle.requests.send(Request::Machines(machines));
    }

    /// Tells what has moved in the job, for connections to come.
    pub fn book(&self, book: AddressBook) {
        // A thread that has ended has reported the job's end before.
        let _ = self.handle.requests.send(Request::Book(book));
    }

    fn instruct(&self, instruction: Instruction) {
        // A thread that has ended has reported the job's end before.
        let _ = self.handle.requests.send(Request::Instruct(instruction));
    }

    fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, AgentError> {
        let (answer, answered) = channel();
        self.handle.requests.send(request(answer)).map_err(|_| AgentError::Stopped)?;
        answered.recv().map_err(|_| AgentError::Stopped)?
    }

    /// Gives a command. Never blocks; the answer is an event.
    pub fn command(&self, command: AgentCommand) {
        // A thread that has ended has reported the job's end before.
        let _ = self.handle.requests.send(Request::Command(command));
    }
}
