//! A simulated machine: its agent, its instances, its disk.
//!
//! The job is a counter that all its instances share, as ranks share the progress of an MPI job:
//! it grows only while all of them run, and the root prints a line for each number.

use coordinator::cluster::ClusterEntry;
use protocol::agent::{
    AgentCommand, AgentEvent, AgentId, CheckpointNumber, ExitKind, ImageSummary, Step,
};
use protocol::cluster::agent::{
    DEPARTED, DamagedCopy, FromAgent, HeldInstance, Holding, NodeProfile, OuterSocket, RelayLink,
    RelaySide, Rewire, ShellCall, Stream, ToAgent, Vitals,
};
use protocol::cluster::image::{Effort, Efforts, ImageFacts, ProcessFacts, Requirements, Unit};
use protocol::cluster::{InstanceKey, NodeName, VERSION};
use protocol::launch::{LaunchSpec, StreamKind};
use std::collections::{BTreeMap, BTreeSet};

use crate::random::Random;
use crate::world::tree::Part;

/// Job, instance, checkpoint.
pub type ImageName = (String, AgentId, CheckpointNumber);

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
    /// It has come to its end, and only waits.
    pub rests: bool,
    /// How often its machine's address had changed when its connections were made.
    pub connected: u8,
}

impl Instance {
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
    /// What is said once the coordinator has said Welcome.
    pub outbox: Vec<(FromAgent, Vec<u8>)>,
    pub heartbeat: u64,
    pub instances: BTreeMap<InstanceKey, Instance>,
    pub disk: BTreeMap<ImageName, Image>,
    pub port: u16,
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
    LaunchSpec {
        program: vec!["nqueens".into()],
        environment: Vec::new(),
        working_directory: "/".into(),
        stdin: StreamKind::Pipe,
        stdout: StreamKind::Pipe,
        stderr: StreamKind::Pipe,
        window: None,
        termios: None,
    }
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
            outbox: Vec::new(),
            heartbeat: 300_000_000,
            instances: BTreeMap::new(),
            disk: BTreeMap::new(),
            port: 1024,
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
            })
            .collect();
        let mut holdings: BTreeMap<(String, AgentId), Vec<CheckpointNumber>> = BTreeMap::new();
        for (job, instance, checkpoint) in self.disk.keys() {
            holdings.entry((job.clone(), *instance)).or_default().push(*checkpoint);
        }
        let holdings = holdings
            .into_iter()
            .map(|((job, instance), checkpoints)| Holding { job, instance, checkpoints })
            .collect();
        let (version, term) = (VERSION, self.term);
        FromAgent::Hello { version, term, profile: self.profile(), instances, holdings }
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

    fn fresh_port(&mut self) -> u16 {
        self.port += 1;
        self.port
    }

    #[allow(clippy::too_many_lines)]
    pub fn handle(
        &mut self,
        now: u64,
        message: ToAgent,
        random: &mut Random,
        fetch: Fetch<'_>,
    ) -> Vec<Out> {
        let mut out = Vec::new();
        match message {
            ToAgent::Welcome { coordinator, heartbeat_ms, lease_ms, epochs } => {
                assert!(coordinator.term >= self.term, "a lost coordinator is obeyed");
                self.term = coordinator.term;
                self.welcomed = true;
                self.heartbeat = heartbeat_ms * 1_000_000;
                self.lease = lease_ms * 1_000_000;
                self.instances
                    .retain(|key, _| epochs.get(&key.job).is_some_and(|epoch| key.epoch >= *epoch));
                for instance in self.instances.values_mut() {
                    // Bytes that were not acknowledged come again.
                    if instance.app.root && instance.life != Life::Prepared {
                        let kept = usize::try_from(instance.kept).unwrap();
                        if kept < instance.console.len() {
                            let bytes = instance.console[kept..].to_vec();
                            let (key, offset) = (instance.key.clone(), instance.kept);
                            let stream = Stream::Output;
                            out.push(Out::Send(FromAgent::Console { key, offset, stream }, bytes));
                        }
                        if let (Some(status), true) = (instance.ended, random.chance(500)) {
                            let key = instance.key.clone();
                            out.push(Out::Send(FromAgent::RootEnded { key, status }, Vec::new()));
                        }
                    }
                    if instance.life == Life::Ended && !instance.app.root {
                        let key = instance.key.clone();
                        out.push(Out::Send(FromAgent::Empty { key }, Vec::new()));
                    }
                    for (call, (logical_node, answered)) in &instance.app.calls {
                        if !answered && instance.life == Life::Running {
                            let call = ShellCall {
                                caller: instance.key.clone(),
                                node: self.name.clone(),
                                call: *call,
                            };
                            let logical_node = logical_node.clone();
                            let launch = launch_spec();
                            let shell = FromAgent::Shell { call, logical_node, launch };
                            out.push(Out::Send(shell, Vec::new()));
                        }
                    }
                }
                if self.leaves {
                    let reason = "told to end".to_owned();
                    out.push(Out::Send(FromAgent::Leaving { reason }, Vec::new()));
                }
                for instance in self.instances.values().filter(|instance| instance.rests) {
                    let rest = FromAgent::Rest { key: instance.key.clone(), waits: true };
                    out.push(Out::Send(rest, Vec::new()));
                }
                for key in std::mem::take(&mut self.adopted) {
                    if self.instances.contains_key(&key) && random.chance(300) {
                        let reason = "its agent died".to_owned();
                        out.push(Out::Send(FromAgent::RelaysLost { key, reason }, Vec::new()));
                    }
                }
            }
            ToAgent::Heard { sequence } => {
                if let Some(sent) = self.sent_at.remove(&sequence) {
                    self.sent_at.retain(|other, _| *other > sequence);
                    self.lease_until = self.lease_until.max(sent + self.lease);
                }
            }
            ToAgent::Launch(order) => {
                if !order.is_root && random.chance(30) {
                    let reason = "no room".to_owned();
                    out.push(Out::Send(FromAgent::NotMade { key: order.key, reason }, Vec::new()));
                    return out;
                }
                let mut app = AppState {
                    root: order.is_root,
                    pids: if order.is_root { vec![2, 3] } else { vec![2, 3, 4] },
                    ..AppState::default()
                };
                if order.is_root {
                    // Target and status are told by the world, through the environment.
                    let value = |name: &str| -> u64 {
                        let mut all = order.launch.environment.iter();
                        let found = all.find(|(key, _)| key == name).unwrap();
                        found.1.to_str().unwrap().parse().unwrap()
                    };
                    app.target = value("TARGET");
                    app.status = u8::try_from(value("STATUS")).unwrap();
                    for (key, node) in &order.launch.environment {
                        if key == "REMOTE" {
                            app.next_call += 1;
                            let node = node.to_str().unwrap().parse().unwrap();
                            app.calls.insert(app.next_call, (node, false));
                        }
                    }
                }
                let instance = Instance {
                    key: order.key.clone(),
                    app,
                    life: Life::Running,
                    frozen: None,
                    quiesced: false,
                    snapshot: None,
                    links: BTreeMap::new(),
                    rewired: Vec::new(),
                    partners: order.partners,
                    console: Vec::new(),
                    kept: 0,
                    ended: None,
                    silent: BTreeSet::new(),
                    rests: false,
                    connected: self.moves,
                };
                out.push(Out::Send(
                    FromAgent::Launched { key: order.key.clone(), root: 2 },
                    Vec::new(),
                ));
                for (call, (logical_node, _)) in &instance.app.calls {
                    let call = ShellCall {
                        caller: order.key.clone(),
                        node: self.name.clone(),
                        call: *call,
                    };
                    let logical_node = logical_node.clone();
                    let shell = FromAgent::Shell { call, logical_node, launch: launch_spec() };
                    out.push(Out::Send(shell, Vec::new()));
                }
                self.instances.insert(order.key, instance);
            }
            ToAgent::Instance { key, command } => self.command(now, key, command, random, &mut out),
            ToAgent::Drain { key, checkpoint, .. } => {
                if let Some(instance) = self.instances.get(&key) {
                    let offset = instance.console.len() as u64;
                    out.push(Out::Send(FromAgent::Drained { key, checkpoint, offset }, Vec::new()));
                }
            }
            ToAgent::Partners { key, nodes } => {
                if let Some(instance) = self.instances.get_mut(&key) {
                    instance.partners = nodes;
                }
            }
            ToAgent::Prepare(order) => {
                let name = (order.key.job.clone(), order.image, order.checkpoint);
                let here = self.disk.get(&name).cloned();
                let image =
                    here.or_else(|| order.holders.iter().find_map(|holder| fetch(holder, &name)));
                let Some(image) = image.filter(|_| !random.chance(30)) else {
                    let reason = "no holder has the image".to_owned();
                    out.push(Out::Send(FromAgent::NotMade { key: order.key, reason }, Vec::new()));
                    return out;
                };
                // The memory of a daemon is damaged in this copy.
                let daemon = order.assignment.get(&2).filter(|_| order.assignment.contains_key(&4));
                let counts = order.holders.contains(&self.name);
                // No chance is asked, so that the other histories stay as they are.
                let lot = order.key.epoch * 7
                    + u64::from(order.image.0) * 5
                    + order.checkpoint * 3
                    + u64::from(self.index);
                if counts && daemon.is_some_and(|part| *part != DEPARTED) && lot % 31 == 0 {
                    let reason = "read chunk 0: its hash does not match its bytes".to_owned();
                    let copies = vec![DamagedCopy {
                        node: self.name.clone(),
                        processes: BTreeSet::from([2]),
                        useless: false,
                        reason: reason.clone(),
                    }];
                    let damaged = FromAgent::Damaged { key: order.key, copies, reason };
                    out.push(Out::Send(damaged, Vec::new()));
                    return out;
                }
                self.disk.insert(name, image.clone());
                let mut app = image.state.clone();
                app.pids.retain(|pid| order.assignment.get(pid) == Some(&order.part));
                assert!(
                    image.state.root || !order.is_root,
                    "a shell's program is taken for the job's"
                );
                app.root = order.is_root;
                if order.part != 0 {
                    // Objects go with the first part; a later one has what it needs by relays.
                    app.relays.clear();
                    app.sockets.clear();
                    app.calls.clear();
                }
                assert_ne!(order.part, DEPARTED);
                if order.assignment.get(&2) == Some(&DEPARTED) {
                    // The link to the remote shell was the daemon's; what a child writes for it to read
                    // leads nowhere.
                    app.orphaned = true;
                    app.relays.retain(|side| side.side == 0 || !side.relay.ends_with("#link"));
                    let relay = format!("{}@{}#pipe", order.key, order.checkpoint);
                    app.relays.push(RelaySide { relay, side: 1 });
                }
                let sockets = app
                    .sockets
                    .iter()
                    .map(|(file, local, peer, _)| OuterSocket {
                        file: *file,
                        local: local.parse().unwrap(),
                        peer: peer.parse().unwrap(),
                    })
                    .collect();
                let key = order.key.clone();
                self.instances.insert(
                    key.clone(),
                    Instance {
                        key: key.clone(),
                        app,
                        life: Life::Prepared,
                        frozen: None,
                        quiesced: false,
                        snapshot: None,
                        links: BTreeMap::new(),
                        rewired: Vec::new(),
                        partners: order.partners,
                        console: Vec::new(),
                        kept: 0,
                        ended: None,
                        silent: BTreeSet::new(),
                        rests: false,
                        connected: self.moves,
                    },
                );
                out.push(Out::Send(FromAgent::Prepared { key, sockets }, Vec::new()));
            }
            ToAgent::Restore { key, connections, .. } => {
                let Some(instance) = self.instances.get_mut(&key) else { return out };
                if random.chance(30) {
                    self.instances.remove(&key);
                    let reason = "process 3: no".to_owned();
                    out.push(Out::Send(FromAgent::NotMade { key, reason }, Vec::new()));
                    return out;
                }
                instance.rewired = connections;
                instance.connected = self.moves;
                instance.life = Life::Restored;
                let relays = instance.app.relays.clone();
                let mut outputs = relays.clone();
                outputs.retain(|side| side.side == 1 && side.relay.ends_with("#pipe"));
                out.push(Out::Send(
                    FromAgent::Restored {
                        key,
                        relays,
                        outputs,
                        listeners: Vec::new(),
                        warnings: Vec::new(),
                    },
                    Vec::new(),
                ));
            }
            ToAgent::Go { key, links, fallen } => {
                let Some(instance) = self.instances.get_mut(&key) else { return out };
                instance.life = Life::Running;
                let fallen = fallen.unwrap_or_default();
                for link in &fallen.outputs {
                    assert!(instance.app.root, "output at an instance without a console");
                    assert!(!instance.app.relays.contains(&link.side), "output twice");
                    instance.app.relays.push(link.side.clone());
                }
                let links = links.into_iter().chain(fallen.outputs);
                instance.links = links.map(|link| (link.side.clone(), link)).collect();
                instance.silent = fallen.silent.into_iter().collect();
                let calls = instance.app.calls.clone();
                out.push(Out::Send(FromAgent::Running { key: key.clone() }, Vec::new()));
                for (call, (logical_node, answered)) in calls {
                    if !answered {
                        let call = ShellCall { caller: key.clone(), node: self.name.clone(), call };
                        let shell = FromAgent::Shell { call, logical_node, launch: launch_spec() };
                        out.push(Out::Send(shell, Vec::new()));
                    }
                }
            }
            ToAgent::Links { key, links } => {
                if let Some(instance) = self.instances.get_mut(&key) {
                    for link in links {
                        if !instance.app.relays.contains(&link.side) {
                            instance.app.relays.push(link.side.clone());
                        }
                        instance.links.insert(link.side.clone(), link);
                    }
                }
            }
            // Its processes connect to nobody anew.
            ToAgent::Addresses { .. } => {}
            ToAgent::Kill { job, below } => {
                self.instances.retain(|key, _| key.job != job || key.epoch >= below);
                out.push(Out::Send(FromAgent::Killed { job, below }, Vec::new()));
            }
            ToAgent::Keep { job, images } => {
                self.disk.retain(|(of, instance, checkpoint), _| {
                    // What is newer than all that is named is under way.
                    let newest = images.values().flatten().max();
                    *of != job
                        || newest.is_some_and(|newest| checkpoint > newest)
                        || images.get(instance).is_some_and(|kept| kept.contains(checkpoint))
                });
            }
            ToAgent::ShellRuns { call, instance: remote, .. } => {
                let ports = (self.fresh_port(), self.fresh_port());
                let address = self.index;
                if let Some(instance) = self.instances.get_mut(&call.caller) {
                    if let Some(entry) = instance.app.calls.get_mut(&call.call) {
                        if !entry.1 {
                            entry.1 = true;
                            // The remote daemon connects back.
                            let _ = (ports, address, remote);
                        }
                    }
                }
            }
            ToAgent::ShellFailed { call, .. } => {
                if let Some(instance) = self.instances.get_mut(&call.caller) {
                    if let Some((node, false)) = instance.app.calls.remove(&call.call) {
                        instance.app.next_call += 1;
                        let next = instance.app.next_call;
                        instance.app.calls.insert(next, (node.clone(), false));
                        let caller = call.caller.clone();
                        let call = ShellCall { caller, node: self.name.clone(), call: next };
                        let launch = launch_spec();
                        let shell = FromAgent::Shell { call, logical_node: node, launch };
                        out.push(Out::Send(shell, Vec::new()));
                    }
                }
            }
            ToAgent::ConsoleKept { key, offset } => {
                if let Some(instance) = self.instances.get_mut(&key) {
                    instance.kept = instance.kept.max(offset);
                }
            }
            ToAgent::Copy { job, instance, checkpoint, holders } => {
                let name = (job.clone(), instance, checkpoint);
                let found = self.disk.get(&name).cloned();
                let found =
                    found.or_else(|| holders.iter().find_map(|holder| fetch(holder, &name)));
                let failure = match found.filter(|_| !random.chance(30)) {
                    Some(image) => {
                        self.disk.insert(name, image);
                        None
                    }
                    None => Some("nobody gives it".to_owned()),
                };
                let copied = FromAgent::Copied { job, instance, checkpoint, failure };
                out.push(Out::Send(copied, Vec::new()));
            }
            ToAgent::Stay { .. } => self.leaves = false,
            ToAgent::Farewell => self.left = true,
            ToAgent::Refused { .. }
            | ToAgent::Replica(_)
            | ToAgent::Dmtcp(_)
            | ToAgent::Mark { .. }
            | ToAgent::Peers { .. }
            | ToAgent::PeersChanged { .. }
            | ToAgent::Tree(_)
            | ToAgent::TreeReset(_)
            | ToAgent::Input { .. }
            | ToAgent::Resize { .. }
            | ToAgent::Client { .. } => {}
        }
        out
    }

    fn command(
        &mut self,
        now: u64,
        key: InstanceKey,
        command: AgentCommand,
        random: &mut Random,
        out: &mut Vec<Out>,
    ) {
        let Some(instance) = self.instances.get_mut(&key) else { return };
        let mut tell = |event| {
            let key = key.clone();
            out.push(Out::Send(FromAgent::Instance { key, event }, Vec::new()));
        };
        // What was written can be committed all the same.
        let heeded = matches!(command, AgentCommand::Kill | AgentCommand::Commit { .. });
        if instance.life == Life::Ended && !heeded {
            return;
        }
        let fails = random.chance(20);
        let mut failed = |instance: &mut Instance, checkpoint, step| {
            instance.frozen = None;
            instance.quiesced = false;
            instance.snapshot = None;
            AgentEvent::Failed {
                checkpoint,
                step,
                reason: "process 7: no".to_owned(),
                passing: random.chance(300),
            }
        };
        match command {
            AgentCommand::Freeze { checkpoint } if fails => {
                tell(failed(instance, checkpoint, Step::Freeze));
            }
            AgentCommand::Freeze { checkpoint } => {
                if instance.ended.is_none() {
                    instance.frozen.get_or_insert((checkpoint, now));
                    instance.frozen = instance.frozen.map(|(_, since)| (checkpoint, since));
                    instance.quiesced = false;
                    tell(AgentEvent::Frozen { checkpoint, processes: 2, threads: 2 });
                }
            }
            AgentCommand::Quiesce { checkpoint } => {
                if fails {
                    tell(failed(instance, checkpoint, Step::Quiesce));
                } else if instance.frozen.is_some_and(|(number, _)| number == checkpoint) {
                    instance.quiesced = true;
                    tell(AgentEvent::Quiesced { checkpoint });
                }
            }
            AgentCommand::Snapshot { checkpoint } => {
                if fails {
                    tell(failed(instance, checkpoint, Step::Snapshot));
                } else if instance.frozen.is_some_and(|(number, _)| number == checkpoint) {
                    instance.snapshot = Some((checkpoint, instance.app.clone()));
                    tell(AgentEvent::SnapshotTaken { checkpoint });
                }
            }
            AgentCommand::Resume { checkpoint } => {
                if instance.frozen.is_some_and(|(number, _)| number == checkpoint) {
                    instance.frozen = None;
                }
                tell(AgentEvent::Resumed { checkpoint, pause_us: 1000 });
            }
            AgentCommand::Write { checkpoint } => {
                if fails {
                    tell(failed(instance, checkpoint, Step::Write));
                } else if let Some((number, state)) = instance.snapshot.clone() {
                    if number == checkpoint {
                        let image = Image { facts: facts(&state), state };
                        let name = (key.job.clone(), key.instance, checkpoint);
                        let partners = instance.partners.clone();
                        self.disk.insert(name.clone(), image.clone());
                        for partner in partners {
                            out.push(Out::Copy(partner, name.clone(), image.clone()));
                        }
                    }
                } else if self.disk.contains_key(&(key.job.clone(), key.instance, checkpoint)) {
                    let name = (key.job.clone(), key.instance, checkpoint);
                    let image = self.disk[&name].clone();
                    out.push(Out::Copy(self.name.clone(), name, image));
                }
            }
            AgentCommand::Commit { checkpoint, .. } => {
                instance.snapshot = None;
                tell(AgentEvent::Committed { checkpoint });
            }
            AgentCommand::Abandon { checkpoint } => {
                if instance.frozen.is_some_and(|(number, _)| number == checkpoint) {
                    instance.frozen = None;
                }
                if instance.snapshot.as_ref().is_some_and(|(number, _)| *number == checkpoint) {
                    instance.snapshot = None;
                }
                tell(AgentEvent::Abandoned { checkpoint });
            }
            AgentCommand::Kill | AgentCommand::Signal { .. } => {
                let signal = if let AgentCommand::Signal { signal } = command { signal } else { 9 };
                if instance.app.root {
                    let status = ExitKind::Signalled(signal);
                    instance.ended = Some(status);
                    instance.life = Life::Ended;
                    instance.frozen = None;
                    out.push(Out::Send(FromAgent::RootEnded { key, status }, Vec::new()));
                } else if matches!(command, AgentCommand::Kill) {
                    self.instances.remove(&key);
                    out.push(Out::Send(FromAgent::Empty { key }, Vec::new()));
                }
            }
            AgentCommand::Collect { .. } | AgentCommand::Hold | AgentCommand::Release => {}
        }
    }
}

/// An image's facts: one daemon, which is the others' parent.
fn facts(state: &AppState) -> ImageFacts {
    let daemon = state.pids.contains(&2);
    let process = |pid: i32| ProcessFacts {
        pid,
        parent: if pid == 2 { 1 } else { 2 },
        name: if pid == 2 { "daemon" } else { "rank" }.to_owned(),
        threads: 1,
        bytes: 1000,
    };
    let unit = |pid: i32| Unit {
        pids: vec![pid],
        bytes: 1000,
        load: u32::from(pid != 2),
        because: String::new(),
    };
    ImageFacts {
        // An image tells of a remote shell's first process, too.
        root: daemon.then_some(2),
        processes: state.pids.iter().map(|pid| process(*pid)).collect(),
        units: state.pids.iter().map(|pid| unit(*pid)).collect(),
        requirements: Requirements {
            architecture: "x86_64".to_owned(),
            page_size: 4096,
            vdso: "00".to_owned(),
            any_vdso: false,
            features: Vec::new(),
        },
        at_stake: Vec::new(),
        efforts: Some(efforts(state)),
    }
}

/// Ranks of three weights wait for each other asleep.
fn efforts(state: &AppState) -> Efforts {
    let at_ms = state.counter.saturating_mul(100);
    let effort = |pid: i32| {
        let part = match pid {
            2 => 0,
            pid if pid % 3 == 0 => 1,
            pid if pid % 3 == 1 => 2,
            _ => 4,
        };
        (pid, Effort { user_ms: at_ms * part / 4, ..Effort::default() })
    };
    let processes = state.pids.iter().map(|pid| effort(*pid)).collect();
    Efforts { at_ms, processes, idle_permille: None }
}

/// What is told once the copies have been made.
pub fn written(
    key: &InstanceKey,
    checkpoint: CheckpointNumber,
    image: &Image,
    holders: Vec<NodeName>,
) -> [FromAgent; 2] {
    let facts = image.facts.clone();
    [
        FromAgent::Image { key: key.clone(), checkpoint, facts, holders },
        FromAgent::Instance {
            key: key.clone(),
            event: AgentEvent::Written { checkpoint, summary: ImageSummary::default() },
        },
    ]
}
