//! A coordinator's machine and the real nodes of its agents, which do at once what they are told, unless a test has them
//! not hear of it: one event after the other, without chance.

use ckpt_node::{Event, InstanceEvent, RelayEvent};
use coordinator::Time;
use coordinator::cluster::entry::Cause;
use coordinator::cluster::{
    ClientId, ClusterAction, ClusterEntry, ClusterEvent, ClusterMachine, ClusterSettings,
    SeededSecrets,
};
use protocol::agent::{ExitKind, InstanceId};
use protocol::cluster::agent::{FromAgent, JobUser, RelaySide, ToAgent, Vitals};
use protocol::cluster::audit::AuditEvent;
use protocol::cluster::client::{Answer, Ask, RunRequest};
use protocol::cluster::image::ImageFacts;
use protocol::cluster::powers::Powers;
use protocol::cluster::settings::{Interval, JobSettings};
use protocol::cluster::{InstanceKey, NodeName};
use protocol::room::Room;
use std::collections::VecDeque;

use crate::common::{image_facts, launch_spec, profile};
use crate::prompt::{Machine, Machines, Said};

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

fn facts(key: &InstanceKey) -> ImageFacts {
    let mut facts = image_facts(&[2, 3, 4], key.instance == InstanceId(1), None);
    facts.digest = format!("digest {}", key.instance.0);
    facts
}

fn settings() -> ClusterSettings {
    ClusterSettings { grace: 3 * SECOND, ahead_from: 1, ..ClusterSettings::default() }
}

/// See the module. Nodes are counted from 1.
pub struct Rig {
    pub machine: ClusterMachine,
    pub nanos: u64,
    pub log: Vec<ClusterEntry>,
    /// What agents were sent, the last at the end.
    pub sent: Vec<(usize, ToAgent)>,
    pub answers: Vec<Answer>,
    /// What the audit log would tell.
    pub audited: Vec<AuditEvent>,
    /// The job's output.
    pub output: Vec<u8>,
    /// What an agent does not hear of.
    pub deaf_to: fn(usize, &ToAgent) -> bool,
    machines: Machines,
    /// The third number of each node's address.
    networks: Vec<u8>,
    events: VecDeque<ClusterEvent>,
    next_connection: u64,
}

impl Rig {
    /// So many machines, node1 and so on, all of them connected.
    pub fn new(count: usize) -> Self {
        let mut machines = Machines::new(facts);
        (1..=count).for_each(|number| machines.add(name(number), profile(4)));
        let mut rig = Self {
            machine: ClusterMachine::new(settings(), SeededSecrets::new([7; 32])),
            nanos: SECOND,
            log: vec![ClusterEntry::Opened { format: 1 }],
            sent: Vec::new(),
            answers: Vec::new(),
            audited: Vec::new(),
            output: Vec::new(),
            deaf_to: |_, _| false,
            machines,
            networks: vec![0; count],
            events: VecDeque::new(),
            next_connection: 1,
        };
        (1..=count).for_each(|number| rig.connect(number));
        rig
    }

    /// A job that consists of its first process, on node1.
    pub fn alone(count: usize, settings: JobSettings) -> Self {
        let mut rig = Self::new(count);
        let request = RunRequest {
            name: None,
            launch: launch_spec("rank"),
            settings,
            detach: false,
            anywhere: false,
        };
        rig.ask(Ask::Run(Box::new(request)));
        rig
    }

    /// A job whose first process is on node1, and which has called for a remote shell on each of the others.
    pub fn with_job(count: usize, settings: JobSettings) -> Self {
        let mut rig = Self::alone(count, settings);
        (2..=count).for_each(|node| rig.call(node as u64, node));
        rig
    }

    /// Checkpoints are taken on demand only; each image is on its own machine alone.
    pub fn on_demand() -> JobSettings {
        JobSettings { interval: Interval::Seconds(0.0), copies: 1, ..JobSettings::default() }
    }

    pub fn node(&mut self, number: usize) -> &mut Machine {
        &mut self.machines.all[number - 1]
    }

    /// A machine may order what its token says.
    pub fn admit(&mut self, node: usize, powers: Powers) {
        self.events.push_back(ClusterEvent::Admitted {
            node: name(node),
            powers,
            key: Default::default(),
        });
        self.settle();
    }

    pub fn now(&self) -> Time {
        Time { nanos: self.nanos, unix_ms: 1_700_000_000_000 + self.nanos / MILLI }
    }

    /// The instance of the running epoch with the job's first process.
    pub fn root(&self) -> InstanceKey {
        let keys = self.machines.all.iter().flat_map(|node| node.instances.keys());
        keys.min_by_key(|key| (std::cmp::Reverse(key.epoch), key.instance)).unwrap().clone()
    }

    /// The instance of the newest epoch on a machine.
    pub fn instance(&self, node: usize) -> InstanceKey {
        let keys = self.machines.all[node - 1].instances.keys();
        keys.max_by_key(|key| key.epoch).unwrap().clone()
    }

    pub fn ask(&mut self, ask: Ask) {
        self.events.push_back(ClusterEvent::Asked { client: client(), user: user(), ask });
        self.settle();
    }

    /// The coordinator's own user orders something.
    pub fn order(&mut self, ask: Ask) {
        let client = ClientId { number: 2, ..client() };
        let user = JobUser { uid: 0, name: "root".to_owned() };
        self.events.push_back(ClusterEvent::Asked { client, user, ask });
        self.settle();
    }

    /// Something happens to the coordinator itself.
    pub fn comes(&mut self, event: ClusterEvent) {
        self.events.push_back(event);
        self.settle();
    }

    /// A heartbeat of a node, which has had the answer to its last one of these; its clock is so far off.
    pub fn beats(&mut self, node: usize, sequence: u64, off_ms: i64, room: Option<Room>) {
        let wall_ms = Some(self.now().unix_ms.saturating_add_signed(off_ms));
        let vitals = Vitals { wall_ms, room, ..Vitals::default() };
        let answered = Some(sequence.saturating_sub(1));
        let message = FromAgent::Heartbeat { sequence, answered, vitals };
        let connection = self.node(node).connection.unwrap();
        let (node, body) = (name(node), Vec::new());
        self.comes(ClusterEvent::Agent { node, connection, message, body });
    }

    pub fn checkpoint(&mut self) {
        self.ask(Ask::Checkpoint { job: "latest".to_owned() });
    }

    /// An agent connects, one that has just begun where there was none.
    pub fn connect(&mut self, node: usize) {
        let connection = self.next_connection;
        self.next_connection += 1;
        let host = format!("10.0.{}.{node}", self.networks[node - 1]).parse().unwrap();
        self.machines.now = self.nanos;
        let said = self.machines.connect(node - 1, connection, host);
        self.pass_on(said);
        self.settle();
    }

    /// A machine without a connection gets another address.
    pub fn move_to_network(&mut self, node: usize, network: u8) {
        self.networks[node - 1] = network;
    }

    /// Its connection breaks.
    pub fn disconnect(&mut self, node: usize) {
        if let Some(connection) = self.node(node).connection.take() {
            self.events.push_back(ClusterEvent::Disconnected { node: name(node), connection });
            self.happens(node, Event::Disconnected { connection });
        }
    }

    /// Something happens to an agent.
    pub fn happens(&mut self, node: usize, event: Event) {
        self.feed(node, event);
        self.settle();
    }

    fn feed(&mut self, node: usize, event: Event) {
        self.machines.now = self.nanos;
        let said = self.machines.happens(node - 1, event);
        self.pass_on(said);
    }

    fn pass_on(&mut self, said: Vec<Said>) {
        for (at, message, body) in said {
            if let Some(connection) = self.machines.all[at].connection {
                let node = name(at + 1);
                self.events.push_back(ClusterEvent::Agent { node, connection, message, body });
            }
        }
    }

    /// A process of the job's first instance, by its number, calls for a remote shell on a node.
    pub fn call(&mut self, number: u64, node: usize) {
        let root = self.root();
        let at = self.machines.all.iter().position(|one| one.instances.contains_key(&root));
        self.machines.now = self.nanos;
        let said = self.machines.call(at.unwrap(), root, number, name(node));
        self.pass_on(said);
        self.settle();
    }

    /// The job's first process ends, on node1.
    pub fn root_ends(&mut self, status: u8) {
        let (key, status) = (self.root(), ExitKind::Exited(status));
        self.node(1).instances.get_mut(&key).unwrap().ended = Some(status);
        self.happens(1, Event::Instance(key, InstanceEvent::RootEnded(status)));
    }

    /// It ends, and its agent has not read its last output yet.
    pub fn root_ends_unread(&mut self, status: u8) {
        let key = self.root();
        self.node(1).instances.get_mut(&key).unwrap().console.unread = true;
        self.root_ends(status);
    }

    /// Its agent reads that.
    pub fn is_read(&mut self, text: &str) {
        self.prints(text);
        let key = self.root();
        let console = &mut self.node(1).instances.get_mut(&key).unwrap().console;
        console.unread = false;
        let flushed = console.flush();
        flushed.into_iter().for_each(|report| self.happens(1, Event::Console(key.clone(), report)));
    }

    /// All processes of the instance on that machine have ended.
    pub fn empties(&mut self, node: usize) {
        let key = self.instance(node);
        self.node(node).empty(&key);
        self.happens(node, Event::Instance(key, InstanceEvent::Empty));
    }

    /// A relay of the instance on that machine has lost bytes.
    pub fn loses_relay(&mut self, node: usize) {
        let side = RelaySide { relay: "any".to_owned(), side: 0 };
        let lost = RelayEvent::Lost(side, "its buffer is gone".to_owned());
        self.happens(node, Event::Relay(self.instance(node), lost));
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
        self.machines.kill_agent(node - 1);
        self.connect(node);
    }

    /// The machine itself is started again: nothing that ran there is left.
    pub fn reboot(&mut self, node: usize) {
        self.disconnect(node);
        self.machines.kill_agent(node - 1);
        self.node(node).instances.clear();
        self.connect(node);
    }

    /// The job writes something.
    pub fn prints(&mut self, text: &str) {
        let key = self.root();
        let console = &mut self.node(1).instances.get_mut(&key).unwrap().console;
        let piece = console.write(text.as_bytes());
        piece.into_iter().for_each(|report| self.happens(1, Event::Console(key.clone(), report)));
    }

    /// Time passes, in which all who are connected are heard.
    pub fn wait(&mut self, millis: u64) {
        let until = self.nanos + millis * MILLI;
        while self.nanos < until {
            self.nanos += 100 * MILLI;
            for node in 1..=self.networks.len() {
                self.feed(node, Event::Tick { address_lost: false, charge: None });
            }
            self.events.push_back(ClusterEvent::Clock);
            self.settle();
        }
    }

    /// Time passes in which nothing happens, as for a machine that sleeps.
    pub fn skip(&mut self, millis: u64) {
        self.nanos += millis * MILLI;
    }

    /// The coordinator is killed, and started again from its log; everybody connects again.
    pub fn restart_coordinator(&mut self) {
        let connected = |node: &usize| self.machines.all[*node - 1].connection.is_some();
        let connected: Vec<usize> = (1..=self.networks.len()).filter(connected).collect();
        let entries: Vec<ClusterEntry> = self.log.clone();
        let secrets = SeededSecrets::new([8; 32]);
        let job = self.log.iter().find_map(|entry| entry.job().map(str::to_owned));
        let lengths = job.map(|job| (job, self.output.len() as u64)).into_iter().collect();
        self.machine =
            ClusterMachine::recover(settings(), secrets, self.now(), entries, &lengths).unwrap();
        connected.iter().for_each(|node| self.disconnect(*node));
        self.events.clear();
        self.events.push_back(ClusterEvent::Clock);
        self.settle();
        connected.into_iter().for_each(|node| self.connect(node));
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
            ClusterAction::Send { node, message, body } => {
                let number = (1..).find(|number| name(*number) == node).unwrap();
                self.sent.push((number, message.clone()));
                if !(self.deaf_to)(number, &message) {
                    self.hears(number, message, body);
                }
            }
            ClusterAction::Broadcast { message, except } => {
                let others = self.machine.connected().into_iter();
                for node in others.filter(|node| Some(node) != except.as_ref()) {
                    let (message, body) = (message.clone(), Vec::new());
                    self.act(ClusterAction::Send { node, message, body });
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
            ClusterAction::Audit { event } => self.audited.push(event),
            _ => {}
        }
    }

    fn hears(&mut self, node: usize, message: ToAgent, body: Vec<u8>) {
        if let Some(connection) = self.node(node).connection {
            self.feed(node, Event::Coordinator { connection, message, body });
        }
    }

    /// An agent hears now of what it was told some time ago.
    pub fn does(&mut self, node: usize, message: ToAgent) {
        self.hears(node, message, Vec::new());
        self.settle();
    }
}
