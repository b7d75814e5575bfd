//! A simulated machine: its processes, its disk, its clock, and the real node that runs in its agent.
//!
//! The job is a counter that all its instances share, as ranks share the progress of an MPI job:
//! it grows only while all of them run, and the root prints a line for each number.

mod facts;

pub use facts::facts;

use ckpt_node::{Node, Record};
use command_tree::Line;
use coordinator::cluster::ClusterEntry;
use protocol::agent::{CheckpointNumber, ExitKind};
use protocol::cluster::agent::{NodeProfile, RelayLink, RelaySide, Rewire};
use protocol::cluster::image::ImageFacts;
use protocol::cluster::succession::Followed;
use protocol::cluster::{InstanceKey, NodeName};
use protocol::launch::LaunchSpec;
use std::collections::{BTreeMap, BTreeSet};

use crate::common::{self, Console, ImageName, new_node, profile};
use crate::random::Random;

/// What an image holds.
#[derive(Debug, Clone)]
pub struct Image {
    pub facts: ImageFacts,
    pub state: AppState,
    /// It came from another machine, and waits for the mark of its commit.
    pub waits: bool,
}

/// A process tree's own state.
#[derive(Debug, Clone, Default)]
pub struct AppState {
    pub counter: u64,
    pub target: u64,
    pub status: u8,
    pub pids: Vec<i32>,
    pub root: bool,
    /// Relay sides that its objects lead to.
    pub relays: Vec<RelaySide>,
    /// File, own address, peer's address, and which connection it is.
    pub sockets: Vec<(u32, String, String, String)>,
    /// Calls of remote shells: answered or not.
    pub calls: BTreeMap<u64, (NodeName, bool)>,
    pub next_call: u64,
    /// Its daemon has departed.
    pub orphaned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Restored,
    Running,
    Ended,
}

#[derive(Debug, Clone)]
pub struct Instance {
    pub key: InstanceKey,
    pub app: AppState,
    pub life: Life,
    /// Frozen for this checkpoint.
    pub frozen: Option<(CheckpointNumber, u64)>,
    pub quiesced: bool,
    pub snapshot: Option<(CheckpointNumber, AppState)>,
    /// All of its threads are stopped, by its agent or its init.
    pub held: bool,
    /// An agent died with its hands in it.
    pub touched: bool,
    /// Until when it may run with no agent there, on its machine's clock.
    pub lease_until: u64,
    pub links: BTreeMap<RelaySide, RelayLink>,
    pub rewired: Vec<Rewire>,
    pub console: Console,
    pub ended: Option<ExitKind>,
    /// Sides of relays that lead nowhere any more.
    pub silent: BTreeSet<RelaySide>,
    /// Its agent has lost bytes of its relays.
    pub relays_lost: bool,
    /// Its agent looks whether it only waits.
    pub watched: bool,
    /// It has come to its end, and only waits.
    pub rests: bool,
    /// How often its machine's address had changed when its connections were made.
    pub connected: u8,
}

impl Instance {
    /// One that is alone with itself: it knows of no other, and nobody has seen anything that it wrote.
    pub fn new(
        key: InstanceKey,
        app: AppState,
        life: Life,
        lease_until: u64,
        connected: u8,
    ) -> Self {
        Self {
            key,
            app,
            life,
            frozen: None,
            quiesced: false,
            snapshot: None,
            held: false,
            touched: false,
            lease_until,
            links: BTreeMap::new(),
            rewired: Vec::new(),
            console: Console::new(),
            ended: None,
            silent: BTreeSet::new(),
            relays_lost: false,
            watched: false,
            rests: false,
            connected,
        }
    }

    pub fn goes(&self) -> bool {
        self.life == Life::Running && self.frozen.is_none() && !self.held && self.ended.is_none()
    }

    /// It ends: its init lets nothing of it stand.
    pub fn end(&mut self) {
        self.life = Life::Ended;
        self.frozen = None;
        self.quiesced = false;
        self.held = false;
    }
}

/// A node's copy of the coordinator's folder.
#[derive(Debug, Clone, Default)]
pub struct Copy {
    pub log: Vec<ClusterEntry>,
    pub output: BTreeMap<String, Vec<u8>>,
}

impl Copy {
    pub fn cut(&mut self, length: usize) {
        self.output.values_mut().for_each(|log| log.truncate(length));
    }

    /// It has what has not been cut off meanwhile.
    pub fn shorten(&mut self, logs: &BTreeMap<String, Vec<u8>>) {
        for (job, log) in &mut self.output {
            let alike = logs.get(job).map_or(0, |now| {
                now.iter().zip(log.iter()).take_while(|(now, then)| now == then).count()
            });
            log.truncate(alike);
        }
    }
}

/// A machine's clock, which began some time ago and goes a little too fast or too slow.
#[derive(Debug, Clone, Copy)]
pub struct LocalClock {
    offset: u64,
    /// Millionths by which it is too fast.
    drift: i64,
}

/// The most by which a clock is wrong, in millionths: what quartz does at its worst.
const MOST_DRIFT: u64 = 200;

impl LocalClock {
    pub fn any(random: &mut Random) -> Self {
        let offset = random.millis(0, 1_000_000);
        let drift = i64::try_from(random.below(2 * MOST_DRIFT + 1)).unwrap();
        Self { offset, drift: drift - i64::try_from(MOST_DRIFT).unwrap() }
    }

    /// What it shows.
    pub fn shows(&self, now: u64) -> u64 {
        let ahead = i128::from(now) * i128::from(self.drift) / 1_000_000;
        u64::try_from(i128::from(self.offset) + i128::from(now) + ahead).unwrap()
    }

    /// When it shows that.
    pub fn when(&self, shown: u64) -> u64 {
        let since = u128::from(shown.saturating_sub(self.offset));
        let rate = u128::try_from(1_000_000 + self.drift).unwrap();
        u64::try_from(since * 1_000_000 / rate).unwrap() + 1
    }
}

/// An agent: the node, and what its driver would hold.
#[derive(Debug)]
pub struct Agent {
    pub node: Node,
    /// How often it beats.
    pub beat: u64,
    /// Connections of the command tree, by the line that each one is.
    pub lines: BTreeMap<Line, usize>,
    /// Members that it has been told of.
    pub peers: BTreeSet<NodeName>,
    /// Images that are here for instances to be restored.
    pub prepared: BTreeMap<InstanceKey, AppState>,
    /// Callers of remote shells that wait, by number: the instance, and its number of the call.
    pub callers: BTreeMap<u64, (InstanceKey, u64)>,
    pub next_caller: u64,
    /// Instances whose images are being copied.
    pub copying: BTreeSet<InstanceKey>,
    /// When the last of what an instance's engine was told will be done.
    pub busy_until: BTreeMap<InstanceKey, u64>,
}

#[derive(Debug)]
pub struct Machine {
    pub name: NodeName,
    pub index: u8,
    pub clock: LocalClock,
    /// How often its address has changed.
    pub moves: u8,
    /// The machine has power.
    pub up: bool,
    /// The agent, while it runs.
    pub agent: Option<Agent>,
    pub connection: Option<u64>,
    pub welcomed: bool,
    pub hello_sent: u64,
    pub welcomed_at: u64,
    pub instances: BTreeMap<InstanceKey, Instance>,
    /// What agents have written down of instances.
    pub records: BTreeMap<InstanceKey, Record>,
    pub disk: BTreeMap<ImageName, Image>,
    /// How often its agent was started.
    pub life: u64,
    /// Whether its agent was told to end, and has announced that.
    pub leaves: bool,
    /// Whether its agent was told to end, whatever became of that.
    pub told_to_end: bool,
    /// The coordinator that it follows, as its agents have written down.
    pub followed: Followed,
    pub copy: Option<Copy>,
    /// The newest checkpoint of each job that the coordinator told this machine to give up.
    pub given_up: BTreeMap<String, CheckpointNumber>,
}

pub fn launch_spec() -> LaunchSpec {
    common::launch_spec("nqueens")
}

impl Machine {
    pub fn new(name: NodeName, index: u8, clock: LocalClock) -> Self {
        Self {
            name,
            index,
            clock,
            moves: 0,
            up: true,
            agent: None,
            connection: None,
            welcomed: false,
            hello_sent: 0,
            welcomed_at: 0,
            instances: BTreeMap::new(),
            records: BTreeMap::new(),
            disk: BTreeMap::new(),
            life: 0,
            leaves: false,
            told_to_end: false,
            followed: Followed::default(),
            copy: None,
            given_up: BTreeMap::new(),
        }
    }

    /// An agent that knows nothing yet of what is here.
    pub fn start_agent(&mut self) {
        self.life += 1;
        self.leaves = false;
        self.told_to_end = false;
        let profile = NodeProfile { started_ms: self.life, ..profile(2) };
        self.agent = Some(Agent {
            node: new_node(self.name.clone(), profile, self.followed.clone()),
            beat: u64::try_from(Node::first_beat().as_nanos()).unwrap(),
            lines: BTreeMap::new(),
            peers: BTreeSet::new(),
            prepared: BTreeMap::new(),
            callers: BTreeMap::new(),
            next_caller: 0,
            copying: BTreeSet::new(),
            busy_until: BTreeMap::new(),
        });
    }

    pub fn crash(&mut self) {
        self.kill_agent();
        self.up = false;
        self.instances.clear();
        self.records.clear();
    }

    /// The agent dies; what it traced and copied is let go or lost.
    pub fn kill_agent(&mut self) {
        self.agent = None;
        self.leaves = false;
        self.connection = None;
        self.welcomed = false;
        // What was not complete dies with it.
        self.instances.retain(|_, instance| matches!(instance.life, Life::Running | Life::Ended));
        for instance in self.instances.values_mut() {
            // Where it had its hands in the job, the init keeps that from running on.
            instance.touched |= instance.frozen.is_some() && instance.quiesced;
            instance.held = instance.touched;
            instance.frozen = None;
            instance.quiesced = false;
            instance.snapshot = None;
            instance.watched = false;
            instance.console.lose_agent();
        }
    }

    /// Inits without an agent hold what they have when the lease has run out.
    pub fn keep_leases(&mut self, now: u64) {
        if self.agent.is_none() {
            let shown = self.clock.shows(now);
            let over = |instance: &&mut Instance| instance.lease_until <= shown;
            for instance in self.instances.values_mut().filter(over) {
                instance.held |= instance.life == Life::Running;
            }
        }
    }
}
