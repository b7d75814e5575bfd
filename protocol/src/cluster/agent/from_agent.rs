//! What agents say.

use super::ends::{MovedListener, OuterSocket, RelaySide};
use super::machine::{HeldInstance, Holding, NodeProfile, Vitals};
use super::orders::{DamagedCopy, JobUser, ShellCall};
use crate::agent::{AgentEvent, CheckpointNumber, ExitKind, InstanceId};
use crate::cluster::dmtcp::DmtcpReport;
use crate::cluster::image::ImageFacts;
use crate::cluster::rehearsal::RehearsedInstance;
use crate::cluster::replica::ReplicaReport;
use crate::cluster::succession::Followed;
use crate::cluster::tree::TreeAnswer;
use crate::cluster::{Epoch, InstanceKey, NodeName, Term};
use crate::launch::LaunchSpec;
use serde::{Deserialize, Serialize};

/// Which stream of a job's console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stream {
    /// The terminal, or standard output.
    Output,
    /// Standard error.
    Error,
}

/// From an agent to the coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromAgent {
    /// The first message. The node's name is in its certificate.
    Hello {
        /// [`crate::cluster::VERSION`].
        version: u32,
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
        /// How it is.
        vitals: Vitals,
    },
    /// An event of an instance.
    Instance {
        /// Which.
        key: InstanceKey,
        /// The event.
        event: AgentEvent,
    },
    /// The answer of all whom this node was to call, and of itself.
    Tree(TreeAnswer),
    /// The instance runs.
    Launched {
        /// Which.
        key: InstanceKey,
        /// Its first process, as its logical node numbers it.
        root: i32,
    },
    /// The instance could not be started, prepared or restored; nothing of it is left.
    NotMade {
        /// Which.
        key: InstanceKey,
        /// One line.
        reason: String,
    },
    /// As `NotMade`, because copies of its image are damaged.
    Damaged {
        /// Which.
        key: InstanceKey,
        /// They.
        copies: Vec<DamagedCopy>,
        /// One line.
        reason: String,
    },
    /// Its first process ended; the instance may live on.
    RootEnded {
        /// Which.
        key: InstanceKey,
        /// How.
        status: ExitKind,
    },
    /// No process is left in it.
    Empty {
        /// Which.
        key: InstanceKey,
    },
    /// Facts of an image that is about to be reported written, and where its copies are durable, this
    /// node included.
    Image {
        /// Whose.
        key: InstanceKey,
        /// The checkpoint.
        checkpoint: CheckpointNumber,
        /// What it holds.
        facts: ImageFacts,
        /// Where it is.
        holders: Vec<NodeName>,
    },
    /// The image is here.
    Prepared {
        /// For which.
        key: InstanceKey,
        /// Its sockets whose peers are in other instances.
        sockets: Vec<OuterSocket>,
    },
    /// It is complete and stands still.
    Restored {
        /// Which.
        key: InstanceKey,
        /// Its sides of relays.
        relays: Vec<RelaySide>,
        /// Those among them out of which comes what processes here have written to a terminal or pipe.
        #[serde(default)]
        outputs: Vec<RelaySide>,
        /// Its listening TCP sockets.
        listeners: Vec<MovedListener>,
        /// Lines for the user.
        warnings: Vec<String>,
    },
    /// Its listening TCP sockets, as far as they are known: all of them, whenever there is one more.
    Listens {
        /// Which instance.
        key: InstanceKey,
        /// They.
        listeners: Vec<MovedListener>,
    },
    /// It runs.
    Running {
        /// Which.
        key: InstanceKey,
    },
    /// No instance of the job below this epoch is left here.
    Killed {
        /// The job.
        job: String,
        /// The epoch.
        below: Epoch,
    },
    /// A piece of the job's console: the body.
    Console {
        /// The root instance.
        key: InstanceKey,
        /// Bytes of this instance's console before it.
        offset: u64,
        /// Which stream.
        stream: Stream,
    },
    /// The console was empty, with the job standing still, after so many bytes.
    Drained {
        /// The root instance.
        key: InstanceKey,
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// Bytes of this instance's console so far.
        offset: u64,
    },
    /// Input that has not reached the job, and does not while it stands still: the body, a piece of it.
    InputLeft {
        /// The root instance.
        key: InstanceKey,
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// Whether the end of the input follows it.
        ended: bool,
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
    /// A relay of this instance was lost, as when its agent died.
    RelaysLost {
        /// Which.
        key: InstanceKey,
        /// One line.
        reason: String,
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
    /// Of an instance that was let go with [`super::Fallen`]: whether every process of it only waits, as ranks do
    /// that have come to their end and daemons that have nothing to do.
    Rest {
        /// Which.
        key: InstanceKey,
        /// Whether that is so now.
        waits: bool,
    },
    /// A process ended whose parent daemon has departed.
    OrphanEnded {
        /// Of which instance.
        key: InstanceKey,
        /// Its number in its logical node.
        pid: i32,
        /// How.
        status: ExitKind,
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
