//! A cluster whose agents do at once what they are told, unless a test has them do otherwise: one event after the
//! other, without chance.

use coordinator::Time;
use coordinator::cluster::entry::Cause;
use coordinator::cluster::{
    ClientId, ClusterAction, ClusterEntry, ClusterEvent, ClusterMachine, ClusterSettings,
    SeededSecrets,
};
use protocol::agent::{AgentCommand, AgentEvent, ExitKind, ImageSummary, InstanceId};
use protocol::cluster::agent::{
    FromAgent, HeldInstance, Holding, InstanceReport, JobUser, NodeProfile, ShellCall, Stream,
    ToAgent, Vitals,
};
use protocol::cluster::client::{Answer, Ask, RunRequest};
use protocol::cluster::image::{ImageFacts, Requirements};
use protocol::cluster::powers::Powers;
use protocol::cluster::settings::{Interval, JobSettings};
use protocol::cluster::{InstanceKey, NodeName, VERSION};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::common::{image_facts, launch_spec, requirements};

pub const MILLI: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLI;

pub fn name(number: usize) -> NodeName {
    format!("node{number}").parse().unwrap()
}

fn user() -> JobUser {
    JobUser { uid: 1000, name: "user".to_owned() }
}

fn client() -> ClientId {
    ClientId { node: None, connection: 0, number: 1 }
}

fn facts(root: bool) -> ImageFacts {
    image_facts(&[2, 3, 4], root, None)
}

/// A machine, as its agent knows it.
#[derive(Debug, Default)]
pub struct Machine {
    /// Number of its connection, while it has one.
    pub connection: Option<u64>,
    /// The third number of its address.
    pub network: u8,
    pub instances: BTreeMap<InstanceKey, HeldInstance>,
    pub disk: BTreeSet<(InstanceKey, u64)>,
    beats: u64,
}

/// See the module.
pub struct Rig {
    pub machine: ClusterMachine,
    pub nanos: u64,
    pub log: Vec<ClusterEntry>,
    /// What agents were sent, the last at the end.
    pub sent: Vec<(usize, ToAgent)>,
    pub answers: Vec<Answer>,
    /// The job's output.
    pub output: Vec<u8>,
    pub nodes: Vec<Machine>,
    /// Whether each image is on all machines, or on its own alone.
    pub spread: bool,
    /// What agents are told by these commands stays without an answer.
    pub deaf_to: fn(usize, &ToAgent) -> bool,
    printed: u64,
    events: VecDeque<ClusterEvent>,
    next_connection: u64,
}

impl Rig {
    /// So many machines, node1 and so on, all of them connected.
    pub fn new(count: usize) -> Self {
        let settings = ClusterSettings { grace: 3 * SECOND, ..ClusterSettings::default() };
        let machine = ClusterMachine::new(settings, SeededSecrets::new([7; 32]));
        let mut rig = Self {
            machine,
            nanos: SECOND,
            log: vec![ClusterEntry::Opened { format: 1 }],
            sent: Vec::new(),
            answers: Vec::new(),
            output: Vec::new(),
            nodes: (0..=count).map(|_| Machine::default()).collect(),
            spread: false,
            deaf_to: |_, _| false,
            printed: 0,
            events: VecDeque::new(),
            next_connection: 1,
        };
        for node in 1..=count {
            rig.connect(node);
        }
        rig
    }

    /// A job whose first process is on node1, and which has called for a remote shell on each of the others.
    pub fn with_job(count: usize, settings: JobSettings) -> Self {
        let mut rig = Self::new(count);
        let request =
            RunRequest { name: None, launch: launch_spec("rank"), settings, detach: false };
        rig.ask(Ask::Run(Box::new(request)));
        for node in 2..=count {
            let root = rig.root();
            let call = ShellCall { caller: root, node: name(1), call: node as u64 };
            let shell =
                FromAgent::Shell { call, logical_node: name(node), launch: launch_spec("rank") };
            rig.says(1, shell);
        }
        rig
    }

    /// Checkpoints are taken on demand only.
    pub fn on_demand() -> JobSettings {
        JobSettings { interval: Interval::Seconds(0.0), copies: 1, ..JobSettings::default() }
    }

    /// A machine may order what its token says.
    pub fn admit(&mut self, node: usize, powers: Powers) {
        self.events.push_back(ClusterEvent::Admitted {
            node: name(node),
            powers,
            certificate: Default::default(),
        });
        self.settle();
    }

    fn now(&self) -> Time {
        Time { nanos: self.nanos, unix_ms: 1_700_000_000_000 + self.nanos / MILLI }
    }

    /// The instance of the running epoch with the job's first process.
    pub fn root(&self) -> InstanceKey {
        let keys = self.nodes.iter().flat_map(|node| node.instances.keys());
        keys.min_by_key(|key| (std::cmp::Reverse(key.epoch), key.instance)).unwrap().clone()
    }

    /// The instance of the newest epoch on a machine.
    pub fn instance(&self, node: usize) -> InstanceKey {
        self.nodes[node].instances.keys().max_by_key(|key| key.epoch).unwrap().clone()
    }

    pub fn ask(&mut self, ask: Ask) {
        self.events.push_back(ClusterEvent::Asked { client: client(), user: user(), ask });
        self.settle();
    }

    pub fn checkpoint(&mut self) {
        self.ask(Ask::Checkpoint { job: "latest".to_owned() });
    }

    /// A machine connects, and says what it holds.
    pub fn connect(&mut self, node: usize) {
        let connection = self.next_connection;
        self.next_connection += 1;
        self.nodes[node].connection = Some(connection);
        let holdings = self.nodes[node]
            .disk
            .iter()
            .map(|(key, checkpoint)| Holding {
                job: key.job.clone(),
                instance: key.instance,
                checkpoints: vec![*checkpoint],
            })
            .collect();
        let instances = self.nodes[node].instances.values().cloned().collect();
        let (profile, version) = (self.profile(node), VERSION);
        self.says(
            node,
            FromAgent::Hello { version, term: 1, followed: None, profile, instances, holdings },
        );
    }

    fn profile(&self, node: usize) -> NodeProfile {
        let network = self.nodes[node].network;
        let at = |port: u16| format!("10.0.{network}.{node}:{port}").parse().unwrap();
        let Requirements { architecture, page_size, vdso, features, .. } = requirements();
        NodeProfile {
            address: at(7000),
            wire: at(7001),
            addresses: Vec::new(),
            slots: 4,
            cores: 4,
            speed: None,
            speed_all: None,
            capacity: None,
            speed_given: false,
            architecture,
            page_size,
            vdso,
            features,
            memory_top: 0,
            memory: 1 << 30,
            kernel: "6".to_owned(),
            owner: None,
            takes: protocol::cluster::agent::Takes::default(),
            allow_root: true,
            started_ms: 1,
        }
    }

    /// Its connection breaks.
    pub fn disconnect(&mut self, node: usize) {
        if let Some(connection) = self.nodes[node].connection.take() {
            self.events.push_back(ClusterEvent::Disconnected { node: name(node), connection });
            self.settle();
        }
    }

    /// The job's first process has ended, while node1 has no connection.
    pub fn root_ends(&mut self, status: u8, flushes: bool) {
        let root = self.root();
        let held = self.nodes[1].instances.get_mut(&root).unwrap();
        (held.ended, held.flushes) = (Some(ExitKind::Exited(status)), flushes);
    }

    /// Causes of the epochs after the first one.
    pub fn rollbacks(&self) -> Vec<Cause> {
        let causes = self.log.iter().filter_map(|entry| match entry {
            ClusterEntry::EpochBegun { epoch, cause, .. } if *epoch > 1 => Some(cause.clone()),
            _ => None,
        });
        causes.collect()
    }

    /// How the job ended.
    pub fn end(&self) -> Option<ExitKind> {
        self.log.iter().find_map(|entry| match entry {
            ClusterEntry::JobOver { status, .. } => *status,
            _ => None,
        })
    }

    /// Its agent dies, and another one takes over what runs there.
    pub fn restart_agent(&mut self, node: usize) {
        self.disconnect(node);
        self.nodes[node].instances.values_mut().for_each(|instance| instance.adopted = true);
        self.connect(node);
    }

    pub fn says(&mut self, node: usize, message: FromAgent) {
        self.says_with(node, message, Vec::new());
    }

    pub fn says_with(&mut self, node: usize, message: FromAgent, body: Vec<u8>) {
        self.will_say(node, message, body);
        self.settle();
    }

    fn will_say(&mut self, node: usize, message: FromAgent, body: Vec<u8>) {
        if let Some(connection) = self.nodes[node].connection {
            let node = name(node);
            self.events.push_back(ClusterEvent::Agent { node, connection, message, body });
        }
    }

    /// The job writes something.
    pub fn prints(&mut self, text: &str) {
        let (key, stream, offset) = (self.root(), Stream::Output, self.printed);
        self.printed += text.len() as u64;
        self.says_with(
            1,
            FromAgent::of(key, InstanceReport::Console { offset, stream }),
            text.as_bytes().to_vec(),
        );
    }

    /// Time passes, in which all who are connected are heard.
    pub fn wait(&mut self, millis: u64) {
        let until = self.nanos + millis * MILLI;
        while self.nanos < until {
            self.nanos += 100 * MILLI;
            for node in 1..self.nodes.len() {
                self.nodes[node].beats += 1;
                let sequence = self.nodes[node].beats;
                let vitals = Vitals::default();
                self.will_say(node, FromAgent::Heartbeat { sequence, vitals }, Vec::new());
            }
            self.events.push_back(ClusterEvent::Clock);
            self.settle();
        }
    }

    /// The coordinator is killed, and started again from its log; everybody connects again.
    pub fn restart_coordinator(&mut self) {
        let entries: Vec<ClusterEntry> = self.log.clone();
        let settings = ClusterSettings { grace: 3 * SECOND, ..ClusterSettings::default() };
        let secrets = SeededSecrets::new([8; 32]);
        let job = self.log.iter().find_map(|entry| entry.job().map(str::to_owned));
        let lengths = job.map(|job| (job, self.output.len() as u64)).into_iter().collect();
        self.machine =
            ClusterMachine::recover(settings, secrets, self.now(), entries, &lengths).unwrap();
        self.events.clear();
        self.events.push_back(ClusterEvent::Clock);
        self.settle();
        for node in 1..self.nodes.len() {
            if self.nodes[node].connection.is_some() {
                self.connect(node);
            }
        }
    }

    fn settle(&mut self) {
        while let Some(event) = self.events.pop_front() {
            self.nanos += 1000;
            let now = self.now();
            for action in self.machine.step(now, event) {
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: ClusterAction) {
        match action {
            ClusterAction::Send { node, message, .. } => {
                let number = (1..self.nodes.len()).find(|number| name(*number) == node).unwrap();
                self.sent.push((number, message.clone()));
                if !(self.deaf_to)(number, &message) {
                    self.handle(number, message);
                }
            }
            ClusterAction::Append { number, entry } => {
                self.log.push(entry);
                self.events.push_back(ClusterEvent::Recorded { number });
            }
            ClusterAction::Log { bytes, .. } => self.output.extend(bytes),
            ClusterAction::CutLog { length, .. } => {
                self.output.truncate(usize::try_from(length).unwrap());
            }
            ClusterAction::Answer { answer, .. } => self.answers.push(answer),
            _ => {}
        }
    }

    /// An agent does what it was told some time ago.
    pub fn does(&mut self, node: usize, message: ToAgent) {
        self.handle(node, message);
        self.settle();
    }

    fn holds(&mut self, node: usize, key: &InstanceKey) {
        let held = HeldInstance {
            key: key.clone(),
            adopted: false,
            held: false,
            ended: None,
            flushes: false,
        };
        self.nodes[node].instances.insert(key.clone(), held);
    }

    fn handle(&mut self, node: usize, message: ToAgent) {
        let answer = match message {
            ToAgent::Launch(order) => {
                self.holds(node, &order.key);
                FromAgent::of(order.key, InstanceReport::Launched { root: 2 })
            }
            ToAgent::Prepare(order) => {
                FromAgent::of(order.key, InstanceReport::Prepared { sockets: Vec::new() })
            }
            ToAgent::Restore { key, .. } => {
                self.holds(node, &key);
                let (relays, outputs) = (Vec::new(), Vec::new());
                let (listeners, warnings) = (Vec::new(), Vec::new());
                FromAgent::of(
                    key,
                    InstanceReport::Restored { relays, outputs, listeners, warnings },
                )
            }
            ToAgent::Go { key, .. } => FromAgent::of(key, InstanceReport::Running),
            ToAgent::Kill { job, below } => {
                self.nodes[node].instances.retain(|key, _| key.epoch >= below);
                FromAgent::Killed { job, below }
            }
            ToAgent::Copy { job, instance, checkpoint, .. } => {
                FromAgent::Copied { job, instance, checkpoint, failure: None }
            }
            ToAgent::Drain { key, checkpoint, .. } => {
                FromAgent::of(key, InstanceReport::Drained { checkpoint, offset: self.printed })
            }
            ToAgent::Instance { key, command } => return self.command(node, key, command),
            _ => return,
        };
        self.will_say(node, answer, Vec::new());
    }

    fn command(&mut self, node: usize, key: InstanceKey, command: AgentCommand) {
        if !self.nodes[node].instances.contains_key(&key) {
            return;
        }
        let event = match command {
            AgentCommand::Freeze { checkpoint } => {
                AgentEvent::Frozen { checkpoint, processes: 3, threads: 3 }
            }
            AgentCommand::Quiesce { checkpoint } => AgentEvent::Quiesced { checkpoint },
            AgentCommand::Snapshot { checkpoint } => AgentEvent::SnapshotTaken { checkpoint },
            AgentCommand::Resume { checkpoint } => {
                AgentEvent::Resumed { checkpoint, pause_us: 1000 }
            }
            AgentCommand::Write { checkpoint } => {
                self.nodes[node].disk.insert((key.clone(), checkpoint));
                let mut facts = facts(key.instance == InstanceId(1));
                facts.digest = format!("digest {}", key.instance.0);
                let all = (1..self.nodes.len()).filter(|other| self.spread || *other == node);
                let holders = all.map(name).collect();
                let image = FromAgent::of(
                    key.clone(),
                    InstanceReport::Image { checkpoint, facts, holders },
                );
                self.will_say(node, image, Vec::new());
                AgentEvent::Written { checkpoint, summary: ImageSummary::default() }
            }
            AgentCommand::Commit { checkpoint, .. } => AgentEvent::Committed { checkpoint },
            AgentCommand::Abandon { checkpoint } => AgentEvent::Abandoned { checkpoint },
            _ => return,
        };
        self.will_say(node, FromAgent::of(key, event), Vec::new());
    }
}
