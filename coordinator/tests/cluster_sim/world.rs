//! The simulated world: a clock, a network, machines, a disk for the coordinator, faults; and the
//! judge of what the coordinator makes of it.

mod agents;
mod client;
mod drains;
mod engine;
mod faults;
mod judge;
mod leader;
mod lines;
mod making;
mod network;
mod nodes;

use self::engine::Task;
use self::lines::{Packet, Wire};
use crate::machine::{LocalClock, Machine};
use crate::random::Random;
use ckpt_node::Event;
use coordinator::Time;
use coordinator::cluster::{
    ClientId, ClusterEntry, ClusterEvent, ClusterMachine, ClusterSettings, SeededSecrets,
};
use protocol::agent::{ExitKind, InstanceId};
use protocol::cluster::agent::{FromAgent, JobUser, ToAgent};
use protocol::cluster::client::{Ask, LogPlace};
use protocol::cluster::{InstanceKey, NodeName};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

pub const MILLI: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLI;
/// When the last fault has been mended.
const PEACE: u64 = 20 * SECOND;
/// When the job must have ended.
const LIMIT: u64 = 400 * SECOND;
/// Nothing may stand still for longer, in peace.
const FREEZE_LIMIT: u64 = 40 * SECOND;

#[allow(clippy::large_enum_variant, reason = "few are there at a time")]
#[derive(Debug, Clone)]
enum Happening {
    ToCoordinator {
        node: usize,
        connection: u64,
        message: FromAgent,
        body: Vec<u8>,
    },
    ToNode {
        node: usize,
        connection: u64,
        message: ToAgent,
        body: Vec<u8>,
    },
    Disconnected {
        node: usize,
        connection: u64,
    },
    Reconnect {
        node: usize,
    },
    Beat {
        node: usize,
        life: u64,
    },
    /// An engine, or what works beside engines, has come to this.
    Engine {
        node: usize,
        life: u64,
        key: Option<InstanceKey>,
        task: Task,
    },
    Progress,
    Clock,
    /// Something arrives at an end of a connection of the command tree.
    Wire {
        wire: usize,
        end: usize,
        packet: Packet,
    },
    WireBroken {
        wire: usize,
        end: usize,
    },
    AgentClock {
        node: usize,
        life: u64,
    },
    Fault,
    Heal {
        node: usize,
        reset: bool,
    },
    Reboot {
        node: usize,
    },
    AgentStarts {
        node: usize,
    },
    CoordinatorStarts,
    /// Somebody carries on from a copy.
    TakeOver,
    CoordinatorGoesOn,
    LogWorks,
    Client,
    /// An operator drains a node, or has it take processes again.
    Drain,
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    pub rollbacks: u32,
    pub commits: u32,
    pub restarts: u32,
    pub recoveries: u32,
    /// Coordinators that were lost with their machines.
    pub lost: u32,
    /// Runs in which output was lost with one, and the log says so.
    pub lacking: u32,
    pub given_up: u32,
    pub superseded: u32,
    /// Steps that went by the command tree, and those of them that failed.
    pub by_tree: u32,
    pub tree_failed: u32,
    pub farewells: u32,
    pub leaves: u32,
    /// Moves away from drained nodes, and answers that one is empty.
    pub drains: u32,
    pub emptied: u32,
    pub joins: u32,
    /// Rollbacks for a machine's new address.
    pub addresses: u32,
    /// Whether it came to where it could only wait.
    pub rests: u32,
    pub ended_at_ms: u64,
}

/// Whether machines get other addresses: not with CKPTD_ADDRESSES=0.
pub fn addresses_change() -> bool {
    std::env::var("CKPTD_ADDRESSES").as_deref() != Ok("0")
}

pub struct World {
    random: Random,
    /// Whether addresses change: numbers of their own, so that the rest of a history is the same with and without.
    addresses: Random,
    /// Whether nodes are drained: numbers of their own, likewise.
    drains: Random,
    /// The node that is drained at the end, if any.
    stays_drained: Option<usize>,
    /// Since when something has run on a drained node though it could have moved away.
    lingers: BTreeMap<usize, u64>,
    seed: u64,
    now: u64,
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    next: u64,
    machine: Option<ClusterMachine>,
    stalled_coordinator: bool,
    inbox: VecDeque<ClusterEvent>,
    clock_at: Option<u64>,
    log: Vec<ClusterEntry>,
    /// Entries that are in some copy: nothing was done that follows from others.
    copied: usize,
    /// The lost one's machine: nothing more comes from there.
    machine_lost: bool,
    log_works: bool,
    job_logs: BTreeMap<String, Vec<u8>>,
    nodes: Vec<Machine>,
    /// The coordinator is letting a node go.
    bids_farewell: bool,
    wires: Vec<Wire>,
    /// The coordinator's clock on the wall when all began, in milliseconds.
    wall: u64,
    cut: Vec<bool>,
    held_back: Vec<Vec<Happening>>,
    last_to_node: Vec<u64>,
    last_to_coordinator: Vec<u64>,
    next_connection: u64,
    /// The newest connection of each node that the coordinator has heard of: what it sends goes there.
    links: BTreeMap<NodeName, u64>,
    settings: ClusterSettings,
    client: u64,
    job: Option<String>,
    waiting_client: bool,
    /// Of each epoch, the instances that the log has.
    expected: BTreeMap<u64, BTreeSet<InstanceId>>,
    target: u64,
    status: u8,
    copies: u32,
    /// Daemons are not restored: the job's end is known by its rest alone, once one has departed.
    fallback: bool,
    over: Option<ExitKind>,
    committed: BTreeSet<u64>,
    /// What was committed when an epoch last began to run, and the checkpoint that it began from.
    last_run: Option<(BTreeSet<u64>, Option<u64>)>,
    last_checkpoint: Option<u64>,
    /// The user went on from a checkpoint that the job had left behind: what the log had of it was
    /// put aside when the job ran from an older one.
    superseded: bool,
    /// Nothing is lost: nodes only say goodbye, come back and join late.
    calm: bool,
    /// Nodes, the last ones, that join in the middle of the job.
    late: usize,
    /// The job has ended by itself, with all its machines there, and no machine, agent or link has failed since:
    /// whatever becomes of the coordinator, it has ended.
    ended_well: bool,
    /// What a client that was there from the beginning has been shown of the job's output.
    seen: Vec<u8>,
    /// Up to where.
    shown: Option<LogPlace>,
    /// The line about daemons that are not restored, since the job last went on.
    not_restored: Option<String>,
    outcome: Outcome,
    pub trace: bool,
}

impl World {
    /// A history in which nodes only say goodbye, come back and join late.
    pub fn calm(seed: u64) -> Self {
        Self { calm: true, ..Self::new(seed) }
    }

    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = usize::try_from(2 + random.below(4)).unwrap();
        let mut clocks = Random::new(seed ^ 0xc10c);
        let nodes: Vec<Machine> = (0..count)
            .map(|index| {
                let name = format!("node{}", index + 1).parse().unwrap();
                let clock = LocalClock::any(&mut clocks);
                Machine::new(name, u8::try_from(index + 1).unwrap(), clock)
            })
            .collect();
        // Every other history uses the command tree for whatever it can.
        let tree_above = if seed % 2 == 0 { 0 } else { 8 };
        // In three of four, images go ahead of moves.
        let ahead_from = if seed / 2 % 4 == 0 { u64::MAX } else { 1 };
        let settings = ClusterSettings {
            grace: 3 * SECOND,
            tree_above,
            ahead_from,
            ..ClusterSettings::default()
        };
        let machine = ClusterMachine::new(settings.clone(), Self::secrets(seed));
        let target = 20 + random.below(100);
        let fallback = random.chance(250);
        let status = if !fallback && random.chance(300) { 3 } else { 0 };
        let copies = u32::try_from(1 + random.below(3)).unwrap();
        let mut drains = Random::new(seed ^ 0xd7a1);
        let stays = drains.chance(500);
        let stays_drained = stays.then(|| usize::try_from(drains.below(count as u64)).unwrap());
        let mut world = Self {
            random,
            addresses: Random::new(seed ^ 0xadd7e55),
            drains,
            stays_drained,
            lingers: BTreeMap::new(),
            seed,
            now: 0,
            heap: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            next: 0,
            machine: Some(machine),
            stalled_coordinator: false,
            inbox: VecDeque::new(),
            clock_at: None,
            log: vec![ClusterEntry::Opened { format: 1 }],
            copied: 0,
            machine_lost: false,
            log_works: true,
            job_logs: BTreeMap::new(),
            cut: vec![false; count],
            held_back: vec![Vec::new(); count],
            last_to_node: vec![0; count],
            last_to_coordinator: vec![0; count],
            next_connection: 1,
            links: BTreeMap::new(),
            nodes,
            bids_farewell: false,
            wires: Vec::new(),
            wall: 1_000_000,
            settings,
            client: 0,
            job: None,
            waiting_client: false,
            expected: BTreeMap::new(),
            target,
            status,
            copies,
            fallback,
            over: None,
            committed: BTreeSet::new(),
            last_run: None,
            last_checkpoint: None,
            superseded: false,
            calm: false,
            late: 0,
            ended_well: false,
            seen: Vec::new(),
            shown: Some(LogPlace::default()),
            not_restored: None,
            outcome: Outcome::default(),
            trace: std::env::var("CKPTD_TRACE").is_ok(),
        };
        world.late = usize::from(count > 2 && world.random.chance(300));
        for node in 0..count {
            if node + world.late >= count {
                // It joins in the middle of the job.
                world.later(1000, 9000, Happening::AgentStarts { node });
            } else {
                world.later(1, 50, Happening::AgentStarts { node });
            }
        }
        world.later(10, 10, Happening::Progress);
        world.later(100, 100, Happening::Client);
        world.later(100, 4000, Happening::Fault);
        let first = world.drains.millis(100, 6000);
        world.at(first, Happening::Drain);
        world
    }

    fn secrets(seed: u64) -> SeededSecrets {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        SeededSecrets::new(bytes)
    }

    fn time(&self) -> Time {
        Time { nanos: self.now, unix_ms: self.wall + self.now / MILLI }
    }

    fn at(&mut self, when: u64, happening: Happening) {
        self.next += 1;
        self.heap.push(Reverse((when, self.next)));
        self.happenings.insert(self.next, happening);
    }

    fn later(&mut self, from: u64, to: u64, happening: Happening) {
        let delay = self.random.millis(from, to);
        self.at(self.now + delay, happening);
    }

    /// Runs until the job has ended and all is quiet.
    pub fn run(mut self) -> Outcome {
        while let Some(Reverse((when, number))) = self.heap.pop() {
            let happening = self.happenings.remove(&number).unwrap();
            self.now = when;
            assert!(self.now < LIMIT, "the job does not end: {}", self.describe());
            self.happen(happening);
            if self.over.is_some() && self.now > PEACE {
                break;
            }
            if self.outcome.given_up > 0 {
                return self.outcome;
            }
        }
        self.judge_end();
        self.outcome
    }

    fn describe(&mut self) -> String {
        let now = self.time();
        let status = self.machine.as_mut().map(|machine| {
            let client = ClientId { node: None, connection: 0, number: 999_999 };
            let root = JobUser { uid: 0, name: "root".to_owned() };
            let ask = Ask::Status { job: None };
            machine.step(now, ClusterEvent::Asked { client, user: root, ask })
        });
        let nodes: Vec<String> = self
            .nodes
            .iter()
            .map(|node| {
                let instances: Vec<String> = node
                    .instances
                    .values()
                    .map(|i| {
                        format!(
                            "{} {:?} held {} frozen {:?} ended {:?} calls {:?} rests {:?}",
                            i.key, i.life, i.held, i.frozen, i.ended, i.app.calls, i.rests
                        )
                    })
                    .collect();
                format!(
                    "{} up {} agent {} connection {:?}: {instances:?}",
                    node.name,
                    node.up,
                    node.agent.is_some(),
                    node.connection,
                )
            })
            .collect();
        let tail: Vec<&ClusterEntry> = self.log.iter().rev().take(8).collect();
        format!("seed {}: {status:?}\n{nodes:#?}\nlog's end {tail:#?}", self.seed)
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::ToCoordinator { node, connection, message, body } => {
                if self.cut[node] {
                    let again = Happening::ToCoordinator { node, connection, message, body };
                    self.held_back[node].push(again);
                } else if self.machine.is_some() {
                    let node = self.nodes[node].name.clone();
                    self.feed(ClusterEvent::Agent { node, connection, message, body });
                }
            }
            Happening::ToNode { node, connection, message, body } => {
                if self.cut[node] {
                    let again = Happening::ToNode { node, connection, message, body };
                    self.held_back[node].push(again);
                } else if self.nodes[node].connection == Some(connection) {
                    self.deliver(node, connection, message, body);
                }
            }
            Happening::Disconnected { node, connection } => {
                if self.cut[node] {
                    let again = Happening::Disconnected { node, connection };
                    self.held_back[node].push(again);
                } else {
                    let node = self.nodes[node].name.clone();
                    self.feed(ClusterEvent::Disconnected { node, connection });
                }
            }
            Happening::Reconnect { node } => self.reconnect(node),
            Happening::Beat { node, life } => {
                if self.nodes[node].agent.is_none() || self.nodes[node].life != life {
                    return;
                }
                self.step(node, Event::Tick { address_lost: false, charge: None });
                self.call(node);
                if let Some(agent) = &self.nodes[node].agent {
                    let at = self.now + agent.beat;
                    self.at(at, Happening::Beat { node, life });
                }
            }
            Happening::Engine { node, life, key, task } => self.work(node, life, key, task),
            Happening::Progress => {
                self.progress();
                self.judge_drained();
                self.later(30, 60, Happening::Progress);
            }
            Happening::Clock => {
                if self.clock_at.is_some_and(|at| at <= self.now) {
                    self.clock_at = None;
                    self.feed(ClusterEvent::Clock);
                }
            }
            Happening::Fault => self.fault(),
            Happening::Wire { wire, end, packet } => self.arrives(wire, end, packet),
            Happening::WireBroken { wire, end } => self.wire_broken(wire, end),
            Happening::AgentClock { node, life } => self.agent_clock(node, life),
            Happening::Heal { node, reset } => self.heal(node, reset),
            Happening::Reboot { node } => {
                if !self.nodes[node].up {
                    self.nodes[node].up = true;
                    self.start_agent(node);
                }
            }
            Happening::AgentStarts { node } => {
                if self.nodes[node].up && self.nodes[node].agent.is_none() {
                    self.start_agent(node);
                }
            }
            Happening::CoordinatorStarts if self.machine_lost => {}
            Happening::CoordinatorStarts => self.recover(),
            Happening::TakeOver => self.take_over(),
            Happening::CoordinatorGoesOn => {
                self.stalled_coordinator = false;
                for event in std::mem::take(&mut self.inbox) {
                    self.feed(event);
                }
            }
            Happening::LogWorks => self.log_works = true,
            Happening::Nothing => {}
            Happening::Drain => self.drain(),
            Happening::Client => {
                self.client_acts();
                self.later(300, 700, Happening::Client);
            }
        }
    }
}
