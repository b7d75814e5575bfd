//! What an agent writes down of an instance, for the agent that takes it over.

use protocol::cluster::agent::{InstanceSettings, JobUser, LaunchOrder, PrepareOrder, ShellCall};
use protocol::cluster::{InstanceKey, NodeName};
use serde::{Deserialize, Serialize};

/// Version of the record.
pub const FORMAT: u32 = 1;

/// What a later agent must know of an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// Job, epoch and number of the instance.
    pub key: InstanceKey,
    /// Its logical node.
    pub logical_node: NodeName,
    /// Whether the end of its first process is the job's end.
    pub is_root: bool,
    /// The user for whom it runs.
    pub user: JobUser,
    /// The number of the user of its processes on this machine; `None`: written by an agent that did not note it.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Settings.
    pub settings: InstanceSettings,
    /// Nodes that get copies.
    pub partners: Vec<NodeName>,
    /// The call of `ckptd rsh` that started it.
    pub shell: Option<ShellCall>,
}

impl Record {
    /// Of one to be launched.
    #[must_use]
    pub fn of_launch(order: &LaunchOrder) -> Self {
        Self {
            format: FORMAT,
            key: order.key.clone(),
            logical_node: order.logical_node.clone(),
            is_root: order.is_root,
            user: order.user.clone(),
            uid: None,
            settings: order.settings,
            partners: order.partners.clone(),
            shell: order.shell.clone(),
        }
    }

    /// Of one to be restored.
    #[must_use]
    pub fn of_prepare(order: &PrepareOrder) -> Self {
        Self {
            format: FORMAT,
            key: order.key.clone(),
            logical_node: order.logical_node.clone(),
            is_root: order.is_root,
            user: order.user.clone(),
            uid: None,
            settings: order.settings,
            partners: order.partners.clone(),
            shell: None,
        }
    }
}
