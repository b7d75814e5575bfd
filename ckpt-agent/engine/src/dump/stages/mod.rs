//! The stages of a dump, each a type of its own: what needs a quiet job cannot be called on one
//! that is merely frozen. Dropping any of them lets the job go on.

mod checks;
mod children;
mod copies;
mod frozen;
mod ipc;
mod notifications;
mod quiesced;
mod read;
mod sharers;
mod snapshot;

pub(super) use frozen::is_not_inherited;
pub use frozen::{Frozen, freeze_job};
pub use quiesced::Quiesced;
pub use snapshot::{ProcessDump, Snapshot, SnapshotData};

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use protocol::launch::Kept;

use crate::graph::{Offer, Pid};
use crate::inodes::ahead::Taken;
use crate::inodes::copying::Copying;
use crate::job_init::UserOrder;
use crate::objects::{ConsoleTerminal, External, HeldRelay, Shown, StdioRole};
use crate::proc::Members;
use crate::tracking::Tracking;

/// What a dump is told about the job.
#[derive(Debug)]
pub struct DumpSettings {
    /// The job's init, as this machine numbers it; of processes that ckptd has not started, one in the namespaces from
    /// which they are seen.
    pub init: i32,
    /// The job's processes.
    pub members: Members,
    /// The process whose end is the job's end, as the job numbers it; 0: it is not of this instance.
    pub root: Pid,
    /// Directories whose files travel with the job.
    pub session_directories: Vec<PathBuf>,
    /// What of the file system is the job's.
    pub kept: Kept,
    /// What to do with connections to outside.
    pub external: External,
    /// The user for whom a root agent runs the job; `None`: the agent's own.
    pub user: Option<UserOrder>,
    /// The launcher's ends of standard streams: (device, inode) as handlers see them.
    pub stdio: HashMap<(u64, u64), StdioRole>,
    /// The job's terminal.
    pub terminal: Option<ConsoleTerminal>,
    /// The job has other instances: a connection to outside of this one may lead to one of them.
    pub cluster: bool,
    /// Addresses of the machines that the job runs on; empty: not known.
    pub machines: BTreeSet<IpAddr>,
    /// Relays of which the agent holds a side. Their carriers must not write to their native objects
    /// while the job stands, and must have read what those hold for other instances before
    /// [`Frozen::quiesce`].
    pub relays: Vec<HeldRelay>,
    /// What processors its programs began on, as far as that was at earlier checkpoints.
    pub offers: Vec<Offer>,
    /// How long stopping all threads may take.
    pub freeze_limit: Duration,
    /// Files that the last image has.
    pub seen: Taken,
    /// Empty messages in the queues of Unix sockets that earlier looks have seen.
    pub shown: Shown,
    /// How files and shared memory are copied.
    pub copying: Copying,
    /// What is known of pages that were not written since earlier checkpoints.
    pub tracking: Tracking,
    /// The checkpoint that is taken.
    pub checkpoint: u64,
}
