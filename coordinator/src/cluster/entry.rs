//! What the cluster coordinator's log says: from it alone its state is rebuilt.

use super::image_keys::WrappedKey;
use crate::history::Entry;
use protocol::agent::{CheckpointNumber, CommitRecord, ExitKind, InstanceId};
use protocol::cluster::agent::{JobUser, NodeProfile, RelayLink};
use protocol::cluster::client::RunRequest;
use protocol::cluster::image::ImageFacts;
use protocol::cluster::replica::Prefix;
use protocol::cluster::settings::JobSettings;
use protocol::cluster::{Epoch, NodeName, Term};
use protocol::transport::Fingerprint;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

pub use protocol::cluster::portable::DepartedDaemon;

/// Version of the entries that this build begins a log with.
pub const FORMAT: u32 = 1;

/// The newest that it reads, and what it makes shorter logs with: they have [`ClusterEntry::JobKnown`].
pub const NEWEST_FORMAT: u32 = 2;

/// One entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterEntry {
    /// The first entry of a log.
    Opened {
        /// [`FORMAT`].
        format: u32,
    },
    /// The first entry of a log that was made shorter.
    Reopened {
        /// [`NEWEST_FORMAT`].
        format: u32,
        /// How often it was, this time included.
        generation: u32,
    },
    /// Another coordinator carries on for a lost one, from a copy of its log: what that one decided
    /// and is not in here never was.
    TermBegun {
        /// Higher than any before.
        term: Term,
        /// Drawn at random.
        claim: String,
        /// The machine whose copy this log is.
        from: NodeName,
        /// Where the lost one was.
        lost: Vec<String>,
        /// When, in milliseconds since 1970 UTC.
        at_ms: u64,
    },
    /// A node has joined, come back, or come with another profile.
    NodeKnown {
        /// The node, by its name.
        node: NodeName,
        /// What it offers.
        profile: Box<NodeProfile>,
    },
    /// A node was declared gone.
    NodeGone {
        /// The node that is gone until it connects again.
        node: NodeName,
        /// When, in milliseconds since 1970 UTC.
        at_ms: u64,
    },
    /// A node was turned out: it is not taken again by the key that it had.
    NodeRemoved {
        /// The node that was turned out.
        node: NodeName,
    },
    /// A node that was turned out has been invited again: it has joined with a new token.
    NodeReadmitted {
        /// The node that may connect again.
        node: NodeName,
    },
    /// A node has announced that it goes, or that was called off.
    NodeLeaves {
        /// The node that goes, or stays.
        node: NodeName,
        /// Whether it goes.
        leaves: bool,
    },
    /// A node takes no new processes from now on, and what it runs moves away; or it takes some again.
    NodeDrained {
        /// The node, which stays a member.
        node: NodeName,
        /// Whether it takes none.
        on: bool,
    },
    /// A key proves from now on that somebody is that user.
    KeyAdded {
        /// The user.
        user: String,
        /// The key, a line of `authorized_keys`.
        key: String,
        /// The member by which it came; None: the coordinator's own socket.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        through: Option<NodeName>,
        /// When, in milliseconds since 1970 UTC.
        at_ms: u64,
    },
    /// A key proves nothing any more, and what it had proven ends.
    KeyRemoved {
        /// The user.
        user: String,
        /// Its fingerprint.
        fingerprint: String,
    },
    /// An account of a member counts as a user of the cluster, until its time is over.
    LoggedIn(Box<Login>),
    /// It counts so no more.
    LoggedOut {
        /// The member.
        member: NodeName,
        /// The account, by its number there.
        account: u32,
    },
    /// A job is to be run.
    JobCreated(Box<JobCreated>),
    /// A job has come from an archive, and is at rest.
    JobImported(Box<JobImported>),
    /// Settings of a job were changed.
    Settings {
        /// The job.
        job: String,
        /// All settings of the job from now on.
        settings: Box<JobSettings>,
    },
    /// A new epoch has begun: nothing of an older one counts any more.
    EpochBegun {
        /// The job.
        job: String,
        /// The epoch.
        epoch: Epoch,
        /// The checkpoint that it starts from; None: from the job's beginning.
        checkpoint: Option<CheckpointNumber>,
        /// Rollbacks without a commit, this one included.
        rollbacks: u32,
        /// Why.
        cause: Cause,
        /// When, in milliseconds since 1970 UTC.
        at_ms: u64,
    },
    /// Instances are to be made. Their numbers are used up.
    Instances {
        /// The job.
        job: String,
        /// They, all of the job's epoch.
        instances: BTreeMap<InstanceId, InstanceRecord>,
    },
    /// Daemons of the job are not brought back in this epoch, nor in those that start from its checkpoints.
    Departed {
        /// The job.
        job: String,
        /// The daemons that were left out.
        daemons: Vec<DepartedDaemon>,
    },
    /// An instance that a shell called for runs; its caller is about to be told.
    InstanceRuns {
        /// The job.
        job: String,
        /// The instance, one that [`ClusterEntry::Instances`] has told of.
        instance: InstanceId,
    },
    /// An instance is no part of the job any more.
    InstanceEnded {
        /// The job.
        job: String,
        /// The instance in which no process is left, or that could not be had.
        instance: InstanceId,
    },
    /// The job runs in this epoch.
    Running {
        /// The job.
        job: String,
        /// The epoch.
        epoch: Epoch,
        /// What is recorded of the way to here, for a rollback.
        rollback: Option<Box<RollbackRecord>>,
        /// Where the other sides of relays are, by instance.
        links: BTreeMap<InstanceId, Vec<RelayLink>>,
    },
    /// The job's own coordinator says: anything but a commit.
    Job {
        /// The job.
        job: String,
        /// What.
        entry: Entry,
    },
    /// A checkpoint is committed.
    Committed {
        /// The job.
        job: String,
        /// Its record.
        record: CommitRecord,
        /// Every instance's part of it.
        images: BTreeMap<InstanceId, ImageRecord>,
        /// Why the job stands still behind it: it is to go on elsewhere from here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parked: Option<Cause>,
    },
    /// Images of a committed checkpoint are at more places.
    Held {
        /// The job.
        job: String,
        /// The checkpoint.
        checkpoint: CheckpointNumber,
        /// The instance whose image it is.
        instance: InstanceId,
        /// Where.
        node: NodeName,
    },
    /// Where the job's log stood, with the mark that is then appended to it.
    Mark {
        /// The job.
        job: String,
        /// Length of the job's log with the mark, in bytes.
        length: u64,
        /// Bytes of the root instance's console that are in it.
        console: u64,
        /// The mark.
        text: String,
    },
    /// The job is over, or given up until somebody restarts it.
    JobOver {
        /// The job.
        job: String,
        /// The epoch that is over.
        epoch: Epoch,
        /// How; None: given up.
        status: Option<ExitKind>,
        /// Why it was given up, in one line.
        reason: Option<String>,
        /// Length of the job's log then, in bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        length: Option<u64>,
        /// When, in milliseconds since 1970 UTC.
        at_ms: u64,
    },
    /// The job is forgotten.
    JobRemoved {
        /// The job.
        job: String,
    },
    /// All that the log said of a job until here: in a log that was made shorter, in place of all of that.
    JobKnown(Box<KnownJob>),
    /// Jobs that are forgotten, likewise.
    JobsRemoved {
        /// Their ids.
        jobs: BTreeSet<String>,
    },
    /// All before this stands for so much of the log before, and what follows was behind that there.
    Shortened {
        /// Of the log before.
        prefix: Prefix,
    },
}

/// What the log says of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnownJob {
    /// The job.
    pub job: String,
    /// Its ledger, which only the state machine reads.
    pub ledger: serde_json::Value,
}

impl ClusterEntry {
    /// Whether nothing may go on without it: what was decided and is not in the log would be decided
    /// once more, and otherwise, after the next start. A coordinator that can't write such an
    /// entry ends at once, before it does what follows; started again, it carries on from the
    /// log as it is. Other entries only cost a checkpoint.
    #[must_use]
    pub fn is_vital(&self) -> bool {
        !matches!(
            self,
            ClusterEntry::Committed { .. }
                | ClusterEntry::Job { entry: Entry::Begun { .. } | Entry::Abandoned { .. }, .. }
        )
    }

    /// Whether nobody is told of it, and nothing is done that follows from it, before an agent has a
    /// copy, if any agent that should have one can be reached: what another coordinator must know
    /// if this one's machine is lost in the next moment. Without the others it decides anew.
    #[must_use]
    pub fn waits_for_copy(&self) -> bool {
        !matches!(
            self,
            ClusterEntry::Opened { .. }
                | ClusterEntry::Reopened { .. }
                | ClusterEntry::NodeKnown { .. }
                | ClusterEntry::NodeGone { .. }
                // Written while the job stands still, some of them.
                | ClusterEntry::Mark { .. }
                | ClusterEntry::Job { entry: Entry::Abandoned { .. }, .. }
        )
    }

    /// The job that it is about.
    #[must_use]
    pub fn job(&self) -> Option<&str> {
        match self {
            ClusterEntry::Opened { .. }
            | ClusterEntry::TermBegun { .. }
            | ClusterEntry::NodeKnown { .. }
            | ClusterEntry::NodeGone { .. }
            | ClusterEntry::NodeRemoved { .. }
            | ClusterEntry::NodeReadmitted { .. }
            | ClusterEntry::NodeLeaves { .. }
            | ClusterEntry::NodeDrained { .. }
            | ClusterEntry::KeyAdded { .. }
            | ClusterEntry::KeyRemoved { .. }
            | ClusterEntry::LoggedIn(_)
            | ClusterEntry::LoggedOut { .. }
            | ClusterEntry::JobsRemoved { .. }
            | ClusterEntry::Reopened { .. }
            | ClusterEntry::Shortened { .. } => None,
            ClusterEntry::JobCreated(created) => Some(&created.job),
            ClusterEntry::JobImported(imported) => Some(&imported.job),
            ClusterEntry::JobKnown(known) => Some(&known.job),
            ClusterEntry::Settings { job, .. }
            | ClusterEntry::EpochBegun { job, .. }
            | ClusterEntry::Departed { job, .. }
            | ClusterEntry::Instances { job, .. }
            | ClusterEntry::InstanceRuns { job, .. }
            | ClusterEntry::InstanceEnded { job, .. }
            | ClusterEntry::Running { job, .. }
            | ClusterEntry::Job { job, .. }
            | ClusterEntry::Committed { job, .. }
            | ClusterEntry::Held { job, .. }
            | ClusterEntry::Mark { job, .. }
            | ClusterEntry::JobOver { job, .. }
            | ClusterEntry::JobRemoved { job } => Some(job),
        }
    }
}

/// A login that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// The member at whose socket it was made.
    pub member: NodeName,
    /// The key by which it was that member.
    pub member_key: Fingerprint,
    /// The account there.
    pub account: JobUser,
    /// As which user of the cluster.
    pub user: String,
    /// The key that has proven it, by its fingerprint.
    pub key: String,
    /// Until when, in milliseconds since 1970 UTC.
    pub until_ms: u64,
}

/// A job that is to be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobCreated {
    /// Its id, unique in the cluster's history.
    pub job: String,
    /// Its name, which its user has chosen; else its id.
    pub name: String,
    /// For whom it runs.
    pub user: JobUser,
    /// The node on which it was asked for.
    pub client_node: Option<NodeName>,
    /// What was asked for.
    pub request: RunRequest,
    /// When, in milliseconds since 1970 UTC.
    pub at_ms: u64,
}

/// A job that has come from an archive, at the one checkpoint that it came with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobImported {
    /// Its id, unique in the cluster's history.
    pub job: String,
    /// Its name: the one that it had, or that was asked for; else its id.
    pub name: String,
    /// Whose it is.
    pub user: JobUser,
    /// The node on which it was imported.
    pub client_node: Option<NodeName>,
    /// What was asked for when it was run.
    pub request: RunRequest,
    /// The epoch that it was in.
    pub epoch: Epoch,
    /// The record of the checkpoint's commit.
    pub record: CommitRecord,
    /// Every instance's part of it.
    pub images: BTreeMap<InstanceId, ImageRecord>,
    /// The addresses by which its processes know logical nodes.
    pub addresses: BTreeMap<NodeName, Vec<IpAddr>>,
    /// Daemons that are not brought back.
    pub departed: Vec<DepartedDaemon>,
    /// The key of its images; none: the one that follows from its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_key: Option<WrappedKey>,
    /// When it was imported, in milliseconds since 1970 UTC.
    pub at_ms: u64,
}

/// Why an epoch began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The job's first.
    Run,
    /// Somebody asked for it.
    Restart,
    /// A node was declared gone.
    Lost {
        /// The node that is gone.
        node: NodeName,
    },
    /// Nodes announced that they go.
    Leave {
        /// The first of them.
        node: NodeName,
        /// Those that go with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        with: Vec<NodeName>,
    },
    /// Nodes were drained: they stay, and run nothing.
    Drain {
        /// The first of them.
        node: NodeName,
        /// Those that were drained with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        with: Vec<NodeName>,
    },
    /// Nodes have joined that take a share.
    Join {
        /// The first of them.
        node: NodeName,
        /// Those that came with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        with: Vec<NodeName>,
        /// What is expected of it.
        expected: Expected,
    },
    /// Machines have become slower or faster.
    Speed {
        /// The first of them.
        node: NodeName,
        /// The others.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        with: Vec<NodeName>,
        /// Those that take something over.
        takers: Vec<NodeName>,
        /// What is expected of it.
        expected: Expected,
    },
    /// A machine has another address: connections over the one that it had carry nothing any more.
    Address {
        /// The machine that has moved.
        node: NodeName,
        /// The one that it has now.
        address: IpAddr,
    },
    /// An instance, or a relay of it, ended in a way that the job cannot survive.
    Broken {
        /// Where.
        node: NodeName,
        /// One line.
        reason: String,
    },
    /// The rollback before did not succeed.
    Again {
        /// One line.
        reason: String,
    },
    /// The coordinator was started again while a rollback was under way.
    Recovered,
}

impl Cause {
    /// The word for it in listings.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Cause::Run => "run",
            Cause::Restart => "restart",
            Cause::Lost { .. } => "lost",
            Cause::Leave { .. } => "leave",
            Cause::Drain { .. } => "drain",
            Cause::Join { .. } => "join",
            Cause::Speed { .. } => "speed",
            Cause::Address { .. } => "address",
            Cause::Broken { .. } => "broken",
            Cause::Again { .. } => "again",
            Cause::Recovered => "recovered",
        }
    }

    /// The node that it is about.
    #[must_use]
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Cause::Lost { node }
            | Cause::Leave { node, .. }
            | Cause::Drain { node, .. }
            | Cause::Join { node, .. }
            | Cause::Speed { node, .. }
            | Cause::Address { node, .. }
            | Cause::Broken { node, .. } => Some(node),
            _ => None,
        }
    }

    /// Whether the job stood still for it behind a checkpoint: nothing that it has done is lost.
    #[must_use]
    pub fn is_move(&self) -> bool {
        matches!(
            self,
            Cause::Leave { .. } | Cause::Drain { .. } | Cause::Join { .. } | Cause::Speed { .. }
        )
    }

    /// All nodes that it is about.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeName> {
        let others = match self {
            Cause::Leave { with, .. }
            | Cause::Drain { with, .. }
            | Cause::Join { with, .. }
            | Cause::Speed { with, .. } => with.as_slice(),
            _ => &[],
        };
        self.node().into_iter().chain(others).cloned().collect()
    }

    /// Machines that take over what could stay where it is.
    #[must_use]
    pub fn takers(&self) -> Vec<NodeName> {
        match self {
            Cause::Join { .. } => self.nodes(),
            Cause::Speed { takers, .. } => takers.clone(),
            _ => Vec::new(),
        }
    }

    /// What is expected of a move to other machines.
    #[must_use]
    pub fn expected(&self) -> Option<Expected> {
        match self {
            Cause::Join { expected, .. } | Cause::Speed { expected, .. } => Some(*expected),
            _ => None,
        }
    }
}

/// What is expected of a move to newcomers, or for machines' speeds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// How much of its work the job does in the time of 1000 such pieces before.
    pub faster_permille: u32,
    /// Milliseconds saved of those that the job is expected to run yet.
    pub gain_ms: u64,
    /// Milliseconds for which it stands still for the move, as known before.
    pub cost_ms: u64,
    /// What the first of the machines that have become slower or faster gets done in the time of 1000 such pieces
    /// before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace_permille: Option<u32>,
}

/// One instance of an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceRecord {
    /// Its machine.
    pub node: NodeName,
    /// Its logical node.
    pub logical_node: NodeName,
    /// Whether it has the job's first process.
    pub root: bool,
    /// Where it comes from.
    pub origin: Origin,
    /// Of one that was launched: the addresses that its logical node had then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
}

/// Where an instance comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// It is the job's first.
    Run,
    /// A remote shell called for it.
    Shell {
        /// The caller's instance.
        caller: InstanceId,
        /// The caller's number for the call.
        call: u64,
    },
    /// It is a part of an image.
    Image {
        /// The instance whose image it is.
        instance: InstanceId,
        /// All processes of the image and the part that each belongs to.
        assignment: BTreeMap<i32, u32>,
        /// Which part.
        part: u32,
    },
}

/// One instance's part of a committed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// The machine on which it was taken.
    pub node: NodeName,
    /// Its logical node.
    pub logical_node: NodeName,
    /// Machines that hold it.
    pub holders: Vec<NodeName>,
    /// Speed of a core of its machine then, in thousandths.
    #[serde(default = "common_speed")]
    pub speed_permille: u32,
    /// What is in it; its `root` is the job's first process only.
    pub facts: ImageFacts,
}

fn common_speed() -> u32 {
    1000
}

/// A process that came to another machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Its program's name.
    pub process: String,
    /// Its number in its logical node.
    pub pid: i32,
    /// The machine where it was when the checkpoint was taken.
    pub from: NodeName,
    /// Where it is now.
    pub to: NodeName,
}

/// One rollback or move, as `ckptd status` shows it. Times are milliseconds since 1970 UTC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollbackRecord {
    /// `lost`, `leave`, `drain`, `join`, `speed`, `broken`, `again`, `recovered` or `restart`. With `leave`, `drain`,
    /// `join` and `speed` nothing that the job had done was lost.
    pub reason: String,
    /// The node that it is about.
    pub node: Option<NodeName>,
    /// The checkpoint from which the job went on; None: from its beginning.
    pub checkpoint: Option<CheckpointNumber>,
    /// When the node was last heard, or the trouble came to be known; of a move, since when the job has
    /// stood still.
    pub lost_at_ms: u64,
    /// When it was declared gone.
    pub declared_ms: u64,
    /// When everything older had been killed and the plan was made.
    pub planned_ms: Option<u64>,
    /// When every image was where it was needed.
    pub images_ms: Option<u64>,
    /// When the orders to make connections had been given: the restore begins with them.
    pub rewired_ms: Option<u64>,
    /// When every instance was complete.
    pub restored_ms: Option<u64>,
    /// When all ran.
    pub running_ms: Option<u64>,
    /// Who moved where.
    pub moves: Vec<Move>,
    /// All nodes that it is about, where they are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeName>,
    /// What was expected of it, of a move to newcomers or for speeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expected>,
}

impl RollbackRecord {
    /// Whether nothing was lost by it.
    #[must_use]
    pub fn is_move(&self) -> bool {
        matches!(self.reason.as_str(), "leave" | "drain" | "join" | "speed")
    }

    /// Whether it is a move away from members that are drained.
    #[must_use]
    pub fn leaves_drained(&self) -> bool {
        self.reason == "drain"
    }
}
