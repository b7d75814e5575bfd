//! Images of DMTCP's processes, which agents keep beside those of the native engine: an agent takes the images that DMTCP has
//! written on its machine into its store, from where they are copied, committed and collected like any other
//! ([`ToAgent::Copy`](super::agent::ToAgent::Copy), [`ToAgent::Keep`](super::agent::ToAgent::Keep)).

use super::NodeName;
use super::agent::JobUser;
use crate::agent::{CheckpointNumber, InstanceId};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What the ids of DMTCP's jobs begin with at agents; no job of the cluster's own has such a one, since
/// names of jobs have no dots.
pub const JOB_PREFIX: &str = "dmtcp.";

/// The images of one machine in one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DmtcpImage {
    /// The job, with [`JOB_PREFIX`].
    pub job: String,
    /// Number of the machine in the job.
    pub instance: InstanceId,
    /// The checkpoint.
    pub checkpoint: CheckpointNumber,
}

/// From the coordinator to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DmtcpOrder {
    /// Take these files of this machine into the store.
    TakeIn {
        /// As what.
        image: DmtcpImage,
        /// Which.
        files: Vec<DmtcpPath>,
    },
    /// Restart the processes of an image with `dmtcp_restart`.
    Restart {
        /// The image.
        image: DmtcpImage,
        /// Nodes that hold it.
        holders: Vec<NodeName>,
        /// Where the coordinator's port for DMTCP's programs is.
        host: IpAddr,
        /// The port.
        port: u16,
    },
}

/// A file that a process has named as its image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmtcpPath {
    /// Its path.
    pub path: String,
    /// The user of the process, to whom alone the file may belong; None: nobody knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<JobUser>,
}

/// A file of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmtcpFile {
    /// Its path.
    pub path: String,
    /// Bytes.
    pub bytes: u64,
    /// BLAKE3 of the whole, hexadecimal.
    pub blake3: String,
}

/// An agent's answer: to each order one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DmtcpReport {
    /// The image.
    pub image: DmtcpImage,
    /// What was taken in; none after a restart.
    pub files: Vec<DmtcpFile>,
    /// Why it was not done, in one line; None: it was.
    pub failure: Option<String>,
}
