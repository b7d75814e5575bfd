//! A session: one job, or one instance of a cluster's job, on this machine, from its start to its end.
//!
//! ```text
//! launch | restore | take over | adopt -> Freeze -> Quiesce -> Snapshot -> Resume -> Write -> Commit -> ... -> the end, or kill
//! ```
//!
//! A [`Session`] begins with [`Session::launch`], [`Session::restore`], [`Session::take_over`] or [`Session::adopt`]. The steps of a checkpoint
//! are commands ([`Session::command`]); their answers, and what happens by itself, are events. All tracing happens on
//! one operating-system thread of the session, since ptrace(2) and PR_SET_PDEATHSIG are tied to one.

mod addresses;

mod filling;
mod folders;
mod instance;
mod job;
mod memory_watch;
mod note;
mod pace;
mod previous;
mod rehearsal;
mod reports;
mod streams;
mod taking_over;
pub(crate) mod temporary;
mod tracer;
mod types;
mod writer;

pub use job::{Adoptable, try_to_adopt};
pub use previous::living_stranger;
pub use rehearsal::{InstanceRehearsal, Rehearsed, rehearse, rehearse_instance};
pub use types::{RestoreOrder, Started, TakenOver};

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use protocol::agent::{AgentCommand, InstanceEvent};
use protocol::cluster::InstanceKey;
use protocol::cluster::addresses::AddressMap;
use protocol::launch::{AdoptSpec, LaunchSpec};

use self::tracer::Tracer;
use crate::EngineError;
use crate::graph::{OuterEnd, RelayEnd};
use crate::job_init::{ChannelError, InstanceOrder, Instruction};
use crate::sys::allocator;

/// Why a job could not be started, restored or taken over.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
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
    /// A job that was adopted lives.
    #[error("the job still runs: process {0}, which was adopted, has not ended; end it before")]
    Adopted(i32),
    /// A second job for one session.
    #[error("this session has a job already")]
    Busy,
    /// The session's thread has ended by a bug of ours.
    #[error("the tracing thread has ended")]
    Stopped,
}

impl SessionError {
    /// Whether it says nothing about the restart that was to be rehearsed.
    #[must_use]
    pub fn is_not_rehearsable(&self) -> bool {
        matches!(self, Self::Engine(EngineError::NotRehearsable(_)))
    }
}

/// Takes the answer to a request.
type Answer<T> = Sender<Result<T, SessionError>>;

/// Work for the session's thread.
type Request = Box<dyn FnOnce(&mut Tracer) + Send>;

/// The way to the session's thread, which does one request after the other.
#[derive(Clone)]
struct Requests(Sender<Request>);

impl Requests {
    /// Whether the thread takes it. One that has ended has reported the job's end before.
    fn send(&self, request: impl FnOnce(&mut Tracer) + Send + 'static) -> bool {
        self.0.send(Box::new(request)).is_ok()
    }
}

/// A session with one job, or with one instance of it in a cluster.
///
/// When the last handle to it is dropped, a job alone is traced until its end; the init of an instance lives on and
/// waits for another session to take it over.
#[derive(Clone)]
pub struct Session {
    handle: Arc<Handle>,
}

struct Handle(Requests);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.send(Tracer::quit);
    }
}

impl Session {
    /// Begins a session whose images are kept in `job_dir`. `events` is called on the session's own threads and must
    /// not block.
    ///
    /// All methods but [`Session::command`], [`Session::lease`], [`Session::close_end`] and those that tell something
    /// block, from microseconds to the length of a restore.
    ///
    /// # Errors
    /// No threads.
    pub fn start(
        job_dir: PathBuf,
        events: impl Fn(InstanceEvent) + Send + Sync + 'static,
    ) -> Result<Self, SessionError> {
        allocator::few_arenas();
        let (sender, inbox) = channel();
        let requests = Requests(sender);
        let own = requests.clone();
        std::thread::Builder::new()
            .name("tracer".into())
            .spawn(move || Tracer::new(job_dir, own, Arc::new(events)).serve(&inbox))
            .map_err(SessionError::Spawn)?;
        Ok(Self { handle: Arc::new(Handle(requests)) })
    }

    /// Starts a program: as an instance whose init outlives this session, or, without an order for one, as a job that
    /// ends with this process. Blocks until its first process has been started.
    ///
    /// # Errors
    /// As [`SessionError`] tells; nothing runs then.
    pub fn launch(
        &self,
        spec: LaunchSpec,
        instance: Option<InstanceOrder>,
    ) -> Result<Started, SessionError> {
        self.ask(|tracer| tracer.launch(spec, instance))
    }

    /// Brings a job back, or an instance, or a part of one. Blocks until its processes run; with
    /// [`InstanceOrder::hold`] it is complete when this returns, and stands still until [`Session::go`].
    ///
    /// # Errors
    /// As [`SessionError`] tells; nothing runs then.
    pub fn restore(&self, order: RestoreOrder) -> Result<Started, SessionError> {
        self.ask(|tracer| tracer.restore(order))
    }

    /// Makes a job of a process that ckptd has not started, and of all that descend from it. They live on when this
    /// session ends.
    ///
    /// # Errors
    /// A refusal, where they can't be; they run on.
    pub fn adopt(&self, spec: AdoptSpec) -> Result<(), SessionError> {
        self.ask(|tracer| tracer.adopt(spec))
    }

    /// Leaves an adopted job as it is. Blocks until nothing of it stands still any more, after which this process may
    /// end.
    pub fn let_go(&self) {
        // A thread that has ended traces nothing.
        let _ = self.ask(|tracer| {
            tracer.let_go();
            Ok(())
        });
    }

    /// How many processes of an adopted job live whose first one has ended; they are ended if `kill` says so.
    #[must_use]
    pub fn rest(&self, kill: bool) -> usize {
        self.ask(move |tracer| Ok(tracer.rest(kill))).unwrap_or(0)
    }

    /// Takes an instance over from its init, at the socket that [`InstanceOrder::socket`] named. Where
    /// `identity` is given, one of another identity is left alone.
    ///
    /// # Errors
    /// [`SessionError::Unreachable`]: no init lives there any more. [`SessionError::Foreign`].
    pub fn take_over(
        &self,
        socket: &Path,
        identity: Option<InstanceKey>,
    ) -> Result<TakenOver, SessionError> {
        let socket = socket.to_owned();
        self.ask(move |tracer| tracer.take_over(&socket, identity.as_ref()))
    }

    /// Lets an instance run that its init holds: after a restore with [`InstanceOrder::hold`], or after
    /// its lease had run out.
    ///
    /// # Errors
    /// The init has ended.
    pub fn go(&self) -> Result<(), SessionError> {
        let (answer, answered) = channel();
        self.tell(move |tracer| tracer.go(answer));
        answered.recv().map_err(|_| SessionError::Stopped)?
    }

    /// Stops all threads of the instance until [`Session::release`], without a checkpoint; one in flight is
    /// given up ([`protocol::agent::AgentEvent::Failed`]). The number of processes stopped.
    ///
    /// # Errors
    /// A process that does not stop; everything runs then.
    pub fn hold(&self) -> Result<u32, SessionError> {
        self.ask(|tracer| Ok(tracer.hold()?))
    }

    /// Lets go what [`Session::hold`] stopped.
    ///
    /// # Errors
    /// There is no instance.
    pub fn release(&self) -> Result<(), SessionError> {
        self.ask(|tracer| Ok(tracer.release()?))
    }

    /// As [`Session::hold`], without waiting: `failed` is called where that fails, on the session's thread. What is told
    /// after it is done after it.
    pub fn tell_hold(&self, failed: impl FnOnce(&SessionError) + Send + 'static) {
        self.tell(move |tracer| {
            if let Err(error) = tracer.hold() {
                failed(&error.into());
            }
        });
    }

    /// As [`Session::release`], likewise.
    pub fn tell_release(&self, failed: impl FnOnce(&SessionError) + Send + 'static) {
        self.tell(move |tracer| {
            if let Err(error) = tracer.release() {
                failed(&error.into());
            }
        });
    }

    /// Ends every process of the instance without letting one of them run on, and the init. Blocks until
    /// they are gone; nothing is reported afterwards. To be called after
    /// [`protocol::agent::AgentEvent::Ended`] or [`InstanceEvent::Empty`], too, once the end is known where
    /// it must be: until then the init keeps it.
    pub fn kill(&self) {
        // A thread that has ended has nothing left to be killed.
        let _ = self.ask(|tracer| {
            tracer.kill();
            Ok(())
        });
    }

    /// Gives a command. Never blocks; the answer is an event.
    pub fn command(&self, command: AgentCommand) {
        self.tell(move |tracer| tracer.command(command));
    }

    /// Says how long the instance may run without a session: until this CLOCK_BOOTTIME, ns.
    pub fn lease(&self, until_ns: u64) {
        self.tell(move |tracer| tracer.instruct(&Instruction::Lease { until_ns }));
    }

    /// Lets the job see the end of a stream or relay whose descriptor has been closed here: the init
    /// closes the copy that it keeps for the next session.
    pub fn close_end(&self, end: OuterEnd) {
        self.tell(move |tracer| tracer.close_end(&end));
    }

    /// Tells what is held of relays, for the checkpoint in flight: bytes that no native object has
    /// taken yet, and whether they are the last. To be called between freeze and quiesce.
    pub fn relay_states(&self, states: Vec<(RelayEnd, Vec<u8>, bool)>) {
        self.tell(move |tracer| tracer.relay_states = states);
    }

    /// Tells of more relays, of which this process holds ends that the init knows nothing of: those of a remote
    /// shell within the job, and of the link to one elsewhere. The descriptors tell which objects are meant.
    pub fn hold_relays(&self, ends: Vec<(RelayEnd, OwnedFd)>) {
        let ends: Vec<_> = ends.into_iter().map(|(end, fd)| (OuterEnd::Relay(end), fd)).collect();
        self.tell(move |tracer| tracer.hold_relays(&ends));
    }

    /// Tells the addresses of the machines that the job may run on: a connection to one of them is waited
    /// for at a checkpoint as one of the job's own.
    pub fn machines(&self, machines: BTreeSet<IpAddr>) {
        self.tell(move |tracer| tracer.machines = machines);
    }

    /// Tells what has moved in the job, for connections to come.
    pub fn addresses(&self, addresses: AddressMap) {
        self.tell(move |tracer| tracer.set_addresses(addresses));
    }

    fn tell(&self, request: impl FnOnce(&mut Tracer) + Send + 'static) {
        self.handle.0.send(request);
    }

    fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Tracer) -> Result<T, SessionError> + Send + 'static,
    ) -> Result<T, SessionError> {
        let (answer, answered) = channel();
        self.tell(move |tracer| {
            // Whoever asked may have gone.
            let _ = answer.send(request(tracer));
        });
        answered.recv().map_err(|_| SessionError::Stopped)?
    }
}
