//! The conversations of a cluster. Over TLS: coordinator and agent ([`agent`]), agent and agent
//! ([`peer`], [`tree`]), a coordinator that carries on for a lost one and agent ([`succession`]). Over a local Unix socket: a command and the cluster, through the local agent or
//! the coordinator itself ([`client`]).

pub mod addresses;
pub mod agent;
pub mod audit;
pub mod baseline;
pub mod client;
pub mod dmtcp;
pub mod grant;
pub mod group;
pub mod image;
pub mod image_key;
pub mod job_event;
pub mod login;
pub mod look;
pub mod name;
pub mod peer;
pub mod portable;
pub mod powers;
pub mod rehearsal;
pub mod replica;
pub mod settings;
pub mod succession;
pub mod tree;
mod versions;

use crate::agent::InstanceId;
use serde::{Deserialize, Serialize};

pub use name::{NameError, NodeName, host_label};
pub use versions::{VERSIONS, Versions};

/// Grows by one at each rollback or restart of a job. Everything that carries a lower one than the
/// job's own is refused.
pub type Epoch = u64;

/// Grows by one whenever another coordinator carries on for a lost one; the first has 1. Agents follow
/// the highest that they have heard of, and no lower one any more.
pub type Term = u64;

/// One instance of a logical node, on one machine, in one epoch of a job. The number is never used
/// twice in a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceKey {
    /// The job's id.
    pub job: String,
    /// The epoch in which it was made.
    pub epoch: Epoch,
    /// Its number.
    pub instance: InstanceId,
}

impl std::fmt::Display for InstanceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} (epoch {})", self.job, self.instance.0, self.epoch)
    }
}
