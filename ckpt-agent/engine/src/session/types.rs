//! What a session is asked for, and what it gives.

use std::os::fd::OwnedFd;

use protocol::agent::ExitKind;
use protocol::cluster::InstanceKey;
use protocol::cluster::agent::MovedListener;
use protocol::launch::{Console, RestoreSpec};

use crate::graph::{FileId, OuterEnd, Pid, RelayEnd};
use crate::job_init::InstanceOrder;
use crate::split::PartOrder;

/// What is to be restored.
#[derive(Debug)]
pub struct RestoreOrder {
    /// The folder in which the image lies, as in a job's folder; `None`: the session's own.
    pub image_dir: Option<std::path::PathBuf>,
    /// Which checkpoint, and how.
    pub spec: RestoreSpec,
    /// The part of it; `None`: all.
    pub part: Option<PartOrder>,
    /// As what; `None`: as a job that ends with this process.
    pub instance: Option<InstanceOrder>,
    /// Connections to other instances, ready made.
    pub connections: Vec<(FileId, OwnedFd)>,
    /// Other ends of those among them whose peers have departed. They come back in [`Started::outer`].
    pub absent: Vec<(RelayEnd, OwnedFd)>,
}

impl RestoreOrder {
    /// Of a job that is alone on this machine.
    #[must_use]
    pub fn alone(spec: RestoreSpec) -> Self {
        Self {
            image_dir: None,
            spec,
            part: None,
            instance: None,
            connections: Vec::new(),
            absent: Vec::new(),
        }
    }
}

/// A job or instance that is there. Restored with [`InstanceOrder::hold`], it stands still until [`super::Session::go`].
#[derive(Debug, Default)]
pub struct Started {
    /// Its init, as this machine numbers it.
    pub init: i32,
    /// Its first process, as its logical node numbers it; `None`: it is in another part, or has ended.
    pub root: Option<Pid>,
    /// Its streams, where its first process's are here; of one taken over, those that have not been closed.
    pub console: Console,
    /// This process's ends of relays. With [`InstanceOrder::shell`] the streams are among them.
    pub outer: Vec<(OuterEnd, OwnedFd)>,
    /// Listening TCP sockets that others must know of.
    pub moved: Vec<MovedListener>,
    /// Lines for the user. Those of a job that is alone are events instead.
    pub warnings: Vec<String>,
}

/// An instance taken over from a session that has gone. Bytes that it had read of [`Started::outer`] are lost.
#[derive(Debug)]
pub struct TakenOver {
    /// Which instance it is.
    pub identity: InstanceKey,
    /// What is there of it.
    pub started: Started,
    /// Whether it stands still until [`super::Session::go`].
    pub held: bool,
    /// The end of the lease that the session before had, on CLOCK_BOOTTIME, ns; 0: unknown.
    pub lease_until_ns: u64,
    /// Whether the session before died while it changed things within the job: bytes under way may be lost, and
    /// processes may have been killed with it. It must be rolled back, whatever `ended` says.
    pub touched: bool,
    /// How its first process ended, if it has.
    pub ended: Option<ExitKind>,
    /// Whether no process is left.
    pub empty: bool,
}
