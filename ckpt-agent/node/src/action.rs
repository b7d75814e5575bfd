//! What is to be done for a node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use command_tree::Line;
use protocol::agent::{
    AgentCommand, CheckpointNumber, CommitRecord, ExitKind, ImageSummary, InstanceId,
};
use protocol::cluster::addresses::AddressMap;
use protocol::cluster::agent::{
    FromAgent, HeldInstance, JobUser, LaunchOrder, NodeProfile, Peer, PrepareOrder, RelayLink,
    RelaySide, Rewire, Skipped,
};
use protocol::cluster::dmtcp::DmtcpOrder;
use protocol::cluster::look::{ImageName, Look};
use protocol::cluster::portable::AdoptOrder;
use protocol::cluster::rehearsal::RehearsalOrder;
use protocol::cluster::replica::ReplicaOrder;
use protocol::cluster::succession::{Followed, ToSuccessor};
use protocol::cluster::tree::TreeMessage;
use protocol::cluster::{InstanceKey, NodeName};
use protocol::compact::{KeptImages, Pieces};

use crate::{BootTime, Charge, ConsoleOrder, End, Keeps, Record, RelayOrder, RelayState};

/// What is to be done. Actions are performed in order; what one of them reports by an [`crate::Event`] that its
/// description calls *at once* comes before any other event.
#[derive(Debug)]
pub enum Action {
    /// Tell the coordinator, with these bytes.
    Tell(Box<FromAgent>, Vec<u8>),
    /// Say the first words to the coordinator; the images that lie here belong to them.
    Hello {
        /// The coordinator that this node follows.
        followed: Followed,
        /// What this machine offers.
        profile: Box<NodeProfile>,
        /// What runs here.
        instances: Vec<HeldInstance>,
    },
    /// Send a heartbeat of that number, with the machine's vital signs.
    Beat {
        /// The heartbeat's number.
        sequence: u64,
        /// The newest heartbeat that the coordinator has answered.
        answered: Option<u64>,
        /// Inits of the instances that run here.
        inits: Vec<i32>,
        /// How the battery is.
        charge: Option<Charge>,
    },
    /// [`crate::Event::Tick`] is to come so often from now on.
    BeatEvery(Duration),
    /// Close the connection of that number to the coordinator, and make another; None: try other addresses than the one
    /// that is being tried.
    GiveUp(Option<u64>),
    /// The members are these.
    SetPeers {
        /// All that are there.
        peers: Pieces<Peer>,
        /// Those that were turned out.
        expelled: Vec<NodeName>,
    },
    /// Members have come or moved; others have gone.
    ChangePeers {
        /// Those that have come or moved.
        there: Vec<Peer>,
        /// Those that have gone.
        gone: Vec<NodeName>,
        /// Those of them that were turned out: connections with them are cut.
        expelled: Vec<NodeName>,
    },
    /// This machine has another address: connections over the one that it had are made again.
    OwnAddressChanged,
    /// Write down the coordinator that is followed. Reports [`crate::Event::FollowedNoted`] at once.
    NoteFollowed {
        /// That coordinator.
        followed: Followed,
        /// The successor that asks for it.
        asker: Option<u64>,
    },
    /// Answer a successor.
    AnswerSuccessor(u64, ToSuccessor),
    /// The agent ends.
    End(Ending),

    /// Launch an instance. Reports [`crate::Event::Made`].
    Launch(Box<Launch>),
    /// Bring an instance's image here. Reports [`crate::Event::Prepared`].
    Prepare(Box<PrepareOrder>),
    /// Restore an instance. Reports [`crate::Event::Made`].
    Restore(Box<Restore>),
    /// Carry streams and relays of an instance that was made or found. Reports [`crate::Event::Tied`] at once.
    Tie(Tie),
    /// Let a restored instance run, or one that its init holds. Reports [`crate::Event::Running`].
    Go(InstanceKey),
    /// Stop all threads of an instance.
    Hold(InstanceKey),
    /// Let go what [`Action::Hold`] stopped.
    Release(InstanceKey),
    /// Extend an instance's lease.
    Lease(InstanceKey, BootTime),
    /// Kill instances; all are held before any is killed, so that none sees another's end. Reports
    /// [`crate::Event::Killed`] for each.
    Kill(Vec<Kill>),
    /// Nothing of an instance is left, or ever was: everything that serves it goes.
    Forget(InstanceKey),
    /// Write down what a later agent must know.
    WriteRecord(Box<Record>),
    /// Tell an instance a step of a checkpoint, or a signal.
    Command(InstanceKey, AgentCommand),
    /// Tell an instance what has moved in its job.
    Addresses(InstanceKey, AddressMap),
    /// Tell an instance that the agent has closed an end of its.
    CloseEnd(InstanceKey, End),
    /// Tell an instance what its relays hold, for the checkpoint in flight.
    RelayStates(InstanceKey, Vec<(RelaySide, RelayState)>),

    /// Give the job's console an order.
    Console(InstanceKey, ConsoleOrder),
    /// Give a side of a relay an order.
    Relay(InstanceKey, RelaySide, RelayOrder),
    /// Bring an instance's relays to a stand. Reports [`crate::Event::RelaysPaused`].
    PauseRelays(InstanceKey, CheckpointNumber),
    /// Bring output that comes over this relay to the job's console. Reports [`crate::Event::SinkLost`] where it can't.
    Sink(InstanceKey, RelayLink),
    /// Look whether an instance only waits. Reports [`crate::Event::Rest`] at each change.
    WatchRest(InstanceKey),

    /// Read what an instance's processes have done up to this checkpoint.
    ReadEfforts(InstanceKey),
    /// Copy an image to partners. Reports [`crate::Event::Copied`].
    CopyImage(Box<CopyImage>),
    /// Copy it no further.
    StopCopying(InstanceKey),
    /// Put the mark of a commit beside the copies of an image. Reports [`crate::Event::Marked`].
    MarkCopies {
        /// The instance that the image is of.
        key: InstanceKey,
        /// The commit.
        record: Box<CommitRecord>,
        /// The nodes that have the copies.
        holders: Vec<NodeName>,
    },
    /// Put the mark of a commit beside an image here whose instance is not.
    Mark {
        /// The job.
        job: String,
        /// The instance.
        instance: InstanceId,
        /// The commit.
        record: Box<CommitRecord>,
    },
    /// Remove everything of a job but these images and what runs.
    Keep(Box<Kept>),
    /// Fetch one more copy of a committed image. Reports [`crate::Event::Fetched`].
    FetchCopy {
        /// The job.
        job: String,
        /// The instance.
        instance: InstanceId,
        /// The checkpoint.
        checkpoint: CheckpointNumber,
        /// Nodes that have it.
        holders: Vec<NodeName>,
        /// The digest in the coordinator's log.
        digest: String,
    },
    /// Do something with an image of DMTCP's processes. Reports [`crate::Event::Dmtcp`].
    Dmtcp(DmtcpOrder),

    /// Rehearse restarts. Reports [`crate::Event::Rehearsed`].
    Rehearse(Box<RehearsalOrder>),
    /// Read images for a local command. Reports [`crate::Event::Looked`].
    Look {
        /// The command's number.
        client: u64,
        /// The job.
        job: String,
        /// The images.
        images: Vec<ImageName>,
        /// What to look at.
        look: Look,
    },
    /// Send an image to a local command, from the machine that holds it. Reports [`crate::Event::Looked`].
    Give {
        /// The command's number.
        client: u64,
        /// The job.
        job: String,
        /// The image.
        image: ImageName,
        /// The machine.
        holder: NodeName,
    },
    /// Take images over from a local command's folder. Reports [`crate::Event::Adopted`].
    Adopt(Box<AdoptOrder>),
    /// Nobody listens any more to what is read for that command.
    StopLook(u64),
    /// Pass a line on to a local command; None: the conversation is over.
    Answer(u64, Option<String>),
    /// Tell a local command why nothing is done for it, and end the conversation.
    RefuseClient(u64, &'static str),
    /// End all conversations with local commands.
    CloseClients,

    /// Find out again which instance a caller of `ckptd rsh` is inside of. Reports [`crate::Event::Called`].
    CallAgain(u64),
    /// Tell a caller why its program was not started.
    FailCall(u64, String),
    /// The caller's instance is gone.
    DropCall(u64),
    /// The caller's program runs: its streams are carried there. Reports [`crate::Event::CallerTied`] at once, where
    /// they can be.
    TieCaller {
        /// The caller's number.
        number: u64,
        /// The instance that it is inside of.
        key: InstanceKey,
        /// The instance that it began.
        peer: InstanceKey,
        /// The node of that.
        node: NodeName,
    },
    /// Tell the remote shell that started an instance how its first process ended.
    TellShell(InstanceKey, ExitKind),

    /// Make a line to another agent. [`crate::LineEvent::Broken`] where that fails.
    OpenLine(NodeName),
    /// Send over a line, in order.
    SendLine(Line, TreeMessage),
    /// Drop what waits to be sent over a line.
    ClearLine(Line),
    /// Close a line.
    CloseLine(Line),
    /// [`crate::Event::Clock`] is to come then.
    Clock(BootTime),

    /// Do something with the copy of the coordinator's folder. Reports [`crate::Event::Replica`].
    Replica(ReplicaOrder, Vec<u8>),
    /// Complete what was ordered for that copy before anything else is done.
    AwaitReplica,
}

/// How an agent ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Everything is in order.
    InOrder,
    /// The coordinator does not want this node, for this reason.
    Refused(String),
}

/// An instance that is to be launched.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The coordinator's order.
    pub order: LaunchOrder,
    /// Until when it may run without an agent.
    pub lease_until: BootTime,
}

/// An instance that is to be restored.
#[derive(Debug, Clone)]
pub struct Restore {
    /// The coordinator's order by which its image came here.
    pub order: PrepareOrder,
    /// Until when it may run without an agent.
    pub lease_until: BootTime,
    /// How its connections to other instances are made.
    pub connections: Vec<Rewire>,
    /// Connections whose peers have departed.
    pub skipped: Vec<Skipped>,
    /// Whether other parts of its logical node are on this machine as well.
    pub crowded: bool,
}

/// How streams and relays of an instance are carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tie {
    /// The instance.
    pub key: InstanceKey,
    /// What becomes of its console's output.
    pub keeps: Keeps,
    /// Where all of its relays lead, if a remote shell has just launched it.
    pub shell: Option<(InstanceKey, NodeName)>,
    /// Its connections whose peers have departed.
    pub skipped: Vec<Skipped>,
}

/// An instance that is to be killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kill {
    /// The instance.
    pub key: InstanceKey,
    /// Whether it stands still already.
    pub stands: bool,
}

/// An image that is to be copied.
#[derive(Debug, Clone)]
pub struct CopyImage {
    /// The instance that it is of.
    pub key: InstanceKey,
    /// The checkpoint.
    pub checkpoint: CheckpointNumber,
    /// What was written here.
    pub summary: ImageSummary,
    /// The job's user.
    pub user: JobUser,
    /// Nodes that are to get a copy, in order of preference.
    pub partners: Vec<NodeName>,
    /// How many of them.
    pub copies: usize,
    /// Whether callers of `ckptd rsh` are restored with the job.
    pub callers: bool,
}

/// What is kept of a job.
#[derive(Debug, Clone)]
pub struct Kept {
    /// The job.
    pub job: String,
    /// Its images, by instance.
    pub images: KeptImages,
    /// Instances that are here and alive: they remove their images themselves.
    pub alive: BTreeMap<InstanceId, InstanceKey>,
    /// Instances that are here and not alive yet, or not any more: nothing of theirs is removed.
    pub passing: BTreeSet<InstanceId>,
}
