//! What the coordinator says.

use super::ends::{Fallen, RelayLink, Rewire, Skipped};
use super::machine::Peer;
use super::orders::{LaunchOrder, PrepareOrder, ShellCall};
use crate::agent::{AgentCommand, CheckpointNumber, CommitRecord, InstanceId};
use crate::cluster::addresses::AddressMap;
use crate::cluster::dmtcp::DmtcpOrder;
use crate::cluster::grant::Grant;
use crate::cluster::image_key::ImageKeys;
use crate::cluster::look::{ImageName, Look};
use crate::cluster::portable::AdoptOrder;
use crate::cluster::rehearsal::RehearsalOrder;
use crate::cluster::replica::ReplicaOrder;
use crate::cluster::succession::Followed;
use crate::cluster::tree::{TreeCall, TreeMark};
use crate::cluster::{Epoch, InstanceKey, NodeName};
use crate::compact::{KeptImages, Pieces};
use crate::launch::WindowSize;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// From the coordinator to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToAgent {
    /// Answer to [`super::FromAgent::Hello`].
    Welcome {
        /// The coordinator: its term, and where it is.
        coordinator: Followed,
        /// Milliseconds between heartbeats.
        heartbeat_ms: u64,
        /// Milliseconds from the sending of an acknowledged heartbeat until its lease runs out.
        lease_ms: u64,
        /// The epoch of every job that has instances on this node; instances of jobs not named, or
        /// with a lower epoch, are to be killed; the others go on.
        epochs: BTreeMap<String, Epoch>,
    },
    /// The node is not taken; the agent ends.
    Refused {
        /// One line.
        reason: String,
    },
    /// Answer to a heartbeat: renews the lease from the moment when that was sent.
    Heard {
        /// Its number.
        sequence: u64,
    },
    /// All members that are there.
    Peers {
        /// As others reach them, the receiver included.
        peers: Pieces<Peer>,
        /// Those that were turned out.
        #[serde(default)]
        expelled: Vec<NodeName>,
    },
    /// Members have come, or are to be reached elsewhere, or have gone.
    PeersChanged {
        /// Of those who are gone, the ones that were turned out: nothing is said to them any more, over any connection.
        #[serde(default)]
        expelled: Vec<NodeName>,
        /// Those who are there.
        there: Vec<Peer>,
        /// Those who are not there any more.
        gone: Vec<NodeName>,
    },
    /// Start an instance. Answer: [`super::InstanceReport::Launched`] or [`super::InstanceReport::NotMade`].
    Launch(Box<LaunchOrder>),
    /// A command of a checkpoint, a signal or an end. Answers come as [`super::FromAgent::Instance`].
    Instance {
        /// The instance, with its job and epoch.
        key: InstanceKey,
        /// The command.
        command: AgentCommand,
    },
    /// A step for the instances of this node and of others, which it calls. Answer: [`super::FromAgent::Tree`].
    Tree(Box<TreeCall>),
    /// A new generation of the command tree begins.
    TreeReset(TreeMark),
    /// Read the console until it is empty, with the job standing still. Answer: any number of
    /// [`super::InstanceReport::Console`], then [`super::InstanceReport::Drained`].
    Drain {
        /// The root instance.
        key: InstanceKey,
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// Whether the job is not let go after it, but goes on elsewhere: then [`super::InstanceReport::InputLeft`]
        /// comes before, for input that the job has not taken.
        #[serde(default)]
        parks: bool,
    },
    /// Nodes that get copies of images from now on.
    Partners {
        /// Of which instance.
        key: InstanceKey,
        /// The nodes; they replace those of before.
        nodes: Vec<NodeName>,
    },
    /// Fetch what a restore needs. Answer: [`super::InstanceReport::Prepared`], [`super::InstanceReport::NotMade`] or
    /// [`super::InstanceReport::Damaged`].
    Prepare(Box<PrepareOrder>),
    /// Restore what was prepared, up to the last step. Answer: [`super::InstanceReport::Restored`],
    /// [`super::InstanceReport::NotMade`] or [`super::InstanceReport::Damaged`].
    Restore {
        /// The instance, one that [`ToAgent::Prepare`] was sent for.
        key: InstanceKey,
        /// Connections to be made first.
        connections: Vec<Rewire>,
        /// Connections whose other end is gone for good.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        skipped: Vec<Skipped>,
    },
    /// Let it run. Answer: [`super::InstanceReport::Running`].
    Go {
        /// The instance, one that is restored.
        key: InstanceKey,
        /// Where the other sides of its relays are.
        links: Vec<RelayLink>,
        /// In a job whose processes have lost daemons for good: what becomes of their relays. The
        /// agent reports by [`super::InstanceReport::Rest`] whether the instance only waits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fallen: Option<Fallen>,
    },
    /// Where the other sides of relays are: more of them.
    Links {
        /// Of which instance.
        key: InstanceKey,
        /// For each side that is here, where the other is.
        links: Vec<RelayLink>,
    },
    /// What has moved in the job; replaces what was said before. Comes before [`ToAgent::Go`], and again when it
    /// changes.
    Addresses {
        /// Which instance.
        key: InstanceKey,
        /// What has moved.
        #[serde(rename = "book")]
        addresses: AddressMap,
    },
    /// Freeze all instances of the job below this epoch, then kill them. Answer:
    /// [`super::FromAgent::Killed`].
    Kill {
        /// The job.
        job: String,
        /// The first epoch that is spared.
        below: Epoch,
    },
    /// An image that this node holds is committed by the coordinator's log, and has no mark yet as far as
    /// [`super::FromAgent::Hello`] told: it gets one, before anything takes it for unfinished.
    Mark {
        /// The job.
        job: String,
        /// Whose image.
        instance: InstanceId,
        /// The record of the commit.
        record: CommitRecord,
    },
    /// Remove all images of the job but these; with none, everything of the job.
    Keep {
        /// The job.
        job: String,
        /// Checkpoints by instance.
        images: KeptImages,
    },
    /// What was called for by [`super::FromAgent::Shell`]: it runs.
    ShellRuns {
        /// The call.
        call: ShellCall,
        /// The instance in which.
        instance: InstanceKey,
        /// Where that is.
        node: NodeName,
    },
    /// What was called for by [`super::FromAgent::Shell`] cannot be had.
    ShellFailed {
        /// The call.
        call: ShellCall,
        /// One line.
        reason: String,
    },
    /// Console bytes up to this offset are in the job's log.
    ConsoleKept {
        /// The root instance.
        key: InstanceKey,
        /// The offset.
        offset: u64,
    },
    /// Input for the job: the body; empty: its end.
    Input {
        /// The root instance.
        key: InstanceKey,
    },
    /// The size of the user's terminal.
    Resize {
        /// The root instance.
        key: InstanceKey,
        /// The size.
        window: WindowSize,
    },
    /// An answer to a local client: one line of [`crate::cluster::client::Answer`].
    Client {
        /// The agent's number for it.
        client: u64,
        /// The line; None: close the connection.
        line: Option<String>,
    },
    /// Look at images for a local client, which may know of them, and answer it: [`crate::cluster::client::Ask::Look`].
    Look {
        /// The agent's number for it.
        client: u64,
        /// The job.
        job: String,
        /// The images that this client's user may look at.
        images: Vec<ImageName>,
        /// What is wanted.
        look: Look,
    },
    /// Send the files of an image to a local client, which may have it: [`crate::cluster::client::Ask::Image`].
    Give {
        /// The agent's number for it.
        client: u64,
        /// The job.
        job: String,
        /// Which image.
        image: ImageName,
        /// The machine that holds it, this one or another.
        holder: NodeName,
    },
    /// Take images over from a local client's folder. Answer: [`super::FromAgent::Adopted`].
    Adopt(Box<AdoptOrder>),
    /// Rehearse the restart of instances.
    Rehearse(Box<RehearsalOrder>),
    /// Get an image and keep it, for the sake of one more copy. Answer: [`super::FromAgent::Copied`].
    Copy {
        /// The job.
        job: String,
        /// The instance whose image it is.
        instance: InstanceId,
        /// The checkpoint.
        checkpoint: CheckpointNumber,
        /// Nodes that hold it.
        holders: Vec<NodeName>,
        /// [`crate::cluster::image::ImageFacts::digest`] of that image, as it was committed.
        #[serde(default)]
        digest: String,
    },
    /// The node is not let go, or not any more.
    Stay {
        /// One line.
        reason: String,
    },
    /// About this node's copy of the coordinator's folder.
    Replica(ReplicaOrder),
    /// About images of DMTCP's processes. Answer: [`super::FromAgent::Dmtcp`].
    Dmtcp(DmtcpOrder),
    /// What the next order takes, and the coordinator's clock. Added to orders where they are sent, and kept by the agent
    /// where they arrive: neither state machine deals with grants and keys.
    Granted {
        /// Rights to copies of images.
        grants: Vec<Grant>,
        /// Milliseconds since 1970 UTC, by the coordinator's clock.
        now_ms: u64,
        /// Keys of the job's images, for a node that is to read or write them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        keys: Vec<ImageKeys>,
    },
    /// The node is free to go: the agent may end.
    Farewell,
}
