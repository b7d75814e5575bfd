//! How instances are to be made, and why one could not be.

use crate::agent::{CheckpointNumber, InstanceId};
use crate::cluster::addresses::AddressMap;
use crate::cluster::baseline::Baseline;
use crate::cluster::{InstanceKey, NodeName};
use crate::compact::Shared;
use crate::database::users::name_of;
use crate::launch::{External, LaunchSpec, WindowSize};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A user by whose order a job runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUser {
    /// Number on the machine where the order was given.
    pub uid: u32,
    /// Name there: on other machines the user of the same name counts.
    pub name: String,
}

impl JobUser {
    /// A user of this machine, which may have to ask a directory service for the name: not for a thread that others
    /// wait for.
    #[must_use]
    pub fn of(uid: u32) -> Self {
        Self { uid, name: name_of(uid) }
    }
}

/// Settings of a job that its agents need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceSettings {
    /// What is done about connections to outside.
    pub external: External,
    /// Places in which an image is to be durable, the agent's own disk included.
    pub copies: u32,
    /// Whether calls of bind, connect, listen and their like are answered as if nothing had moved.
    #[serde(default)]
    pub rewire_connect: bool,
    /// Whether the daemons of a lost node are left out: then nobody is kept with them who may yet need them.
    #[serde(default)]
    pub fallback: bool,
    /// What the C library is held to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_baseline: Option<Baseline>,
}

/// An instance to be started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchOrder {
    /// Its key.
    pub key: InstanceKey,
    /// Its logical node: the host name inside.
    pub logical_node: NodeName,
    /// Content of /etc/hosts inside.
    pub hosts: Shared<String>,
    /// What to start.
    pub launch: LaunchSpec,
    /// The one whose end is the job's end.
    pub is_root: bool,
    /// For whom.
    pub user: JobUser,
    /// Settings.
    pub settings: InstanceSettings,
    /// Nodes that get a copy of every image, in order of preference.
    pub partners: Vec<NodeName>,
    /// For one started by a remote shell: which call of which instance.
    pub shell: Option<ShellCall>,
    /// What has moved in the job.
    #[serde(default)]
    #[serde(rename = "book")]
    pub addresses: AddressMap,
}

/// A call of `ckptd rsh`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellCall {
    /// The caller's instance.
    pub caller: InstanceKey,
    /// The caller's node.
    pub node: NodeName,
    /// Number given by the caller's agent, unique in the job's life for that instance.
    pub call: u64,
}

/// The part that processes are assigned to which are not brought back anywhere: daemons that have
/// departed with their machine.
pub const DEPARTED: u32 = u32::MAX;

/// An instance to be made ready for a restore.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrepareOrder {
    /// The new instance.
    pub key: InstanceKey,
    /// The instance whose image it comes from.
    pub image: InstanceId,
    /// The checkpoint.
    pub checkpoint: CheckpointNumber,
    /// Nodes that hold that image.
    pub holders: Vec<NodeName>,
    /// [`crate::cluster::image::ImageFacts::digest`] of that image, as it was committed.
    #[serde(default)]
    pub digest: String,
    /// All processes of the image and the part that each belongs to; [`DEPARTED`]: to none.
    pub assignment: BTreeMap<i32, u32>,
    /// The part that this instance is.
    pub part: u32,
    /// Its logical node.
    pub logical_node: NodeName,
    /// Content of /etc/hosts inside.
    pub hosts: Shared<String>,
    /// The one whose end is the job's end.
    pub is_root: bool,
    /// For whom.
    pub user: JobUser,
    /// Settings.
    pub settings: InstanceSettings,
    /// Nodes that get a copy of every image.
    pub partners: Vec<NodeName>,
    /// Go on although files outside of the image have changed or are missing.
    pub force: bool,
    /// Size of the job's terminal.
    pub window: Option<WindowSize>,
}

/// A copy of an image that is not whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedCopy {
    /// Where it lies.
    pub node: NodeName,
    /// The processes whose memory is damaged in it.
    pub processes: BTreeSet<i32>,
    /// Whether it has other damage, so that nobody can be restored from it.
    pub useless: bool,
    /// The first damage that was found, one line.
    pub reason: String,
}
