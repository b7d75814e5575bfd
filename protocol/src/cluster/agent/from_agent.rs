//! What agents say.

use super::instance_report::InstanceReport;
use super::machine::{HeldInstance, Holding, NodeProfile, Vitals};
use super::orders::{JobUser, ShellCall};
use crate::agent::{CheckpointNumber, InstanceId};
use crate::cluster::dmtcp::DmtcpReport;
use crate::cluster::image::ImageFacts;
use crate::cluster::rehearsal::RehearsedInstance;
use crate::cluster::replica::ReplicaReport;
use crate::cluster::succession::Followed;
use crate::cluster::tree::TreeAnswer;
use crate::cluster::{Epoch, InstanceKey, NodeName, Term, Versions};
use crate::launch::LaunchSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// From an agent to the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromAgent {
    /// The first message. The node's name is in its certificate.
    Hello {
        /// [`crate::cluster::VERSIONS`].
        version: Versions,
        /// The highest term that it has heard of.
        term: Term,
        /// The coordinator of that term, whose seal shows that there is one; `None`: the one that was joined.
        #[serde(default)]
        followed: Option<Followed>,
        /// What the machine offers.
        profile: NodeProfile,
        /// What runs on it.
        instances: Vec<HeldInstance>,
        /// The images on its disk.
        holdings: Vec<Holding>,
    },
    /// The node is there.
    Heartbeat {
        /// Grows by one.
        sequence: u64,
        /// The newest heartbeat whose answer had come when this one was sent: it was sent after that answer, however
        /// long it has been on its way.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answered: Option<u64>,
        /// How it is.
        vitals: Vitals,
    },
    /// What is reported of an instance.
    Instance {
        /// The instance, with its job and epoch.
        key: InstanceKey,
        /// What.
        report: InstanceReport,
    },
    /// The answer of all whom this node was to call, and of itself.
    Tree(TreeAnswer),
    /// No instance of the job below this epoch is left here.
    Killed {
        /// The job.
        job: String,
        /// The epoch.
        below: Epoch,
    },
    /// `ckptd rsh` was called inside of an instance.
    Shell {
        /// The call.
        call: ShellCall,
        /// The logical node asked for.
        logical_node: NodeName,
        /// What to start there.
        launch: LaunchSpec,
    },
    /// An image that was to be copied here.
    Copied {
        /// The job.
        job: String,
        /// The instance whose image it is.
        instance: InstanceId,
        /// The checkpoint.
        checkpoint: CheckpointNumber,
        /// Why it is not here, in one line; None: it is.
        failure: Option<String>,
    },
    /// Images were taken over from a local client's folder, or not.
    Adopted {
        /// The agent's number for the client.
        client: u64,
        /// The job.
        job: String,
        /// What is in them; empty where they were not.
        facts: BTreeMap<InstanceId, ImageFacts>,
        /// Why they were not, in one line.
        failure: Option<String>,
    },
    /// A local client has connected.
    ClientOpened {
        /// The agent's number for it, never used twice on a connection.
        client: u64,
        /// Its user.
        user: JobUser,
    },
    /// One line of a local client, a [`crate::cluster::client::Ask`].
    ClientLine {
        /// Which client.
        client: u64,
        /// The line.
        line: String,
    },
    /// A local client has gone.
    ClientClosed {
        /// Which client.
        client: u64,
    },
    /// About this node's copy of the coordinator's folder.
    Replica(ReplicaReport),
    /// An instance has been rehearsed, or can't be.
    Rehearsed {
        /// [`crate::cluster::rehearsal::RehearsalOrder::number`].
        number: u64,
        /// How it came out.
        instance: RehearsedInstance,
    },
    /// Answer to [`super::ToAgent::Dmtcp`].
    Dmtcp(DmtcpReport),
    /// The machine is about to go: `ckptd leave`, SIGTERM, a low battery.
    Leaving {
        /// Why.
        reason: String,
    },
}

impl FromAgent {
    /// A report of this instance.
    pub fn of(key: InstanceKey, report: impl Into<InstanceReport>) -> Self {
        Self::Instance { key, report: report.into() }
    }
}
