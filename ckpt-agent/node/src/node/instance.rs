//! What is known of one instance on this node.

use std::collections::BTreeSet;

use protocol::agent::{CheckpointNumber, ExitKind};
use protocol::cluster::agent::{
    LaunchOrder, MovedListener, PrepareOrder, RelayLink, RelaySide, Skipped,
};
use protocol::cluster::{InstanceKey, NodeName};

use crate::{BootTime, Lease, Made, Record};

/// How far an instance has come.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    /// Its image is being fetched.
    Preparing(Box<PrepareOrder>),
    /// Its image is here.
    Prepared(Box<PrepareOrder>),
    /// It is being launched or restored.
    Starting(Origin),
    /// It was made; its streams and relays are being tied to what carries them.
    Tying(Origin, Box<Made>),
    /// It is complete and waits for all others.
    Complete,
    /// It runs.
    Running,
    /// It is being killed.
    Dying,
}

/// Where an instance comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A program was started.
    Launched,
    /// An image was restored.
    Restored,
    /// An agent that has gone had made it.
    Adopted,
}

/// How the end of an instance's first process is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    pub status: ExitKind,
    /// Whether the coordinator knows it, or will after the console's last bytes.
    pub told: bool,
}

/// A commit that is being marked beside the image here, and beside its copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Committing {
    pub checkpoint: CheckpointNumber,
    /// How many of the two are missing.
    pub left: u8,
}

/// What an instance is to do once the lease is good again: as long as it is not, the coordinator may have begun the
/// instance anew elsewhere.
#[derive(Debug)]
pub(super) enum Unleased {
    /// To start.
    Launch(Box<LaunchOrder>),
    /// To run.
    Go,
}

/// An instance.
#[derive(Debug)]
pub(super) struct Instance {
    /// What a later agent must know.
    pub record: Record,
    pub state: State,
    /// It is to be killed as soon as it is there.
    pub doomed: bool,
    /// Its init, as this machine numbers it; 0: not known yet.
    pub init: i32,
    /// Whether the job's console is here.
    pub console: bool,
    /// Its sides of relays.
    pub relays: BTreeSet<RelaySide>,
    /// Those of them that bring output of the job to its console.
    pub sinks: BTreeSet<RelaySide>,
    /// Its connections whose peers have departed.
    pub skipped: Vec<Skipped>,
    /// Whether it only waits, in a job that does without some of its daemons; None: nobody looks.
    pub rests: Option<bool>,
    /// Its sinks write nothing until the job goes on after a checkpoint.
    pub withheld: bool,
    /// Links that came before their relays.
    pub links: Vec<RelayLink>,
    /// Its listening TCP sockets, as far as they are known.
    pub listeners: Vec<MovedListener>,
    /// Taken over from an agent that died; the coordinator has not heard of that yet.
    pub adopted: bool,
    /// Why what it has on its way to other instances is lost; the coordinator is told.
    pub relays_lost: Option<String>,
    /// Stands still, because the lease had run out.
    pub held: bool,
    /// The end of the lease under which an agent before let it run; 0: unknown, or there was none.
    pub lease_until: BootTime,
    /// What came when the lease had run out.
    pub unleased: Option<Unleased>,
    /// How its first process ended.
    pub ended: Option<Ended>,
    /// No process is left.
    pub empty: bool,
    /// Whether the coordinator that is connected has been told that.
    pub empty_told: bool,
    /// The checkpoint whose relays stand still.
    pub paused: Option<CheckpointNumber>,
    /// The checkpoint up to which its processes' efforts are being read.
    pub efforts: Option<CheckpointNumber>,
    /// The checkpoint that is being copied.
    pub copying: Option<CheckpointNumber>,
    /// The checkpoint that is written and copied, not committed, and the nodes that have it.
    pub copied: Option<(CheckpointNumber, Vec<NodeName>)>,
    /// The checkpoint that is being committed.
    pub committing: Option<Committing>,
}

impl Instance {
    /// Whether its processes run, unless they are held. Those of one that was restored do so once they are let go, all
    /// others from the beginning.
    pub fn may_run(&self) -> bool {
        matches!(self.state, State::Running | State::Tying(Origin::Launched | Origin::Adopted, _))
    }

    /// Until when it may run: by this agent's lease, or by that of the agent before.
    pub fn leased_until(&self, own: &Lease) -> BootTime {
        own.until().max(self.lease_until)
    }

    /// Whether its processes run.
    pub fn runs(&self) -> bool {
        self.may_run() && !self.held
    }

    /// One of which nothing is there yet.
    pub fn new(record: Record, state: State) -> Self {
        Self {
            record,
            state,
            doomed: false,
            init: 0,
            console: false,
            relays: BTreeSet::new(),
            sinks: BTreeSet::new(),
            skipped: Vec::new(),
            rests: None,
            withheld: false,
            links: Vec::new(),
            listeners: Vec::new(),
            adopted: false,
            relays_lost: None,
            held: false,
            lease_until: 0,
            unleased: None,
            ended: None,
            empty: false,
            empty_told: false,
            paused: None,
            efforts: None,
            copying: None,
            copied: None,
            committing: None,
        }
    }

    pub fn key(&self) -> &InstanceKey {
        &self.record.key
    }

    /// Whether processes of it may live.
    pub fn lives(&self) -> bool {
        matches!(self.state, State::Complete | State::Running)
    }

    /// Whether it is being made.
    pub fn is_starting(&self) -> bool {
        matches!(self.state, State::Starting(_) | State::Tying(..))
    }

    /// How its first process ended, if it has.
    pub fn status(&self) -> Option<ExitKind> {
        self.ended.map(|ended| ended.status)
    }
}
