//! What an agent of a cluster asks of one instance, and what it is told.

use std::os::fd::OwnedFd;

use protocol::agent::{AgentEvent, ExitKind};
use protocol::cluster::InstanceKey;
use protocol::cluster::agent::MovedListener;
use protocol::launch::{Console, RestoreSpec};

use crate::graph::{FileId, OuterEnd, Pid, RelayEnd};
use crate::job_init::ClusterOrder;
use crate::split::PartOrder;

/// What happens to an instance.
#[derive(Debug, Clone, PartialEq)]
pub enum InstanceEvent {
    /// Of a checkpoint, a warning, or the end of it all. [`AgentEvent::Ended`] comes when the first
    /// process of the root instance has ended and nothing else is left, or when the init itself was
    /// killed.
    Agent(AgentEvent),
    /// The first process of an instance that is not the root has ended.
    RootEnded(ExitKind),
    /// No process is left in an instance that is not the root.
    Empty,
    /// All threads stand still, as [`protocol::agent::AgentCommand::Hold`] asked for.
    Held {
        /// Processes that were stopped.
        processes: u32,
    },
    /// It could not be held; it runs.
    NotHeld {
        /// One line.
        reason: String,
    },
    /// What was held goes on.
    Released,
    /// There is one more listening socket of which others must know: all of them.
    Listens(Vec<MovedListener>),
}

impl From<AgentEvent> for InstanceEvent {
    fn from(event: AgentEvent) -> Self {
        Self::Agent(event)
    }
}

/// An instance that was started.
#[derive(Debug)]
pub struct Launched {
    /// Its streams.
    pub console: Console,
    /// With [`ClusterOrder::shell`]: its streams, as sides of relays.
    pub outer: Vec<(OuterEnd, OwnedFd)>,
    /// Its init, as this machine numbers it.
    pub init: i32,
    /// Its first process, as its logical node numbers it.
    pub root: Pid,
}

/// What is to be restored.
#[derive(Debug)]
pub struct RestoreOrder {
    /// The folder in which the image lies, as in a job's folder; `None`: the agent's own.
    pub image_dir: Option<std::path::PathBuf>,
    /// Which checkpoint, and how.
    pub spec: RestoreSpec,
    /// The part of it; `None`: all.
    pub part: Option<PartOrder>,
    /// Where and as what.
    pub cluster: ClusterOrder,
    /// Connections to other instances, ready made.
    pub connections: Vec<(FileId, OwnedFd)>,
    /// Other ends of those among them whose peers have departed. They come back in [`Restored::outer`].
    pub absent: Vec<(RelayEnd, OwnedFd)>,
}

/// An instance that is complete. With [`ClusterOrder::hold`] it stands still until
/// [`super::Agent::go`].
#[derive(Debug)]
pub struct Restored {
    /// Its streams, where its first process's are in this part.
    pub console: Console,
    /// The agent's ends of relays.
    pub outer: Vec<(OuterEnd, OwnedFd)>,
    /// Its init, as this machine numbers it.
    pub init: i32,
    /// Its first process, if it is in this part.
    pub root: Option<Pid>,
    /// The job's listening TCP sockets.
    pub moved: Vec<MovedListener>,
    /// Lines for the user.
    pub warnings: Vec<String>,
}

/// An instance taken over from an agent that has gone.
#[derive(Debug)]
pub struct Adopted {
    /// Which instance it is.
    pub identity: InstanceKey,
    /// Its streams. Those closed before are missing.
    pub console: Console,
    /// The agent's ends of relays. Bytes that the agent before had read of them are lost.
    pub outer: Vec<(OuterEnd, OwnedFd)>,
    /// Its init, as this machine numbers it.
    pub init: i32,
    /// Its first process, if it is here and lives.
    pub root: Option<Pid>,
    /// Whether it stands still until [`super::Agent::go`].
    pub held: bool,
    /// Whether the agent before died with its hands in the job: bytes under way may be lost, and
    /// processes may have been killed with it. It must be rolled back, whatever `ended` says.
    pub touched: bool,
    /// How its first process ended, if it has.
    pub ended: Option<ExitKind>,
    /// Whether no process is left.
    pub empty: bool,
    /// Listening sockets that others must know of.
    pub listeners: Vec<MovedListener>,
    /// Lines for the user.
    pub warnings: Vec<String>,
}
