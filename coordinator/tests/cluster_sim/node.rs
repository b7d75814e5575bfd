//! A simulated machine: its agent, its instances, its disk.
//!
//! The job is a counter that all its instances share, as ranks share the progress of an MPI job:
//! it grows only while all of them run, and the root prints a line for each number.

mod facts;
mod making;
mod orders;
mod steps;

pub use facts::written;

use coordinator::cluster::ClusterEntry;
use protocol::agent::{CheckpointNumber, ExitKind, InstanceId};
use protocol::cluster::agent::{
    FromAgent, HeldInstance, Holding, NodeProfile, RelayLink, RelaySide, Rewire, Vitals,
};
use protocol::cluster::image::ImageFacts;
use protocol::cluster::{InstanceKey, NodeName, VERSION};
use protocol::launch::LaunchSpec;
use std::collections::{BTreeMap, BTreeSet};

use crate::common;
use crate::world::tree::Part;

/// Job, instance, checkpoint.
pub type ImageName = (String, InstanceId, CheckpointNumber);

/// How a node fetches an image from another one.
pub type Fetch<'a> = &'a dyn Fn(&NodeName, &ImageName) -> Option<Image>;

/// What an image holds.
#[derive(Debug, Clone)]
pub struct Image {
    pub facts: ImageFacts,
    pub state: AppState,
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
    Prepared,
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
    pub links: BTreeMap<RelaySide, RelayLink>,
    pub rewired: Vec<Rewire>,
    pub partners: Vec<NodeName>,
    pub console: Vec<u8>,
    pub kept: u64,
    pub ended: Option<ExitKind>,
    /// Sides of relays that lead nowhere any more.
    pub silent: BTreeSet<RelaySide>,
    /// Its agent has said that bytes of its relays are lost.
    pub relays_lost: bool,
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
        partners: Vec<NodeName>,
        connected: u8,
    ) -> Self {
        Self {
            key,
            app,
            life,
            frozen: None,
            quiesced: false,
            snapshot: None,
            links: BTreeMap::new(),
            rewired: Vec::new(),
            partners,
            console: Vec::new(),
            kept: 0,
            ended: None,
            silent: BTreeSet::new(),
            relays_lost: false,
            rests: false,
            connected,
        }
    }

    pub fn goes(&self) -> bool {
        self.life == Life::Running && self.frozen.is_none() && self.ended.is_none()
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

#[derive(Debug)]
pub struct Node {
    pub name: NodeName,
    pub index: u8,
    /// How often its address has changed.
    pub moves: u8,
    /// The machine has power.
    pub up: bool,
    /// The agent runs.
    pub agent: bool,
    pub connection: Option<u64>,
    pub welcomed: bool,
    pub sequence: u64,
    pub sent_at: BTreeMap<u64, u64>,
    /// Until when what runs here may go on.
    pub lease_until: u64,
    pub lease: u64,
    pub hello_sent: u64,
    pub welcomed_at: u64,
    /// What is said once the coordinator has said Welcome.
    pub outbox: Vec<(FromAgent, Vec<u8>)>,
    pub heartbeat: u64,
    pub instances: BTreeMap<InstanceKey, Instance>,
    pub disk: BTreeMap<ImageName, Image>,
    pub left: bool,
    /// How often its agent was started.
    pub life: u64,
    /// Whether its agent was told to end, and has announced that.
    pub leaves: bool,
    /// The highest term that it has heard of.
    pub term: u64,
    pub copy: Option<Copy>,
    /// Told by a new agent about instances that it took over.
    pub adopted: BTreeSet<InstanceKey>,
    pub tree: Part,
    /// The newest checkpoint of each job that the coordinator told this machine to give up.
    pub given_up: BTreeMap<String, CheckpointNumber>,
}

/// What an agent wants done.
#[derive(Debug)]
pub enum Out {
    Send(FromAgent, Vec<u8>),
    /// Copy an image to a partner.
    Copy(NodeName, ImageName, Image),
}

pub fn launch_spec() -> LaunchSpec {
    common::launch_spec("nqueens")
}

impl Node {
    pub fn new(name: NodeName, index: u8) -> Self {
        Self {
            tree: Part::new(name.clone()),
            given_up: BTreeMap::new(),
            name,
            index,
            moves: 0,
            up: true,
            agent: true,
            connection: None,
            welcomed: false,
            sequence: 0,
            term: 1,
            copy: None,
            sent_at: BTreeMap::new(),
            lease_until: 0,
            lease: 0,
            hello_sent: 0,
            welcomed_at: 0,
            outbox: Vec::new(),
            heartbeat: 300_000_000,
            instances: BTreeMap::new(),
            disk: BTreeMap::new(),
            left: false,
            life: 1,
            leaves: false,
            adopted: BTreeSet::new(),
        }
    }

    pub fn profile(&self) -> NodeProfile {
        NodeProfile {
            address: format!("10.0.{}.{}:7000", self.moves, self.index).parse().unwrap(),
            wire: format!("10.0.{}.{}:7001", self.moves, self.index).parse().unwrap(),
            addresses: Vec::new(),
            slots: 2,
            cores: 2,
            speed: None,
            speed_all: None,
            capacity: None,
            speed_given: false,
            architecture: "x86_64".to_owned(),
            page_size: 4096,
            vdso: "00".to_owned(),
            features: Vec::new(),
            memory_top: 0,
            memory: 1 << 30,
            kernel: "6".to_owned(),
            allow_root: true,
            started_ms: self.life,
        }
    }

    pub fn hello(&self) -> FromAgent {
        let instances = self
            .instances
            .values()
            .map(|instance| HeldInstance {
                key: instance.key.clone(),
                adopted: self.adopted.contains(&instance.key),
                held: false,
                ended: instance.ended,
                flushes: instance.ended.is_some() && self.tells_ends_again(),
            })
            .collect();
        let mut holdings: BTreeMap<(String, InstanceId), Vec<CheckpointNumber>> = BTreeMap::new();
        for (job, instance, checkpoint) in self.disk.keys() {
            holdings.entry((job.clone(), *instance)).or_default().push(*checkpoint);
        }
        let holdings = holdings
            .into_iter()
            .map(|((job, instance), checkpoints)| Holding { job, instance, checkpoints })
            .collect();
        let (version, term) = (VERSION, self.term);
        let (followed, profile) = (None, self.profile());
        FromAgent::Hello { version, term, followed, profile, instances, holdings }
    }

    /// Whether this agent says once more, behind the last output, how a job's first process has ended.
    pub fn tells_ends_again(&self) -> bool {
        (self.life + u64::from(self.index)) % 2 == 0
    }

    pub fn beat(&mut self, now: u64) -> FromAgent {
        self.sequence += 1;
        self.sent_at.insert(self.sequence, now);
        // Now and then a machine is throttled for a while.
        let slow = (self.sequence / 16 + u64::from(self.index)) % 7 == 0;
        let capacity = slow.then_some(0.4);
        FromAgent::Heartbeat {
            sequence: self.sequence,
            vitals: Vitals { capacity, achieved: slow, ..Vitals::default() },
        }
    }

    pub fn crash(&mut self) {
        self.up = false;
        self.kill_agent();
        self.instances.clear();
        self.lease_until = 0;
    }

    /// Its next agent knows nothing of what this one was told.
    pub fn begin_anew(&mut self) {
        self.life += 1;
        self.tree = Part::new(self.name.clone());
    }

    /// The agent dies; what it traced and copied is let go or lost.
    pub fn kill_agent(&mut self) {
        self.agent = false;
        self.begin_anew();
        self.leaves = false;
        self.connection = None;
        self.welcomed = false;
        self.sent_at.clear();
        // Where it had its hands in the job, the init keeps that from running on.
        self.instances.retain(|_, instance| instance.frozen.is_none() || !instance.quiesced);
        for instance in self.instances.values_mut() {
            instance.frozen = None;
            instance.quiesced = false;
            instance.snapshot = None;
            self.adopted.insert(instance.key.clone());
        }
        // What was not complete dies with it.
        self.instances.retain(|_, instance| matches!(instance.life, Life::Running | Life::Ended));
    }
}
