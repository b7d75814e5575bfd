//! The simulated world: a clock, a network, machines, a disk for the coordinator, faults; and the
//! judge of what the coordinator makes of it.

pub mod tree;

use crate::node::{Copy, Life, Node, Out, launch_spec, written};
use crate::random::Random;
use base64::Engine;
use coordinator::Time;
use coordinator::cluster::entry::Cause;
use coordinator::cluster::{
    ClientId, ClusterAction, ClusterEntry, ClusterEvent, ClusterMachine, ClusterSettings,
    SeededSecrets,
};
use protocol::agent::{AgentId, ExitKind};
use protocol::cluster::NodeName;
use protocol::cluster::agent::{FromAgent, JobUser, RelaySide, Stream, ToAgent};
use protocol::cluster::client::{Answer, Ask, LogPlace, RestartRequest, RunRequest};
use protocol::cluster::settings::{Daemons, Interval, JobSettings};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use tree::{Packet, Wire};

pub const MILLI: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLI;
/// When the last fault has been mended.
const PEACE: u64 = 20 * SECOND;
/// When the job must have ended.
const LIMIT: u64 = 400 * SECOND;
/// Nothing may stand still for longer, in peace.
const FREEZE_LIMIT: u64 = 40 * SECOND;

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
    TreeClock {
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
    pub joins: u32,
    /// Rollbacks for a machine's new address.
    pub addresses: u32,
    /// Whether it came to where it could only wait.
    pub rests: u32,
    pub ended_at_ms: u64,
}

/// Whether machines get other addresses: with CKPTD_ADDRESSES. About one in a thousand of these histories does not end yet.
pub fn addresses_change() -> bool {
    std::env::var_os("CKPTD_ADDRESSES").is_some()
}

pub struct World {
    random: Random,
    /// Whether addresses change: numbers of their own, so that the rest of a history is the same with and without.
    addresses: Random,
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
    nodes: Vec<Node>,
    wires: Vec<Wire>,
    /// The coordinator's clock on the wall when all began, in milliseconds.
    wall: u64,
    cut: Vec<bool>,
    held_back: Vec<Vec<Happening>>,
    last_to_node: Vec<u64>,
    last_to_coordinator: Vec<u64>,
    next_connection: u64,
    settings: ClusterSettings,
    client: u64,
    job: Option<String>,
    waiting_client: bool,
    /// Of each epoch, the instances that the log has.
    expected: BTreeMap<u64, BTreeSet<AgentId>>,
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

fn user() -> JobUser {
    JobUser { uid: 1000, name: "u".to_owned() }
}

impl World {
    /// A history in which nodes only say goodbye, come back and join late.
    pub fn calm(seed: u64) -> Self {
        Self { calm: true, ..Self::new(seed) }
    }

    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = usize::try_from(2 + random.below(4)).unwrap();
        let nodes: Vec<Node> = (0..count)
            .map(|index| {
                let name = format!("node{}", index + 1).parse().unwrap();
                Node::new(name, u8::try_from(index + 1).unwrap())
            })
            .collect();
        // Every other history uses the command tree for whatever it can.
        let tree_above = if seed % 2 == 0 { 0 } else { 8 };
        let settings =
            ClusterSettings { grace: 3 * SECOND, tree_above, ..ClusterSettings::default() };
        let machine = ClusterMachine::new(settings.clone(), Self::secrets(seed));
        let target = 20 + random.below(100);
        let fallback = random.chance(250);
        let status = if !fallback && random.chance(300) { 3 } else { 0 };
        let copies = u32::try_from(1 + random.below(3)).unwrap();
        let mut world = Self {
            random,
            addresses: Random::new(seed ^ 0xadd7e55),
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
            nodes,
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
                world.later(1000, 9000, Happening::Reconnect { node });
            } else {
                world.later(1, 50, Happening::Reconnect { node });
            }
            world.later(1, 300, Happening::Beat { node });
        }
        world.later(10, 10, Happening::Progress);
        world.later(100, 100, Happening::Client);
        world.later(100, 4000, Happening::Fault);
        world
    }

    fn secrets(seed: u64) -> Box<SeededSecrets> {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Box::new(SeededSecrets::new(bytes))
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
                            "{} {:?} frozen {:?} ended {:?} calls {:?}",
                            i.key, i.life, i.frozen, i.ended, i.app.calls
                        )
                    })
                    .collect();
                format!(
                    "{} up {} agent {} connection {:?} lease {}: {instances:?}",
                    node.name,
                    node.up,
                    node.agent,
                    node.connection,
                    node.lease_until / MILLI
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
            Happening::ToNode { node, connection, message } => {
                if self.cut[node] {
                    let again = Happening::ToNode { node, connection, message };
                    self.held_back[node].push(again);
                } else if self.nodes[node].connection == Some(connection) {
                    self.deliver(node, message);
                }
            }
            Happening::Disconnected { node, connection } => {
                let node = self.nodes[node].name.clone();
                self.feed(ClusterEvent::Disconnected { node, connection });
            }
            Happening::Reconnect { node } => self.reconnect(node),
            Happening::Beat { node } => {
                if self.nodes[node].welcomed && self.nodes[node].connection.is_some() {
                    let beat = self.nodes[node].beat(self.now);
                    self.send(node, beat, Vec::new());
                }
                let period = self.nodes[node].heartbeat;
                self.at(self.now + period, Happening::Beat { node });
            }
            Happening::Progress => {
                self.progress();
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
            Happening::TreeClock { node, life } => self.tree_clock(node, life),
            Happening::Heal { node, reset } => self.heal(node, reset),
            Happening::Reboot { node } => {
                if !self.nodes[node].up {
                    self.nodes[node].up = true;
                    self.nodes[node].agent = true;
                    self.later(1, 100, Happening::Reconnect { node });
                }
            }
            Happening::AgentStarts { node } => {
                if self.nodes[node].up && !self.nodes[node].agent {
                    self.nodes[node].agent = true;
                    self.later(1, 100, Happening::Reconnect { node });
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
            Happening::Client => {
                self.client_acts();
                self.later(300, 700, Happening::Client);
            }
        }
    }

    // The network.

    fn send(&mut self, node: usize, message: FromAgent, body: Vec<u8>) {
        if self.tells_tree(node, &message) {
            return;
        }
        let Some(connection) = self.nodes[node].connection else { return };
        if !self.nodes[node].welcomed && !matches!(message, FromAgent::Hello { .. }) {
            // Nothing is said between Hello and Welcome.
            self.nodes[node].outbox.push((message, body));
            return;
        }
        let delay = self.random.millis(0, 20);
        let when = (self.now + delay).max(self.last_to_coordinator[node] + 1);
        self.last_to_coordinator[node] = when;
        self.at(when, Happening::ToCoordinator { node, connection, message, body });
    }

    fn reconnect(&mut self, node: usize) {
        let able = self.nodes[node].up
            && self.nodes[node].agent
            && !self.nodes[node].left
            && self.nodes[node].connection.is_none();
        if !able {
            return;
        }
        if self.machine.is_none() || self.cut[node] {
            self.later(50, 300, Happening::Reconnect { node });
            return;
        }
        self.nodes[node].connection = Some(self.next_connection);
        self.next_connection += 1;
        self.nodes[node].welcomed = false;
        self.nodes[node].hello_sent = self.now;
        self.nodes[node].outbox.clear();
        let hello = self.nodes[node].hello();
        self.send(node, hello, Vec::new());
    }

    /// A connection ends; the coordinator sees it after what had been sent before.
    fn hang_up(&mut self, node: usize) {
        let Some(connection) = self.nodes[node].connection.take() else { return };
        self.nodes[node].welcomed = false;
        self.nodes[node].sent_at.clear();
        let when = self.last_to_coordinator[node].max(self.now) + 1;
        self.last_to_coordinator[node] = when;
        self.at(when, Happening::Disconnected { node, connection });
    }

    fn heal(&mut self, node: usize, reset: bool) {
        if !self.cut[node] {
            return;
        }
        self.cut[node] = false;
        let waiting = std::mem::take(&mut self.held_back[node]);
        if reset {
            // What is on its way was sent after what is lost here: it does not come either.
            for happening in self.happenings.values_mut() {
                let lost = matches!(happening,
                    Happening::ToCoordinator { node: of, .. } | Happening::ToNode { node: of, .. }
                    if *of == node);
                if lost {
                    *happening = Happening::Nothing;
                }
            }
            self.hang_up(node);
            if addresses_change() && self.addresses.chance(200) {
                self.change_address(node);
            }
            self.later(1, 100, Happening::Reconnect { node });
        } else {
            let mut waiting = waiting;
            // What was sent later comes later.
            for happening in self.happenings.values_mut() {
                let of_link = match happening {
                    Happening::ToCoordinator { node: of, .. }
                    | Happening::ToNode { node: of, .. }
                    | Happening::Disconnected { node: of, .. } => *of == node,
                    _ => false,
                };
                if of_link {
                    waiting.push(std::mem::replace(happening, Happening::Nothing));
                }
            }
            for happening in waiting {
                let to_node = matches!(happening, Happening::ToNode { .. });
                let last =
                    if to_node { &mut self.last_to_node } else { &mut self.last_to_coordinator };
                last[node] = last[node].max(self.now) + 1;
                let when = last[node];
                self.at(when, happening);
            }
        }
    }

    // The nodes.

    fn index(&self, name: &NodeName) -> usize {
        self.nodes.iter().position(|node| node.name == *name).unwrap()
    }

    fn deliver(&mut self, node: usize, message: ToAgent) {
        if self.trace {
            eprintln!("{:>7} -> {}: {}", self.now / MILLI, self.nodes[node].name, brief(&message));
        }
        match &message {
            ToAgent::Go { key, links, .. } => self.judge_go(key, links),
            ToAgent::Keep { images, .. } => self.judge_keep(images),
            ToAgent::Launch(order) => self.judge_alone(order.key.epoch),
            ToAgent::Instance { key, command } => self.judge_step(node, key, command),
            _ => {}
        }
        self.tree_told(node, &message);
        let reach: Vec<(NodeName, bool)> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(index, other)| {
                let reached = index == node
                    || (other.up && other.agent && !self.cut[index] && !self.cut[node]);
                (other.name.clone(), reached)
            })
            .collect();
        let disks: Vec<_> = self.nodes.iter().map(|node| node.disk.clone()).collect();
        let fetch = |name: &NodeName, image: &(String, AgentId, u64)| {
            let index = reach.iter().position(|(other, _)| other == name)?;
            if reach[index].1 { disks[index].get(image).cloned() } else { None }
        };
        let welcome = matches!(message, ToAgent::Welcome { .. });
        let out = self.nodes[node].handle(self.now, message, &mut self.random, &fetch);
        if welcome {
            let lease = self.nodes[node].lease;
            let sent = self.nodes[node].hello_sent;
            self.nodes[node].lease_until = self.nodes[node].lease_until.max(sent + lease);
        }
        let mut copies: BTreeMap<(String, AgentId, u64), Vec<NodeName>> = BTreeMap::new();
        for one in out {
            match one {
                Out::Send(message, body) => self.send(node, message, body),
                Out::Copy(to, name, image) => {
                    let index = self.index(&to);
                    copies.entry(name.clone()).or_default();
                    if reach[index].1 {
                        self.nodes[index].disk.insert(name.clone(), image);
                        copies.entry(name).or_default().push(to);
                    }
                }
            }
        }
        if welcome {
            for (message, body) in std::mem::take(&mut self.nodes[node].outbox) {
                self.send(node, message, body);
            }
        }
        if let Some((name, mut holders)) = copies.into_iter().next() {
            holders.push(self.nodes[node].name.clone());
            self.tell_written(node, &name, holders);
        } else {
            // An image without a partner is told of as well.
            self.tell_lone_images(node);
        }
        if self.nodes[node].left {
            let others_stay = self.judge_farewell(node);
            self.hang_up(node);
            // Somebody starts it again later, at times with another disk.
            self.nodes[node].left = false;
            self.nodes[node].leaves = false;
            self.nodes[node].begin_anew();
            self.nodes[node].instances.clear();
            if others_stay && self.random.chance(300) {
                self.nodes[node].disk.clear();
            }
            self.outcome.farewells += 1;
            self.later(1000, 5000, Happening::Reconnect { node });
        }
    }

    fn tell_written(&mut self, node: usize, name: &(String, AgentId, u64), holders: Vec<NodeName>) {
        let image = self.nodes[node].disk[name].clone();
        let found = self.nodes[node]
            .instances
            .values_mut()
            .find(|instance| instance.key.instance == name.1 && instance.life == Life::Running);
        let Some(instance) = found else { return };
        instance.snapshot = None;
        let key = instance.key.clone();
        for message in written(&key, name.2, &image, holders) {
            self.send(node, message, Vec::new());
        }
    }

    fn tell_lone_images(&mut self, node: usize) {
        let done: Vec<(String, AgentId, u64)> = self.nodes[node]
            .instances
            .values()
            .filter_map(|instance| {
                let (checkpoint, _) = instance.snapshot.as_ref()?;
                let name = (instance.key.job.clone(), instance.key.instance, *checkpoint);
                self.nodes[node].disk.contains_key(&name).then_some(name)
            })
            .collect();
        for name in done {
            let holders = vec![self.nodes[node].name.clone()];
            self.tell_written(node, &name, holders);
        }
    }

    /// Everything of a job that is complete goes on.
    fn progress(&mut self) {
        self.wear_wires();
        let now = self.now;
        let mut going: BTreeMap<u64, Vec<(usize, protocol::cluster::InstanceKey)>> =
            BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            for instance in node.instances.values() {
                if instance.goes() && node.up && now < node.lease_until {
                    going
                        .entry(instance.key.epoch)
                        .or_default()
                        .push((index, instance.key.clone()));
                }
                if let Some((checkpoint, since)) = instance.frozen {
                    assert!(
                        now - since.max(PEACE.min(now)) < FREEZE_LIMIT,
                        "frozen for checkpoint {checkpoint} for ever: {}",
                        instance.key
                    );
                }
            }
        }
        assert!(going.len() <= 1, "two epochs run at a time: {going:?}");
        let Some((epoch, members)) = going.into_iter().next() else { return };
        let root = members.iter().find(|(index, key)| self.nodes[*index].instances[key].app.root);
        let Some((root_node, root_key)) = root.cloned() else { return };
        let root = &self.nodes[root_node].instances[&root_key];
        if root.app.calls.values().any(|(_, answered)| !answered) {
            return;
        }
        let present: BTreeSet<AgentId> = members.iter().map(|(_, key)| key.instance).collect();
        let expected = self.expected.get(&epoch).cloned().unwrap_or_default();
        let exists = |instance: &AgentId| {
            self.nodes.iter().any(|node| {
                node.up
                    && node
                        .instances
                        .keys()
                        .any(|key| key.epoch == epoch && key.instance == *instance)
            })
        };
        if expected.iter().any(|instance| !exists(instance)) {
            if self.random.chance(100) {
                // An MPI run time gives up when a connection ends.
                self.end_root(root_node, &root_key, 205);
            }
            return;
        }
        if expected != present {
            return;
        }
        let counters: BTreeSet<u64> = members
            .iter()
            .map(|(index, key)| self.nodes[*index].instances[key].app.counter)
            .collect();
        assert!(
            counters.len() == 1,
            "instances of one epoch differ in their progress: {counters:?}"
        );
        if !self.is_wired(&members) || !self.is_connected(&members) {
            return;
        }
        let departed = members.iter().any(|(index, key)| {
            let instance = &self.nodes[*index].instances[key];
            instance.app.orphaned || !instance.silent.is_empty()
        });
        let reached = counters.iter().max().is_some_and(|counter| *counter >= self.target);
        if self.fallback && departed && reached {
            self.rest(&members);
            return;
        }
        let counter = counters.iter().max().unwrap() + 1;
        for (index, key) in &members {
            self.nodes[*index].instances.get_mut(key).unwrap().app.counter = counter;
        }
        let root = self.nodes[root_node].instances.get_mut(&root_key).unwrap();
        let line = format!("line {counter}\n").into_bytes();
        let offset = root.console.len() as u64;
        root.console.extend_from_slice(&line);
        let (target, status) = (root.app.target, root.app.status);
        let console = FromAgent::Console { key: root_key.clone(), offset, stream: Stream::Output };
        self.send(root_node, console, line);
        if counter >= target && !(self.fallback && departed) {
            self.end_root(root_node, &root_key, status);
        }
    }

    /// Everybody waits for somebody who will not answer.
    fn rest(&mut self, members: &[(usize, protocol::cluster::InstanceKey)]) {
        for (node, key) in members {
            let instance = self.nodes[*node].instances.get_mut(key).unwrap();
            if !std::mem::replace(&mut instance.rests, true) {
                self.outcome.rests = 1;
                let rest = FromAgent::Rest { key: key.clone(), waits: true };
                self.send(*node, rest, Vec::new());
            }
        }
    }

    fn end_root(&mut self, node: usize, key: &protocol::cluster::InstanceKey, status: u8) {
        if self.trace {
            eprintln!("{:>7} the root ends with {status}", self.now / MILLI);
        }
        let whole = |index: usize| {
            let node = &self.nodes[index];
            node.up && node.agent && !self.cut[index]
        };
        self.ended_well = status == self.status && (0..self.nodes.len()).all(whole);
        let status = ExitKind::Exited(status);
        let root = self.nodes[node].instances.get_mut(key).unwrap();
        root.ended = Some(status);
        root.life = Life::Ended;
        self.send(node, FromAgent::RootEnded { key: key.clone(), status }, Vec::new());
        // Its daemons end with it.
        for index in 0..self.nodes.len() {
            let keys: Vec<_> = self.nodes[index]
                .instances
                .keys()
                .filter(|other| other.epoch == key.epoch && *other != key)
                .cloned()
                .collect();
            for other in keys {
                if self.nodes[index].up && !self.cut[index] {
                    if let Some(instance) = self.nodes[index].instances.get_mut(&other) {
                        instance.life = Life::Ended;
                        instance.frozen = None;
                    }
                    self.send(index, FromAgent::Empty { key: other }, Vec::new());
                }
            }
        }
    }

    // The coordinator.

    fn feed(&mut self, event: ClusterEvent) {
        if self.stalled_coordinator {
            self.inbox.push_back(event);
            return;
        }
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let now = self.time();
            let Some(machine) = &mut self.machine else { return };
            if self.trace {
                if let ClusterEvent::Agent { node, message, .. } = &event {
                    if !matches!(message, FromAgent::Heartbeat { .. } | FromAgent::Console { .. }) {
                        let text = format!("{message:?}");
                        let text: String = text.chars().take(160).collect();
                        eprintln!("{:>7} <- {node}: {text}", self.now / MILLI);
                    }
                }
            }
            for action in machine.step(now, event) {
                // Killed at any instant: between any two actions.
                let dies = self.now < PEACE && !self.calm;
                if dies && self.random.chance(1) && self.random.chance(200) {
                    self.crash_coordinator();
                    return;
                }
                self.act(action, &mut events);
                if self.machine.is_none() {
                    return;
                }
            }
        }
        let Some(machine) = &self.machine else { return };
        if let Some(deadline) = machine.deadline() {
            let at = deadline.max(self.now + 1);
            if self.clock_at.is_none_or(|known| known > at) {
                self.clock_at = Some(at);
                self.at(at, Happening::Clock);
            }
        }
    }

    fn act(&mut self, action: ClusterAction, events: &mut VecDeque<ClusterEvent>) {
        match action {
            ClusterAction::Send { node, message, .. } => {
                if matches!(message, ToAgent::ConsoleKept { .. }) {
                    // Held back until all copies have it.
                    for keeper in self.keepers() {
                        self.copy_to(keeper, true);
                    }
                }
                let node = self.index(&node);
                if let Some(connection) = self.nodes[node].connection {
                    let delay = self.random.millis(0, 20);
                    let when = (self.now + delay).max(self.last_to_node[node] + 1);
                    self.last_to_node[node] = when;
                    self.at(when, Happening::ToNode { node, connection, message });
                }
            }
            ClusterAction::Disconnect { node } => {
                let node = self.index(&node);
                // The agent sees it when it can.
                if self.nodes[node].connection.take().is_some() {
                    self.nodes[node].welcomed = false;
                    self.later(100, 500, Happening::Reconnect { node });
                }
            }
            ClusterAction::Revoke { .. } | ClusterAction::RemoveJob { .. } => {}
            ClusterAction::Close { .. } => {}
            ClusterAction::Replay { client, job, pieces } => {
                for piece in pieces {
                    let range = usize::try_from(piece.start).unwrap()
                        ..usize::try_from(piece.end.length).unwrap();
                    let bytes = &self.job_logs[&job][range];
                    let bytes = base64::engine::general_purpose::STANDARD.encode(bytes);
                    let answer = Answer::Output { stream: piece.stream, bytes, at: piece.end };
                    if client.number == self.client {
                        self.answered(answer);
                    }
                }
            }
            ClusterAction::Answer { client, answer } => {
                if client.number == self.client {
                    self.answered(answer);
                }
            }
            ClusterAction::Append { number, entry } => {
                if self.log_works {
                    self.judge_entry(&entry);
                    let waits = entry.waits_for_copy();
                    self.log.push(entry);
                    self.copy(waits);
                    events.push_back(ClusterEvent::Recorded { number });
                } else if entry.is_vital() {
                    self.crash_coordinator();
                } else {
                    let reason = "no room".to_owned();
                    events.push_back(ClusterEvent::RecordFailed { number, reason });
                }
            }
            ClusterAction::Log { job, bytes } => {
                self.job_logs.entry(job).or_default().extend(bytes);
            }
            ClusterAction::CutLog { job, length, .. } => {
                let length = usize::try_from(length).unwrap();
                let log = self.job_logs.entry(job).or_default();
                assert!(log.len() >= length, "the log is shorter than it was at the checkpoint");
                log.truncate(length);
                for keeper in self.keepers() {
                    if let Some(copy) = &mut self.nodes[keeper].copy {
                        copy.cut(length);
                    }
                }
            }
            ClusterAction::Superseded { .. } => panic!("there is no other coordinator"),
        }
    }

    fn crash_coordinator(&mut self) {
        if self.machine.take().is_none() {
            return;
        }
        if self.trace {
            eprintln!("{:>7} the coordinator is killed", self.now / MILLI);
        }
        self.outcome.recoveries += 1;
        self.clock_at = None;
        self.inbox.clear();
        self.stalled_coordinator = false;
        self.waiting_client = false;
        self.client += 1;
        for node in 0..self.nodes.len() {
            self.nodes[node].connection = None;
            self.nodes[node].welcomed = false;
            self.nodes[node].sent_at.clear();
            // One whose number the log could not take is not known to the next coordinator.
            self.nodes[node].given_up.clear();
            self.held_back[node].clear();
            self.later(10, 300, Happening::Reconnect { node });
        }
        // Whatever was on its way is lost.
        self.happenings.iter_mut().for_each(|(_, happening)| {
            if matches!(
                happening,
                Happening::ToCoordinator { .. }
                    | Happening::ToNode { .. }
                    | Happening::Disconnected { .. }
            ) {
                *happening = Happening::Nothing;
            }
        });
        self.later(20, 6000, Happening::CoordinatorStarts);
    }

    /// Nodes that keep copies, and can be reached.
    fn keepers(&self) -> Vec<usize> {
        let Some(machine) = &self.machine else { return Vec::new() };
        let keepers = machine.keepers();
        let there = |index: &usize| {
            let node = &self.nodes[*index];
            let reached = node.up && node.agent && node.welcomed && !self.cut[*index];
            reached && keepers.contains(&node.name)
        };
        (0..self.nodes.len()).filter(there).collect()
    }

    /// Copies get what was appended: one of them before anything else happens, if it `waits`; the
    /// others later, or not any more.
    fn copy(&mut self, waits: bool) {
        let keepers = self.keepers();
        let first = if keepers.is_empty() { 0 } else { self.random.below(keepers.len() as u64) };
        for (index, keeper) in keepers.iter().enumerate() {
            if waits && index as u64 == first {
                self.copy_to(*keeper, true);
                self.copied = self.log.len();
            } else if self.random.chance(500) {
                // Output comes behind the log.
                let output = self.random.chance(500);
                self.copy_to(*keeper, output);
            }
        }
    }

    fn copy_to(&mut self, keeper: usize, output: bool) {
        let node = &mut self.nodes[keeper];
        let copy = node.copy.get_or_insert_with(Copy::default);
        copy.log.clone_from(&self.log);
        if output {
            copy.output.clone_from(&self.job_logs);
        } else {
            copy.shorten(&self.job_logs);
        }
    }

    /// The coordinator's machine is lost for ever; what was on its way may still arrive, or not.
    fn lose_coordinator(&mut self) {
        if self.machine.is_none() || self.nodes.iter().all(|node| node.copy.is_none()) {
            return;
        }
        self.crash_coordinator();
        if self.trace {
            eprintln!("{:>7} and its machine is lost", self.now / MILLI);
        }
        self.outcome.lost += 1;
        self.machine_lost = true;
        self.later(50, 6000, Happening::TakeOver);
    }

    /// Somebody carries on from the newest copy that can be reached, once that has all that anybody was
    /// told of.
    fn take_over(&mut self) {
        if !self.machine_lost {
            return;
        }
        let copies = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(index, node)| node.up && !self.cut[*index] && node.copy.is_some());
        let extent =
            |copy: &Copy| (copy.log.len(), copy.output.values().map(Vec::len).sum::<usize>());
        let newest = copies.max_by_key(|(_, node)| node.copy.as_ref().map(extent));
        let Some((index, copy)) =
            newest.and_then(|(index, node)| Some((index, node.copy.clone()?)))
        else {
            return self.later(100, 1000, Happening::TakeOver);
        };
        if copy.log.len() < self.copied {
            return self.later(100, 1000, Happening::TakeOver);
        }
        let term = self.nodes.iter().map(|node| node.term).max().unwrap_or(1) + 1;
        if self.trace {
            let (had, lost) = (copy.log.len(), self.log.len() - copy.log.len());
            let from = &self.nodes[index].name;
            eprintln!(
                "{:>7} term {term} from {from}: {had} entries, {lost} lost",
                self.now / MILLI
            );
        }
        self.machine_lost = false;
        // Another machine's clock.
        self.wall = 900_000 + self.random.below(200_000);
        self.job_logs = copy.output;
        self.log = copy.log;
        self.relearn();
        let (from, at_ms) = (self.nodes[index].name.clone(), self.now / MILLI);
        let claim = format!("{term}");
        self.log.push(ClusterEntry::TermBegun { term, claim, from, lost: Vec::new(), at_ms });
        self.recover();
    }

    /// What was never in a copy never was.
    fn relearn(&mut self) {
        self.expected.clear();
        self.committed.clear();
        self.over = None;
        (self.last_run, self.last_checkpoint) = (None, None);
        for entry in &self.log {
            match entry {
                ClusterEntry::Running { .. } => {
                    self.last_run = Some((self.committed.clone(), self.last_checkpoint));
                }
                ClusterEntry::EpochBegun { epoch, checkpoint, .. } => {
                    self.last_checkpoint = *checkpoint;
                    self.expected.insert(*epoch, BTreeSet::new());
                }
                ClusterEntry::Instances { instances, .. } => {
                    if let Some(mut last) = self.expected.last_entry() {
                        last.get_mut().extend(instances.keys().copied());
                    }
                }
                ClusterEntry::InstanceEnded { instance, .. } => {
                    if let Some(mut last) = self.expected.last_entry() {
                        last.get_mut().remove(instance);
                    }
                }
                ClusterEntry::Committed { record, .. } => {
                    self.committed.insert(record.checkpoint);
                }
                ClusterEntry::JobOver { status: Some(status), .. } => self.over = Some(*status),
                _ => {}
            }
        }
    }

    fn recover(&mut self) {
        if self.machine.is_some() {
            return;
        }
        self.not_restored = None;
        let lengths =
            self.job_logs.iter().map(|(job, log)| (job.clone(), log.len() as u64)).collect();
        // Its way through the disk and back is a part of what has to work.
        let entries: Vec<ClusterEntry> = self
            .log
            .iter()
            .map(|entry| serde_json::from_str(&serde_json::to_string(entry).unwrap()).unwrap())
            .collect();
        let machine = ClusterMachine::recover(
            self.settings.clone(),
            Self::secrets(self.seed ^ self.now),
            self.time(),
            entries,
            &lengths,
        );
        self.machine = Some(machine.unwrap());
        self.feed(ClusterEvent::Clock);
    }

    // The user.

    fn client_acts(&mut self) {
        if self.machine.is_none() || self.stalled_coordinator || self.waiting_client {
            return;
        }
        if self.machine.is_some() && self.nodes.iter().all(|node| !node.welcomed) {
            return;
        }
        self.waiting_client = true;
        self.client += 1;
        let known = self.log.iter().find_map(|entry| match entry {
            ClusterEntry::JobCreated { job, .. } => Some(job.clone()),
            _ => None,
        });
        let over = self.log.iter().rev().find_map(|entry| match entry {
            ClusterEntry::JobOver { status, .. } => Some(Some(*status)),
            ClusterEntry::EpochBegun { .. } => Some(None),
            _ => None,
        });
        let ask = match (known, over.flatten()) {
            (None, _) => Ask::Run(Box::new(self.request())),
            (Some(job), Some(None)) if self.now > PEACE => {
                self.outcome.restarts += 1;
                Ask::Restart(Box::new(RestartRequest {
                    job,
                    checkpoint: None,
                    force: false,
                    settings: None,
                    window: None,
                    detach: false,
                }))
            }
            (Some(_), Some(_)) => {
                self.waiting_client = false;
                return;
            }
            (Some(job), None) => Ask::Attach { job, window: None, shown: self.shown },
        };
        self.ask(ask);
    }

    fn ask(&mut self, ask: Ask) {
        let client = ClientId { node: None, connection: 0, number: self.client };
        self.feed(ClusterEvent::Asked { client, user: user(), ask });
    }

    fn request(&mut self) -> RunRequest {
        let mut launch = launch_spec();
        launch.environment = vec![
            ("TARGET".into(), self.target.to_string().into()),
            ("STATUS".into(), self.status.to_string().into()),
        ];
        for node in &self.nodes[1..self.nodes.len() - self.late] {
            launch.environment.push(("REMOTE".into(), node.name.as_str().into()));
        }
        let settings = JobSettings {
            interval: Interval::Seconds(0.7),
            copies: self.copies,
            max_restarts: 1000,
            daemons: if self.fallback { Daemons::Fallback } else { Daemons::Restore },
            ..JobSettings::default()
        };
        RunRequest { name: None, launch, settings, detach: false }
    }

    fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Accepted { job } | Answer::Started { job, .. } => {
                self.job = Some(job);
            }
            Answer::Ended { .. } => self.waiting_client = false,
            Answer::Failed { reason, .. } => {
                if self.trace {
                    eprintln!("{:>7} client: {reason}", self.now / MILLI);
                }
                self.waiting_client = false;
                if reason.contains("no committed checkpoint") {
                    // It never had one, and could not be begun anew: its user would run it again.
                    self.outcome.given_up += 1;
                }
            }
            Answer::Output { bytes, at, .. } => {
                self.shown = Some(at);
                let bytes = base64::engine::general_purpose::STANDARD.decode(bytes).unwrap();
                self.seen.extend(bytes);
            }
            Answer::Say { text } => {
                if self.trace {
                    eprintln!("{:>7} say: {text}", self.now / MILLI);
                }
                // Another try with the same daemons missing has nothing new to tell.
                if text.starts_with("not restored: ") {
                    assert_ne!(self.not_restored.as_ref(), Some(&text), "told twice");
                    self.not_restored = Some(text);
                } else if text.contains(" goes on from ") {
                    self.not_restored = None;
                }
            }
            _ => {}
        }
    }

    // Faults.

    fn fault(&mut self) {
        if self.now >= PEACE - 4 * SECOND {
            self.make_peace();
            return;
        }
        self.later(100, 3000, Happening::Fault);
        let node = usize::try_from(self.random.below(self.nodes.len() as u64)).unwrap();
        let kind = if self.calm { 90 } else { self.random.below(100) };
        self.ended_well &= (70..90).contains(&kind);
        if self.trace {
            eprintln!("{:>7} fault {kind} at {}", self.now / MILLI, self.nodes[node].name);
        }
        match kind {
            0..25 => {
                if self.nodes[node].up {
                    self.hang_up(node);
                    self.nodes[node].crash();
                    self.later(200, 9000, Happening::Reboot { node });
                }
            }
            25..55 => {
                if !self.cut[node] {
                    self.cut[node] = true;
                    let reset = self.random.chance(500);
                    self.later(50, 8000, Happening::Heal { node, reset });
                }
            }
            55..70 => {
                if self.nodes[node].up && self.nodes[node].agent {
                    self.hang_up(node);
                    self.nodes[node].kill_agent();
                    self.later(50, 4000, Happening::AgentStarts { node });
                }
            }
            70..76 => self.crash_coordinator(),
            76..80 => self.lose_coordinator(),
            80..85 => {
                self.stalled_coordinator = self.machine.is_some();
                self.later(100, 8000, Happening::CoordinatorGoesOn);
            }
            85..90 => {
                self.log_works = false;
                self.later(100, 2500, Happening::LogWorks);
            }
            90..95 if self.random.chance(500) => {
                // Several at once, as when a room is shut down.
                for node in 0..self.nodes.len() {
                    if self.random.chance(500) && self.nodes[node].welcomed {
                        self.nodes[node].leaves = true;
                        let reason = "told to end".to_owned();
                        self.send(node, FromAgent::Leaving { reason }, Vec::new());
                    }
                }
            }
            90..95 => {
                let name = self.nodes[node].name.clone();
                let client = ClientId { node: None, connection: 0, number: 500_000 };
                let root = JobUser { uid: 0, name: "root".to_owned() };
                let ask = Ask::Leave { node: Some(name) };
                self.feed(ClusterEvent::Asked { client, user: root, ask });
            }
            _ => {
                if self.nodes[node].connection.is_some() {
                    self.hang_up(node);
                    if addresses_change() && self.addresses.chance(500) {
                        self.change_address(node);
                    }
                    self.later(1, 200, Happening::Reconnect { node });
                }
            }
        }
    }

    /// The network gives a machine another address.
    fn change_address(&mut self, node: usize) {
        self.nodes[node].moves += 1;
        if self.trace {
            eprintln!("{:>7} {} has another address", self.now / MILLI, self.nodes[node].name);
        }
    }

    fn make_peace(&mut self) {
        if self.trace {
            eprintln!("{:>7} peace", self.now / MILLI);
        }
        for node in 0..self.nodes.len() {
            self.heal(node, true);
            if !self.nodes[node].up {
                self.later(1, 1000, Happening::Reboot { node });
            } else if !self.nodes[node].agent {
                self.later(1, 1000, Happening::AgentStarts { node });
            }
        }
        self.log_works = true;
        if self.stalled_coordinator {
            self.later(1, 10, Happening::CoordinatorGoesOn);
        }
        if self.machine_lost {
            self.later(1, 10, Happening::TakeOver);
        } else if self.machine.is_none() {
            self.later(1, 10, Happening::CoordinatorStarts);
        }
    }

    // The judge.

    fn judge_entry(&mut self, entry: &ClusterEntry) {
        match entry {
            ClusterEntry::EpochBegun { cause, .. } => {
                assert!(!self.ended_well, "a job that has ended is begun again: {cause:?}");
            }
            ClusterEntry::JobOver { .. } | ClusterEntry::Committed { parked: Some(_), .. } => {
                self.ended_well = false;
            }
            _ => {}
        }
        if self.trace {
            let text: String = format!("{entry:?}").chars().take(200).collect();
            eprintln!("{:>7} log: {text}", self.now / MILLI);
        }
        match entry {
            ClusterEntry::Running { .. } => {
                self.last_run = Some((self.committed.clone(), self.last_checkpoint));
            }
            ClusterEntry::EpochBegun { epoch, cause, checkpoint, .. } => {
                self.last_checkpoint = *checkpoint;
                if let (Some(number), Some((before, start))) = (checkpoint, &self.last_run) {
                    self.superseded |= before.contains(number) && Some(*number) > *start;
                }
                assert!(!self.expected.contains_key(epoch), "epoch {epoch} begun twice");
                self.expected.insert(*epoch, BTreeSet::new());
                match cause {
                    Cause::Run | Cause::Restart => {}
                    Cause::Leave { .. } => self.outcome.leaves += 1,
                    Cause::Join { .. } => self.outcome.joins += 1,
                    Cause::Address { .. } => {
                        self.outcome.rollbacks += 1;
                        self.outcome.addresses += 1;
                    }
                    _ => self.outcome.rollbacks += 1,
                }
                if let (true, Some(number)) = (cause.is_move(), checkpoint) {
                    self.judge_move(*epoch, *number);
                }
            }
            ClusterEntry::Instances { instances, .. } => {
                for all in self.expected.values() {
                    for number in instances.keys() {
                        assert!(!all.contains(number), "number {} used twice", number.0);
                    }
                }
                if let Some(mut last) = self.expected.last_entry() {
                    last.get_mut().extend(instances.keys().copied());
                }
            }
            ClusterEntry::InstanceEnded { instance, .. } => {
                if let Some(mut last) = self.expected.last_entry() {
                    last.get_mut().remove(instance);
                }
            }
            ClusterEntry::Committed { record, images, .. } => {
                self.outcome.commits += 1;
                self.committed.insert(record.checkpoint);
                for (instance, image) in images {
                    let name = (record.job.clone(), *instance, record.checkpoint);
                    for holder in &image.holders {
                        let node = &self.nodes[self.index(holder)];
                        assert!(node.disk.contains_key(&name), "{holder} does not hold {name:?}");
                    }
                    assert_eq!(record.degraded, record.copies < self.copies);
                    assert!(image.holders.len() >= record.copies as usize);
                }
                // One cut through all of them.
                let counters: BTreeSet<u64> = images
                    .iter()
                    .map(|(instance, image)| {
                        let name = (record.job.clone(), *instance, record.checkpoint);
                        let node = &self.nodes[self.index(&image.node)];
                        node.disk[&name].state.counter
                    })
                    .collect();
                assert!(counters.len() <= 1, "no consistent cut: {counters:?}");
            }
            ClusterEntry::JobOver { status: Some(status), .. } => {
                assert_eq!(self.over, None, "ended twice");
                self.over = Some(*status);
                self.outcome.ended_at_ms = self.now / MILLI;
            }
            _ => {}
        }
    }

    /// A job that goes on elsewhere has not done a thing since its checkpoint.
    fn judge_move(&self, epoch: u64, checkpoint: u64) {
        let image =
            self.nodes.iter().flat_map(|node| &node.disk).find(|(name, _)| name.2 == checkpoint);
        let Some((_, image)) = image else { return };
        for instance in self.nodes.iter().flat_map(|node| node.instances.values()) {
            assert!(
                instance.key.epoch + 1 != epoch || instance.app.counter == image.state.counter,
                "{} was at {} when it was moved, its image at {}",
                instance.key,
                instance.app.counter,
                image.state.counter
            );
        }
    }

    /// What goes with a node is nowhere else needed. Whether others stay.
    fn judge_farewell(&self, leaver: usize) -> bool {
        let committed = self.log.iter().rev().find_map(|entry| match entry {
            ClusterEntry::Committed { record, images, .. } => Some((record, images)),
            _ => None,
        });
        let epoch = self.expected.keys().next_back();
        let node = &self.nodes[leaver];
        let of_epoch = node.instances.keys().find(|key| Some(&key.epoch) == epoch);
        assert!(self.over.is_some() || of_epoch.is_none(), "{} lets {of_epoch:?} go", node.name);
        let stays = |index: usize, other: &Node| {
            index != leaver
                && other.welcomed
                && !other.leaves
                && other.hello_sent + 500 * MILLI < self.now
        };
        let others = self.nodes.iter().enumerate().filter(|(index, other)| stays(*index, other));
        if others.count() == 0 {
            return false;
        }
        // What has ended by itself goes back nowhere, also before its end is in the log.
        let mut instances = self.nodes.iter().flat_map(|node| node.instances.values());
        let is_over = self.over.is_some()
            || instances.any(|instance| instance.app.root && instance.ended.is_some());
        let Some((record, images)) = committed.filter(|_| !is_over) else { return true };
        for instance in images.keys() {
            let name = (record.job.clone(), *instance, record.checkpoint);
            let elsewhere = self.nodes.iter().enumerate();
            let held = elsewhere
                .filter(|(index, other)| *index != leaver && other.disk.contains_key(&name));
            assert!(
                !node.disk.contains_key(&name) || held.count() > 0,
                "{name:?} goes with {}",
                node.name
            );
        }
        true
    }

    fn judge_alone(&self, epoch: u64) {
        for node in &self.nodes {
            for instance in node.instances.values() {
                let runs = instance.goes() && node.up && self.now < node.lease_until;
                assert!(
                    !runs || instance.key.epoch == epoch,
                    "{} still runs when epoch {epoch} is let go",
                    instance.key
                );
            }
        }
    }

    fn judge_go(
        &self,
        key: &protocol::cluster::InstanceKey,
        links: &[protocol::cluster::agent::RelayLink],
    ) {
        self.judge_alone(key.epoch);
        // The other side of new output is made at the same moment.
        for link in links.iter().filter(|link| !link.side.relay.ends_with("#pipe")) {
            let there = &self.nodes[self.index(&link.node)];
            if let Some(peer) = there.instances.get(&link.peer) {
                let other = 1 - link.side.side;
                let found = peer
                    .app
                    .relays
                    .iter()
                    .any(|side| side.relay == link.side.relay && side.side == other);
                assert!(found, "{} has no other side of {:?}", link.peer, link.side);
            }
        }
    }

    fn judge_keep(&self, images: &BTreeMap<AgentId, Vec<u64>>) {
        let committed = self.log.iter().rev().find_map(|entry| match entry {
            ClusterEntry::Committed { record, images, .. } => Some((record, images)),
            _ => None,
        });
        let Some((record, committed)) = committed else { return };
        let newest = images.values().flatten().max().copied().unwrap_or(0);
        if newest < record.checkpoint {
            // An older order that was long on its way: it spares what is newer.
            return;
        }
        for instance in committed.keys() {
            assert!(
                images.get(instance).is_some_and(|kept| kept.contains(&record.checkpoint)),
                "the newest checkpoint {} is not kept",
                record.checkpoint
            );
        }
    }

    /// Whether both ends of every remote shell have been told of each other.
    fn is_wired(&self, members: &[(usize, protocol::cluster::InstanceKey)]) -> bool {
        let mut sides: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, key) in members {
            let instance = &self.nodes[*index].instances[key];
            let leads = |side: &&RelaySide| !instance.silent.contains(*side);
            for side in instance.app.relays.iter().filter(leads) {
                if !instance.links.contains_key(side) {
                    return false;
                }
                *sides.entry(&side.relay).or_default() += 1;
            }
        }
        sides.values().all(|ends| *ends == 2)
    }

    /// Whether all have the addresses over which they are connected. Who is alone has no connections.
    fn is_connected(&mut self, members: &[(usize, protocol::cluster::InstanceKey)]) -> bool {
        let alone = members.iter().all(|(index, _)| *index == members[0].0);
        members.iter().all(|(index, key)| {
            let node = &mut self.nodes[*index];
            let instance = node.instances.get_mut(key).unwrap();
            if alone {
                instance.connected = node.moves;
            }
            instance.connected == node.moves
        })
    }

    fn judge_end(&mut self) {
        self.judge_peers();
        let expected = ExitKind::Exited(self.status);
        let over = self.over;
        assert_eq!(over, Some(expected), "{}", self.describe());
        if self.superseded {
            self.outcome.superseded = 1;
            return;
        }
        let log = self.job_logs.values().next().cloned().unwrap_or_default();
        let text = String::from_utf8(log).unwrap();
        let lacks = text.contains("bytes of output are not in this log");
        let lines: Vec<&str> =
            text.lines().filter(|line| !line.is_empty() && !line.starts_with("[ckptd")).collect();
        let wanted: Vec<String> =
            (1..=self.target).map(|number| format!("line {number}")).collect();
        if lacks {
            self.outcome.lacking = 1;
            let mut rest = wanted.iter();
            // A line may have lost its beginning.
            let known = |line: &&&str| rest.any(|wanted| wanted.ends_with(**line));
            let found = lines.iter().filter(known).count();
            assert_eq!(found, lines.len(), "the output is not a part of what it should be; {text}");
            return;
        }
        assert_eq!(lines, wanted, "the output is not what it should be; {text}");
        if self.outcome.restarts == 0 {
            self.judge_shown();
        }
        if self.calm {
            let wanted: String =
                (1..=self.target).map(|number| format!("line {number}\n")).collect();
            let seen = String::from_utf8_lossy(&self.seen);
            assert_eq!(seen, wanted, "what was shown is not what was written");
        }
    }
}

impl World {
    /// The client who came again after each loss has missed nothing, and was shown nothing twice but what was
    /// written twice, after a rollback.
    fn judge_shown(&self) {
        let seen = String::from_utf8_lossy(&self.seen);
        let (mut last, mut back) = (0, 0);
        for line in seen.lines() {
            let number: u64 =
                line.strip_prefix("line ").and_then(|line| line.parse().ok()).unwrap();
            assert!(
                number <= last + 1,
                "{last} is followed by {number} in what was shown:\n{seen}"
            );
            back += usize::from(number != last + 1);
            last = number;
        }
        let begun = |entry: &&ClusterEntry| matches!(entry, ClusterEntry::EpochBegun { .. });
        let epochs = self.log.iter().filter(begun).count();
        assert!(back < epochs.max(1), "shown again {back} times in {epochs} epochs:\n{seen}");
    }
}

fn brief(message: &ToAgent) -> String {
    let text = format!("{message:?}");
    text.chars().take(170).collect()
}
