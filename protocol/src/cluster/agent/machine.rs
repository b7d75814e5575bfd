//! What a machine is, how it is, and what it has.

use super::orders::JobUser;
use crate::agent::{CheckpointNumber, ExitKind, InstanceId};
use crate::cluster::{InstanceKey, NodeName};
use crate::room::Room;
use crate::transport::Fingerprint;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Users whose accounts an agent tells, at most; of more it is asked when a job is started.
pub const MOST_ACCOUNTS: usize = 1024;

/// Whose jobs an agent runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Takes {
    /// Those of everybody; of users that the machine does not know it says so when it is asked to run one.
    #[default]
    Everybody,
    /// Those of users of these names.
    Users(BTreeSet<String>),
}

/// Of a machine that encrypts what jobs send to other machines which do so, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTraffic {
    /// The port at which its agent expects connections of jobs that are made again. Only what came encrypted reaches it.
    pub port: u16,
}

/// What a machine offers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeProfile {
    /// Where its agent listens: for other agents (TLS), and for connections of jobs that are made again.
    pub address: SocketAddr,
    /// All addresses by which others may know it, but those of the loopback and of single links.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Processes of jobs that it takes.
    pub slots: u32,
    /// Whether it takes them only in the place of a machine that is gone. Until then it holds copies of images.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spare: bool,
    /// CPUs that this agent may use, part of one counted as a whole.
    pub cores: u32,
    /// Cores' worth of time that it gets, which a quota may make less than a whole one; None: `cores`.
    #[serde(default)]
    pub capacity: Option<f64>,
    /// Relative speed of one core, 1.0 a common one; None: not measured.
    pub speed: Option<f64>,
    /// Of each core while all are at work; None: the same.
    #[serde(default)]
    pub speed_all: Option<f64>,
    /// Whether `--speed` said so.
    #[serde(default)]
    pub speed_given: bool,
    /// Architecture as Rust names it.
    pub architecture: String,
    /// Bytes per page.
    pub page_size: u64,
    /// BLAKE3 of the vdso, hexadecimal.
    pub vdso: String,
    /// Features of the CPU.
    #[serde(default)]
    pub features: Vec<String>,
    /// One past the highest address at which a process can have memory; 0: not told.
    #[serde(default)]
    pub memory_top: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// The account under which its agent runs; None: not told.
    #[serde(default)]
    pub owner: Option<JobUser>,
    /// Whose jobs it runs.
    #[serde(default)]
    pub takes: Takes,
    /// Whether jobs may run as root here.
    pub allow_root: bool,
    /// How it encrypts the jobs' traffic; None: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_traffic: Option<JobTraffic>,
    /// When the agent was started, in milliseconds since 1970 UTC: tells one that was started again from
    /// one that has only connected again.
    #[serde(default)]
    pub started_ms: u64,
    /// The version of its ckptd; empty: not told.
    #[serde(default)]
    pub version: String,
}

/// What changes from one heartbeat to the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Vitals {
    /// Load average over one minute.
    pub load: f64,
    /// Bytes of memory available.
    pub available_memory: u64,
    /// Charge in percent, where there is a battery.
    pub battery: Option<u8>,
    /// Whether it is being charged, or full and plugged in.
    #[serde(default)]
    pub charging: Option<bool>,
    /// A new measurement of the speed of one core.
    pub speed: Option<f64>,
    /// Cores' worth of time that the node has for jobs now.
    #[serde(default)]
    pub capacity: Option<f64>,
    /// Whether `capacity` is what the processes of jobs have really got.
    #[serde(default)]
    pub achieved: bool,
    /// What its clock on the wall shows, in milliseconds since 1970 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// On the disk where it keeps images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<Room>,
}

/// An instance that an agent holds when it connects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldInstance {
    /// The instance, with its job and epoch.
    pub key: InstanceKey,
    /// Whether this agent has taken it over from one that died, relays and bytes under way being lost
    /// with that one.
    pub adopted: bool,
    /// Whether it stands still, because the lease had run out.
    pub held: bool,
    /// How the job's first process ended, if it was here and has.
    pub ended: Option<ExitKind>,
    /// Whether its last output, and after that the word of its end, are still to come.
    #[serde(default)]
    pub flushes: bool,
}

/// Images on a node's disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// The job.
    pub job: String,
    /// The instance whose image it is.
    pub instance: InstanceId,
    /// The checkpoints whose index and packs are all there.
    pub checkpoints: Vec<CheckpointNumber>,
}

/// A member as the others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The node's name in the cluster.
    pub name: NodeName,
    /// Where its agent listens for other agents.
    pub address: SocketAddr,
    /// The one key by which it is that member.
    #[serde(default)]
    pub key: Fingerprint,
    /// How it encrypts the jobs' traffic; None: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_traffic: Option<JobTraffic>,
    /// All addresses by which others may know it; empty: that one alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
}
