//! The hand that this agent has on one instance. Behind an interface, so that everything above it is
//! tested without processes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ckpt_node::{BootTime, End, InstanceEvent, RelayState};
use protocol::agent::{AgentCommand, CheckpointNumber, ExitKind};
use protocol::cluster::InstanceKey;
use protocol::cluster::addresses::AddressBook;
use protocol::cluster::agent::{MovedListener, RelaySide};
use protocol::launch::{Console, External, LaunchSpec, WindowSize};

use ckpt_engine::late::Watch;

/// How an instance is set up, whether launched or restored.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Which it is.
    pub key: InstanceKey,
    /// Its host name.
    pub host_name: String,
    /// Content of /etc/hosts inside.
    pub hosts: String,
    /// Where its init listens for the next agent.
    pub socket: PathBuf,
    /// Until when it may run without an agent.
    pub lease_until: BootTime,
    /// Whether the end of its first process is the job's end.
    pub is_root: bool,
    /// What is done about connections to outside.
    pub external: External,
    /// The user that it runs as; None: this agent's own.
    pub user: Option<User>,
    /// For one to be launched by a remote shell: the relay of the shell's link.
    pub shell: Option<String>,
    /// For late connections; None: they are left alone.
    pub watch: Option<Watch>,
    /// Other parts of its logical node are on this machine as well.
    pub crowded: bool,
}

/// A process of an instance that stands for a program on another node.
#[derive(Debug)]
pub struct RemoteShell {
    /// The relay of its link.
    pub relay: String,
    /// Its number in the job.
    pub pid: i32,
    /// Its parent's.
    pub parent: i32,
    /// The agent's end of the link.
    pub link: OwnedFd,
    /// Its standard streams.
    pub streams: [OwnedFd; 3],
}

/// A user, as this machine numbers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Number.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Home directory.
    pub home: PathBuf,
    /// Login shell.
    pub shell: PathBuf,
}

/// What is to be restored.
#[derive(Debug)]
pub struct RestoreSetup {
    /// As what.
    pub setup: Setup,
    /// The folder with the image.
    pub image: PathBuf,
    /// The checkpoint.
    pub checkpoint: CheckpointNumber,
    /// Go on although files have changed.
    pub force: bool,
    /// Size of its terminal.
    pub window: Option<WindowSize>,
    /// The part of each process.
    pub assignment: BTreeMap<i32, u32>,
    /// The part that is meant.
    pub part: u32,
    /// What new relays are named after.
    pub origin: String,
    /// Connections to other instances, by the open file that each is to be.
    pub connections: Vec<(u32, OwnedFd)>,
    /// Other ends of those among them whose peers have departed. They come back in [`Started::absent`].
    pub absent: Vec<(u32, OwnedFd)>,
}

/// An instance that is there.
#[derive(Debug, Default)]
pub struct Started {
    /// Its streams.
    pub console: Console,
    /// The agent's ends of relays.
    pub relays: Vec<RelayEnd>,
    /// Those of them out of which comes what processes have written to a pipe or terminal.
    pub outputs: Vec<RelaySide>,
    /// Relays that bring output of the job to its console, which this instance has, and what an image
    /// held of it.
    pub sinks: Vec<(RelaySide, RelayState)>,
    /// Other ends of connections whose peers have departed, by the open file.
    pub absent: Vec<(u32, OwnedFd)>,
    /// Where its first process was started by a remote shell, and lives: for the shell, messages as stand-ins
    /// send them. The relay's native end is among `relays`.
    pub shell_link: Option<OwnedFd>,
    /// Its init, as this machine numbers it.
    pub init: i32,
    /// Its first process, if it is here.
    pub root: Option<i32>,
    /// Its listening TCP sockets.
    pub moved: Vec<MovedListener>,
    /// Lines for the user.
    pub warnings: Vec<String>,
}

/// An agent's end of a relay.
#[derive(Debug)]
pub struct RelayEnd {
    /// Which.
    pub side: RelaySide,
    /// What it is.
    pub kind: RelayEndKind,
    /// It.
    pub native: OwnedFd,
    /// Whether the job has the same open file description.
    pub shared: bool,
    /// Whether the end of a process that comes this way waits for [`super::relay::Order::Open`].
    pub gated: bool,
    /// What was on its way to the native object at the checkpoint, and whether nothing more follows.
    pub prefix: RelayState,
}

/// What an agent holds of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayEndKind {
    /// The read end of a pipe.
    PipeRead,
    /// The write end of a pipe.
    PipeWrite,
    /// One side of a terminal.
    Terminal,
    /// A socket that carries a stream.
    Stream,
    /// A socket that keeps the bounds of messages.
    Messages,
}

/// An instance found alive.
#[derive(Debug)]
pub struct Adopted {
    /// It.
    pub started: Started,
    /// Which it is.
    pub key: InstanceKey,
    /// Whether it stands still.
    pub held: bool,
    /// How its first process ended, if it has.
    pub ended: Option<ExitKind>,
    /// Whether no process is left.
    pub empty: bool,
    /// Whether it cannot go on as it is.
    pub touched: bool,
}

/// One instance. All methods but `command`, `lease`, `close_end`, `machines`, `book`, `relay_states`,
/// `remote_shell` and `output` may block.
/// Errors are one line each.
pub trait Control: Send + Sync {
    /// Starts a program.
    fn launch(&self, spec: LaunchSpec, setup: Setup) -> Result<Started, String>;
    /// Brings an image back, up to the last step.
    fn restore(&self, order: RestoreSetup) -> Result<Started, String>;
    /// Takes over one that lives.
    fn adopt(&self, socket: &Path) -> Result<Adopted, String>;
    /// Lets a restored one run, or one whose init holds it.
    fn go(&self) -> Result<(), String>;
    /// Stops all threads.
    fn hold(&self) -> Result<(), String>;
    /// Lets go what [`Control::hold`] stopped.
    fn release(&self) -> Result<(), String>;
    /// Ends every process, none of which runs on. Returns when they are gone.
    fn kill(&self);
    /// Extends the lease.
    fn lease(&self, until: BootTime);
    /// A step of a checkpoint, or a signal.
    fn command(&self, command: AgentCommand);
    /// Addresses of the machines that the job may run on, for the checkpoints to come.
    fn machines(&self, machines: BTreeSet<IpAddr>);
    /// What has moved in the job.
    fn book(&self, book: AddressBook);
    /// What relays hold, for the checkpoint in flight.
    fn relay_states(&self, states: Vec<(RelaySide, RelayState)>);
    /// One of its processes is a remote shell from now on. The descriptors are copies.
    fn remote_shell(&self, shell: RemoteShell);
    /// Output of the job comes over this relay from now on; the descriptor is a copy of the end into which
    /// it is written.
    fn output(&self, side: RelaySide, copy: OwnedFd);
    /// The agent has closed an end; the job is to see it.
    fn close_end(&self, end: End);
}

/// Takes an instance's events; must not block.
pub type ControlEvents = Box<dyn Fn(InstanceEvent) + Send + Sync>;

/// Makes the hand on an instance whose images are kept in that folder.
pub type StartControl =
    Arc<dyn Fn(PathBuf, ControlEvents) -> Result<Arc<dyn Control>, String> + Send + Sync>;
