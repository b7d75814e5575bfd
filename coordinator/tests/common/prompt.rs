//! Machines whose agents run the real nodes, and whose drivers are prompt: whatever a node wants is done at once, and
//! succeeds. There is no chance in here, no time and no coordinator: what nodes say to it comes out.

use ckpt_node::{
    Action, Adopted, Call, ConsoleReport, Copied, CopyImage, Ending, Event, InstanceEvent, Kill,
    Lacking, LineEvent, Made, Node, Record, RelayEvent, RelayOrder, Restore, Tie, shell_link,
};
use command_tree::Line;
use protocol::agent::{AgentCommand, AgentEvent, CheckpointNumber, ExitKind, ImageSummary};
use protocol::cluster::agent::{
    FromAgent, LaunchOrder, NodeProfile, PrepareOrder, RelaySide, Vitals,
};
use protocol::cluster::image::ImageFacts;
use protocol::cluster::succession::Followed;
use protocol::cluster::{InstanceKey, NodeName};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use super::common::{Console, ImageName, hello, launch_spec, new_node, stays};

/// The number of the user of all processes.
const UID: u32 = 1000;

/// What a node says to the coordinator, by the machine's number.
pub type Said = (usize, FromAgent, Vec<u8>);

/// Processes of an instance.
#[derive(Debug, Clone, Default)]
pub struct Instance {
    pub console: Console,
    relays: BTreeSet<RelaySide>,
    pub ended: Option<ExitKind>,
    empty: bool,
    held: bool,
    lease_until: u64,
}

/// A machine: what runs there and lies on its disk, and its agent.
#[derive(Debug)]
pub struct Machine {
    name: NodeName,
    profile: NodeProfile,
    /// None: no agent is there.
    node: Option<Node>,
    /// Number of the agent's connection, while it has one.
    pub connection: Option<u64>,
    pub instances: BTreeMap<InstanceKey, Instance>,
    /// What agents have written down of them.
    records: BTreeMap<InstanceKey, Record>,
    /// Images, with the relays to which their objects lead.
    pub disk: BTreeMap<ImageName, BTreeSet<RelaySide>>,
    /// Processes that wait for a remote shell, by the agent's number: the instance, and its number for the call.
    callers: BTreeMap<u64, (InstanceKey, u64)>,
    calls: u64,
    clock: Option<u64>,
}

/// See the module.
pub struct Machines {
    pub all: Vec<Machine>,
    /// What all their clocks show, ns.
    pub now: u64,
    facts: fn(&InstanceKey) -> ImageFacts,
    numbers: BTreeMap<NodeName, usize>,
    /// What comes before any other event.
    at_once: VecDeque<(usize, Event)>,
    events: VecDeque<(usize, Event)>,
    said: Vec<Said>,
}

impl Machines {
    /// None yet; what their images say is given.
    pub fn new(facts: fn(&InstanceKey) -> ImageFacts) -> Self {
        Self {
            all: Vec::new(),
            now: 0,
            facts,
            numbers: BTreeMap::new(),
            at_once: VecDeque::new(),
            events: VecDeque::new(),
            said: Vec::new(),
        }
    }

    /// One more machine, without an agent.
    pub fn add(&mut self, name: NodeName, profile: NodeProfile) {
        self.numbers.insert(name.clone(), self.all.len());
        self.all.push(Machine {
            name,
            profile,
            node: None,
            connection: None,
            instances: BTreeMap::new(),
            records: BTreeMap::new(),
            disk: BTreeMap::new(),
            callers: BTreeMap::new(),
            calls: 0,
            clock: None,
        });
    }

    /// The agent connects; where there is none, one begins, and finds what has outlived the one before.
    pub fn connect(&mut self, at: usize, connection: u64, host: IpAddr) -> Vec<Said> {
        if self.all[at].node.is_none() {
            self.start(at);
        }
        self.all[at].connection = Some(connection);
        let address = SocketAddr::new(host, 7000);
        self.happens(at, Event::Connected { connection, address, addresses: vec![host] })
    }

    fn start(&mut self, at: usize) {
        let machine = &mut self.all[at];
        let (name, profile) = (machine.name.clone(), machine.profile.clone());
        machine.node = Some(new_node(name, profile, Followed::default()));
        machine.callers.clear();
        machine.clock = None;
        let mut found = Vec::new();
        for (key, instance) in &mut machine.instances {
            instance.console.lose_agent();
            let relays = instance.relays.iter().cloned().collect();
            let made = Made { init: 1, root: Some(2), relays, ..Made::default() };
            let adopted = Adopted {
                made,
                held: instance.held,
                lease_until: instance.lease_until,
                ended: instance.ended,
                empty: instance.empty,
                touched: false,
            };
            found.push(Event::Found(Box::new(machine.records[key].clone()), adopted));
        }
        found.push(Event::AllFound);
        self.events.extend(found.into_iter().map(|event| (at, event)));
    }

    /// The agent is killed; what it ran stays.
    pub fn kill_agent(&mut self, at: usize) {
        (self.all[at].node, self.all[at].connection) = (None, None);
    }

    /// A process in an instance, by its number there, wants a program to be started on a node.
    pub fn call(
        &mut self,
        at: usize,
        inside: InstanceKey,
        identity: u64,
        node: NodeName,
    ) -> Vec<Said> {
        let machine = &mut self.all[at];
        machine.calls += 1;
        let number = machine.calls;
        machine.callers.insert(number, (inside.clone(), identity));
        let (inside, launch) = (Some(inside), launch_spec("rank"));
        let call = Call { number, identity, inside, uid: UID, node, launch };
        self.happens(at, Event::Called(Box::new(call)))
    }

    /// Something happens to an agent, if there is one; all that comes of it is done, wherever that is.
    pub fn happens(&mut self, at: usize, event: Event) -> Vec<Said> {
        let now = self.now;
        if self.all[at].clock.take_if(|due| *due <= now).is_some() {
            self.events.push_back((at, Event::Clock));
        }
        self.events.push_back((at, event));
        while let Some((at, event)) = self.at_once.pop_front().or_else(|| self.events.pop_front()) {
            let Some(node) = &mut self.all[at].node else { continue };
            for action in node.step(self.now, event) {
                self.perform(at, action);
            }
        }
        std::mem::take(&mut self.said)
    }

    /// One arm for each action, in a table without steps of its own.
    fn perform(&mut self, at: usize, action: Action) {
        match action {
            Action::Tell(message, body) => self.said.push((at, *message, body)),
            Action::Hello { followed, profile, instances } => {
                let hello = hello(followed, *profile, instances, self.all[at].disk.keys());
                self.said.push((at, hello, Vec::new()));
            }
            Action::Beat { sequence, answered, .. } => {
                let heartbeat =
                    FromAgent::Heartbeat { sequence, answered, vitals: Vitals::default() };
                self.said.push((at, heartbeat, Vec::new()));
            }
            Action::NoteFollowed { followed, asker } => {
                let noted = Event::FollowedNoted { followed, asker, failure: None };
                self.at_once.push_back((at, noted));
            }
            Action::End(ending) => {
                assert_eq!(ending, Ending::InOrder, "{} is not wanted", self.all[at].name);
                self.all[at].node = None;
            }
            Action::Launch(launch) => self.launch(at, launch.order, launch.lease_until),
            Action::Prepare(order) => self.prepare(at, *order),
            Action::Restore(restore) => self.restore(at, *restore),
            Action::Tie(tie) => self.tie(at, tie),
            Action::Go(key) => self.later(at, Event::Running(key, Ok(()))),
            Action::Hold(key) => self.with(at, &key, |instance| instance.held = true),
            Action::Release(key) => self.with(at, &key, |instance| instance.held = false),
            Action::Lease(key, until) => self.with(at, &key, |one| one.lease_until = until),
            Action::Kill(kills) => self.kill(at, kills),
            Action::Forget(key) => self.forget(at, &key),
            Action::WriteRecord(record) => {
                self.all[at].records.insert(record.key.clone(), *record);
            }
            Action::Command(key, command) => self.command(at, key, command),
            Action::Console(key, order) => {
                let mut reports = Vec::new();
                self.with(at, &key, |instance| reports = instance.console.obey(order));
                self.report_console(at, &key, reports);
            }
            Action::Relay(key, side, RelayOrder::Deserted) => {
                self.with(at, &key, |instance| {
                    instance.relays.remove(&side);
                });
                self.later(at, Event::Relay(key, RelayEvent::Done(side)));
            }
            Action::PauseRelays(key, number) => {
                self.later(at, Event::RelaysPaused(key, number, Ok(Vec::new())));
            }
            Action::CopyImage(copy) => self.copy_image(at, *copy),
            Action::MarkCopies { key, record, .. } => {
                self.later(at, Event::Marked(key, record.checkpoint, Ok(())));
            }
            Action::Keep(kept) => self.all[at].disk.retain(|image, _| stays(&kept, image)),
            Action::FetchCopy { job, instance, checkpoint, holders, .. } => {
                let image = (job, instance, checkpoint);
                let result = self.fetch(at, &image, &holders);
                self.later(at, Event::Fetched(image.0, instance, checkpoint, result));
            }
            Action::CallAgain(number) | Action::DropCall(number) | Action::FailCall(number, _) => {
                self.all[at].callers.remove(&number);
            }
            Action::TieCaller { number, key, peer, .. } => self.tie_caller(at, number, key, &peer),
            Action::OpenLine(to) => self.open_line(at, &to),
            Action::SendLine(line, message) => {
                let (to, back) = self.other_end(at, line);
                self.later(to, Event::Line(LineEvent::Heard(back, Box::new(message))));
            }
            Action::CloseLine(line) => {
                let (to, back) = self.other_end(at, line);
                self.later(to, Event::Line(LineEvent::Broken(back)));
            }
            Action::Clock(due) => self.all[at].clock = Some(due),
            Action::GiveUp(connection) => unreachable!("the coordinator answers: {connection:?}"),
            // Outcomes of rehearsals and imports are the tests' to give. Of all else here nothing is simulated: members and
            // addresses, the bytes in relays, local commands, copies of the coordinator's folder, DMTCP.
            _ => {}
        }
    }

    fn later(&mut self, at: usize, event: Event) {
        self.events.push_back((at, event));
    }

    /// Does something with an instance, if it is there.
    fn with(&mut self, at: usize, key: &InstanceKey, act: impl FnOnce(&mut Instance)) {
        if let Some(instance) = self.all[at].instances.get_mut(key) {
            act(instance);
        }
    }

    pub fn report_console(
        &mut self,
        at: usize,
        key: &InstanceKey,
        reports: impl IntoIterator<Item = ConsoleReport>,
    ) {
        for report in reports {
            self.later(at, Event::Console(key.clone(), report));
        }
    }

    fn launch(&mut self, at: usize, order: LaunchOrder, lease_until: u64) {
        let key = order.key.clone();
        let link = order.shell.is_some().then(|| RelaySide { relay: shell_link(&key), side: 1 });
        self.all[at].records.insert(key.clone(), Record::of_launch(&order));
        self.make(at, key, link.into_iter().collect(), lease_until);
    }

    fn make(&mut self, at: usize, key: InstanceKey, relays: BTreeSet<RelaySide>, lease: u64) {
        let of_agent = relays.iter().cloned().collect();
        let made = Made { init: 1, root: Some(2), relays: of_agent, ..Made::default() };
        let console = Console::new();
        let instance = Instance { console, relays, lease_until: lease, ..Instance::default() };
        self.all[at].instances.insert(key.clone(), instance);
        self.later(at, Event::RunBy(key.clone(), UID));
        self.later(at, Event::Made(key, Ok(made)));
    }

    fn prepare(&mut self, at: usize, order: PrepareOrder) {
        let key = order.key.clone();
        let image = (key.job.clone(), order.image, order.checkpoint);
        let fetched = self.fetch(at, &image, &order.holders);
        self.all[at].records.insert(key.clone(), Record::of_prepare(&order));
        let prepared = fetched.map(|()| Vec::new()).map_err(Lacking::from);
        self.later(at, Event::Prepared(key, prepared));
    }

    /// Brings an image here, unless it is.
    fn fetch(&mut self, at: usize, image: &ImageName, from: &[NodeName]) -> Result<(), String> {
        let holders = from.iter().filter_map(|holder| self.numbers.get(holder));
        let found =
            std::iter::once(&at).chain(holders).find_map(|at| self.all[*at].disk.get(image));
        let found = found.cloned().ok_or("no holder has the image")?;
        self.all[at].disk.insert(image.clone(), found);
        Ok(())
    }

    /// What leads to other instances goes with the first part of an image.
    fn restore(&mut self, at: usize, restore: Restore) {
        let Restore { order, lease_until, .. } = restore;
        let image = (order.key.job.clone(), order.image, order.checkpoint);
        let relays = self.all[at].disk.get(&image).filter(|_| order.part == 0).cloned();
        self.make(at, order.key, relays.unwrap_or_default(), lease_until);
    }

    fn tie(&mut self, at: usize, tie: Tie) {
        let has_console = self.all[at].records[&tie.key].is_root;
        self.at_once.push_back((at, Event::Tied(tie.key, Ok(has_console))));
    }

    fn kill(&mut self, at: usize, kills: Vec<Kill>) {
        for Kill { key, .. } in kills {
            self.all[at].instances.remove(&key);
            self.later(at, Event::Killed(key));
        }
    }

    fn forget(&mut self, at: usize, key: &InstanceKey) {
        let machine = &mut self.all[at];
        assert!(!machine.instances.contains_key(key), "{key} is forgotten while it is there");
        machine.records.remove(key);
        machine.callers.retain(|_, (inside, _)| inside != key);
    }

    fn command(&mut self, at: usize, key: InstanceKey, command: AgentCommand) {
        let Some(instance) = self.all[at].instances.get(&key) else { return };
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let event = match command {
            AgentCommand::Freeze { checkpoint } => {
                let processes = (self.facts)(&key).processes;
                let threads = processes.iter().map(|process| process.threads).sum();
                AgentEvent::Frozen { checkpoint, processes: count(processes.len()), threads }
            }
            AgentCommand::Quiesce { checkpoint } => AgentEvent::Quiesced { checkpoint },
            AgentCommand::Snapshot { checkpoint } => AgentEvent::SnapshotTaken { checkpoint },
            AgentCommand::Resume { checkpoint } => {
                AgentEvent::Resumed { checkpoint, pause_us: 1000 }
            }
            AgentCommand::Write { checkpoint } => {
                let relays = instance.relays.clone();
                self.all[at].disk.insert((key.job.clone(), key.instance, checkpoint), relays);
                let processes = count((self.facts)(&key).processes.len());
                let summary = ImageSummary { processes, ..ImageSummary::default() };
                AgentEvent::Written { checkpoint, summary }
            }
            AgentCommand::Commit { checkpoint, .. } => AgentEvent::Committed { checkpoint },
            AgentCommand::Abandon { checkpoint } => AgentEvent::Abandoned { checkpoint },
            // Signals, of which these processes take no notice.
            _ => return,
        };
        self.later(at, Event::Instance(key, InstanceEvent::Agent(event)));
    }

    fn copy_image(&mut self, at: usize, copy: CopyImage) {
        let CopyImage { key, checkpoint, summary, partners, copies, .. } = copy;
        let image: (_, _, CheckpointNumber) = (key.job.clone(), key.instance, checkpoint);
        let relays = self.all[at].disk.get(&image).cloned().unwrap_or_default();
        let mut holders = vec![self.all[at].name.clone()];
        for partner in partners.into_iter().take(copies) {
            self.all[self.numbers[&partner]].disk.insert(image.clone(), relays.clone());
            holders.push(partner);
        }
        let facts = Ok((self.facts)(&key));
        let copied = Copied { key, checkpoint, summary, facts, holders, warnings: Vec::new() };
        self.later(at, Event::Copied(Box::new(copied)));
    }

    fn tie_caller(&mut self, at: usize, number: u64, key: InstanceKey, peer: &InstanceKey) {
        self.all[at].callers.remove(&number);
        let side = RelaySide { relay: shell_link(peer), side: 0 };
        self.with(at, &key, |instance| {
            instance.relays.insert(side.clone());
        });
        self.at_once.push_back((at, Event::CallerTied(key, vec![side])));
    }

    fn open_line(&mut self, at: usize, to: &NodeName) {
        let (own, taker) = (self.all[at].name.clone(), self.numbers[to]);
        match self.all[taker].node {
            Some(_) => self.later(taker, Event::Line(LineEvent::Accepted(own))),
            None => {
                let line = Line { node: to.clone(), ours: true };
                self.later(at, Event::Line(LineEvent::Broken(line)));
            }
        }
    }

    /// The machine at the other end of a line, and what the line is there.
    fn other_end(&self, at: usize, line: Line) -> (usize, Line) {
        (self.numbers[&line.node], Line { node: self.all[at].name.clone(), ours: !line.ours })
    }
}

impl Machine {
    /// No process of an instance is left.
    pub fn empty(&mut self, key: &InstanceKey) {
        self.instances.get_mut(key).into_iter().for_each(|instance| instance.empty = true);
    }
}
