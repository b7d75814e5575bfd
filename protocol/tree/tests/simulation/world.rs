//! Members, the lines between them, and a coordinator, in one process and from a seed. Lines keep the
//! order of messages, hold few of them at a time, take their time, and break.

use crate::random::Random;
use command_tree::{Act, Line, Member, Outcome, Own, Root, Wish};
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::tree::{
    Operation, TreeAnswer, TreeCall, TreeMark, TreeMessage, TreePlace, TreeStep, TreeSum,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;

/// Messages that a direction of a line holds; more wait at the sender.
const ROOM: usize = 2;

enum Packet {
    Message(TreeMessage),
    /// The first of a connection.
    Made,
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    waiting: VecDeque<Packet>,
    under_way: VecDeque<Packet>,
    last_arrival: u64,
}

struct Connection {
    maker: usize,
    taker: usize,
    /// From the maker, to the maker.
    pipes: [Pipe; 2],
}

enum Event {
    Arrival { connection: usize, way: usize },
    Broken { member: usize, connection: usize },
    OwnDone { member: usize, operation: Operation, own: Own },
    ToFirst { member: usize, call: TreeCall },
    ToRoot { member: usize, answer: TreeAnswer },
    Reset { member: usize, mark: TreeMark },
    RootLost { member: usize },
}

/// What goes wrong by itself.
#[derive(Clone, Copy, Default)]
pub struct Weather {
    /// The longest way of a message, in nanoseconds.
    pub delay: u64,
    /// The longest own part.
    pub work: u64,
    /// Whether a broken connection is noticed by its ends.
    pub noticed: bool,
}

pub struct World {
    pub now: u64,
    pub random: Random,
    pub weather: Weather,
    pub root: Root,
    pub members: Vec<Option<Member>>,
    names: BTreeMap<NodeName, usize>,
    connections: Vec<Option<Connection>>,
    /// By member and line.
    current: BTreeMap<(usize, Line), usize>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    contents: BTreeMap<u64, Event>,
    next_event: u64,
    /// The checkpoint that operations are of, and what each member knows to be given up.
    pub checkpoint: u64,
    given_up: Vec<u64>,
    /// Members whose own part fails.
    pub refusing: Option<usize>,
    pub outcomes: Vec<Outcome>,
    /// Own parts begun, by operation.
    pub worked: BTreeMap<Operation, u32>,
    pub messages: u64,
}

impl World {
    pub fn new(members: usize, seed: u64, weather: Weather) -> Self {
        let names: BTreeMap<NodeName, usize> =
            (0..members).map(|number| (name(number), number)).collect();
        Self {
            now: 0,
            random: Random::new(seed),
            weather,
            root: Root::new(),
            members: (0..members).map(|number| Some(Member::new(name(number)))).collect(),
            names,
            connections: Vec::new(),
            current: BTreeMap::new(),
            events: BinaryHeap::new(),
            contents: BTreeMap::new(),
            next_event: 0,
            checkpoint: 1,
            given_up: vec![0; members],
            refusing: None,
            outcomes: Vec::new(),
            worked: BTreeMap::new(),
            messages: 0,
        }
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.events.push(Reverse((at, self.next_event)));
        self.contents.insert(self.next_event, event);
        self.next_event += 1;
    }

    fn soon(&mut self) -> u64 {
        self.now + 1 + self.random.below(self.weather.delay.max(1))
    }

    /// Places of these members, with one or two instances each.
    pub fn places(&mut self, members: &[usize]) -> Vec<TreePlace> {
        members
            .iter()
            .map(|member| TreePlace {
                node: name(*member),
                instances: (0..=(*member as u32 % 2)).map(InstanceId).collect(),
            })
            .collect()
    }

    /// The coordinator begins a generation, and tells these members.
    pub fn reset(&mut self, told: &[usize]) {
        let mark = self.root.reset(1, 0);
        for member in told {
            let at = self.soon();
            self.schedule(at, Event::Reset { member: *member, mark: mark.clone() });
        }
    }

    pub fn begin(&mut self, job: &str, members: &[usize], limit_ms: u64) -> Operation {
        let places = self.places(members);
        let checkpoint = self.checkpoint;
        let wish = Wish { job: job.to_owned(), epoch: 1, checkpoint, step: TreeStep::Freeze };
        let call = self.root.begin(self.now, wish, places, limit_ms).unwrap();
        let operation = call.order.operation;
        let at = self.soon();
        self.schedule(at, Event::ToFirst { member: members[0], call });
        operation
    }

    /// The coordinator's own word comes to a member: the checkpoint of this job is given up.
    pub fn give_up(&mut self, member: usize, job: &str) {
        self.given_up[member] = self.checkpoint;
        if let Some(known) = &mut self.members[member] {
            let acts = known.abandoned(job, self.checkpoint);
            self.perform(member, acts);
        }
    }

    /// A member is gone, with everything in it.
    pub fn kill(&mut self, member: usize) {
        self.members[member] = None;
        for connection in 0..self.connections.len() {
            let touched = self.connections[connection]
                .as_ref()
                .is_some_and(|known| known.maker == member || known.taker == member);
            if touched {
                self.cut(connection);
            }
        }
        if self.weather.noticed {
            let at = self.soon();
            self.schedule(at, Event::RootLost { member });
        }
    }

    /// A connection that is there, by chance.
    pub fn any_connection(&mut self) -> Option<usize> {
        let there: Vec<usize> = (0..self.connections.len())
            .filter(|number| self.connections[*number].is_some())
            .collect();
        (!there.is_empty()).then(|| there[self.random.below(there.len() as u64) as usize])
    }

    /// The members at the ends of a connection.
    pub fn ends(&self, connection: usize) -> (usize, usize) {
        let known = self.connections[connection].as_ref().unwrap();
        (known.maker, known.taker)
    }

    /// A connection breaks; its ends notice some time later.
    pub fn cut(&mut self, connection: usize) {
        let Some(Connection { maker, taker, .. }) = self.connections[connection].take() else {
            return;
        };
        if self.weather.noticed {
            for member in [maker, taker] {
                let at = self.soon();
                self.schedule(at, Event::Broken { member, connection });
            }
        }
    }

    fn send(&mut self, member: usize, line: &Line, packet: Packet) {
        let Some(connection) = self.current.get(&(member, line.clone())).copied() else { return };
        let way = usize::from(!line.ours);
        if let Some(known) = &mut self.connections[connection] {
            known.pipes[way].waiting.push_back(packet);
            self.pump(connection, way);
        }
    }

    fn pump(&mut self, connection: usize, way: usize) {
        loop {
            let at = self.soon();
            let Some(known) = &mut self.connections[connection] else { return };
            let pipe = &mut known.pipes[way];
            if pipe.under_way.len() >= ROOM {
                return;
            }
            let Some(packet) = pipe.waiting.pop_front() else { return };
            pipe.under_way.push_back(packet);
            pipe.last_arrival = at.max(pipe.last_arrival + 1);
            let at = pipe.last_arrival;
            self.schedule(at, Event::Arrival { connection, way });
        }
    }

    fn perform(&mut self, member: usize, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Open(node) => self.open(member, &node),
                Act::Send(line, message) => self.send(member, &line, Packet::Message(message)),
                Act::Clear(line) => {
                    if let Some(connection) = self.current.get(&(member, line.clone())) {
                        if let Some(known) = &mut self.connections[*connection] {
                            let pipe = &mut known.pipes[usize::from(!line.ours)];
                            pipe.waiting.retain(|packet| matches!(packet, Packet::Made));
                        }
                    }
                }
                Act::Report(answer) => {
                    let at = self.soon();
                    self.schedule(at, Event::ToRoot { member, answer });
                }
                Act::Work(order, instances) => {
                    let generation =
                        self.members[member].as_ref().map(Member::generation).unwrap_or_default();
                    assert_eq!(order.operation.generation, generation, "an order of before");
                    assert!(order.checkpoint > self.given_up[member], "it was given up");
                    *self.worked.entry(order.operation).or_default() += 1;
                    let own = if self.refusing == Some(member) {
                        Own::Failed { passing: false, reason: "it would not".to_owned() }
                    } else {
                        let count = instances.len() as u32;
                        let pause_us = member as u64;
                        Own::Done(TreeSum {
                            instances: count,
                            processes: 10 * count,
                            threads: 20 * count,
                            pause_us,
                        })
                    };
                    let at = self.now + 1 + self.random.below(self.weather.work.max(1));
                    let operation = order.operation;
                    self.schedule(at, Event::OwnDone { member, operation, own });
                }
                Act::Forget(_) => {}
            }
        }
    }

    fn open(&mut self, maker: usize, node: &NodeName) {
        let taker = self.names[node];
        let connection = self.connections.len();
        let line = Line { node: node.clone(), ours: true };
        self.current.insert((maker, line.clone()), connection);
        if self.members[taker].is_none() {
            self.connections.push(None);
            if self.weather.noticed {
                let at = self.soon();
                self.schedule(at, Event::Broken { member: maker, connection });
            }
            return;
        }
        self.connections.push(Some(Connection {
            maker,
            taker,
            pipes: [Pipe::default(), Pipe::default()],
        }));
        self.send(maker, &line, Packet::Made);
    }

    /// Puts something into a line as if it had been sent long ago.
    pub fn stuff(&mut self, connection: usize, way: usize, message: TreeMessage) {
        if let Some(known) = &mut self.connections[connection] {
            known.pipes[way].waiting.push_back(Packet::Message(message));
            self.pump(connection, way);
        }
    }

    /// Connects two members, as an operation would.
    pub fn connect(&mut self, maker: usize, taker: usize) {
        let wish = Wish {
            job: format!("j{maker}-{taker}"),
            epoch: 1,
            checkpoint: 1,
            step: TreeStep::Freeze,
        };
        let places = self.places(&[maker, taker]);
        let call = self.root.begin(self.now, wish, places, 60_000).unwrap();
        let at = self.soon();
        self.schedule(at, Event::ToFirst { member: maker, call });
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Arrival { connection, way } => self.arrive(connection, way),
            Event::Broken { member, connection } => {
                let lines: Vec<Line> = self
                    .current
                    .iter()
                    .filter(|((of, _), number)| *of == member && **number == connection)
                    .map(|((_, line), _)| line.clone())
                    .collect();
                for line in lines {
                    self.current.remove(&(member, line.clone()));
                    if let Some(known) = &mut self.members[member] {
                        let acts = known.broken(&line);
                        self.perform(member, acts);
                    }
                }
            }
            Event::OwnDone { member, operation, own } => {
                if let Some(known) = &mut self.members[member] {
                    let acts = known.own(operation, own);
                    self.perform(member, acts);
                }
            }
            Event::ToFirst { member, call } => {
                if let Some(known) = &mut self.members[member] {
                    let mark = TreeMark { generation: call.order.operation.generation, seal: None };
                    let mut acts = known.reset(mark);
                    acts.extend(known.ordered(now, call));
                    self.perform(member, acts);
                }
            }
            Event::ToRoot { member, answer } => {
                let outcome = self.root.answered(&name(member), answer);
                self.outcomes.extend(outcome);
            }
            Event::Reset { member, mark } => {
                if let Some(known) = &mut self.members[member] {
                    let acts = known.reset(mark);
                    self.perform(member, acts);
                }
            }
            Event::RootLost { member } => {
                let lost = self.root.lost(&name(member));
                self.outcomes.extend(lost);
            }
        }
    }

    fn arrive(&mut self, connection: usize, way: usize) {
        // Cut meanwhile: what was under way is lost.
        let Some(known) = &mut self.connections[connection] else { return };
        let Some(packet) = known.pipes[way].under_way.pop_front() else { return };
        let (from, to) = match way {
            0 => (known.maker, known.taker),
            _ => (known.taker, known.maker),
        };
        self.pump(connection, way);
        let line = Line { node: name(from), ours: way == 1 };
        let now = self.now;
        self.messages += 1;
        match packet {
            Packet::Made => {
                self.current.insert((to, line), connection);
                if let Some(member) = &mut self.members[to] {
                    let acts = member.accepted(name(from));
                    self.perform(to, acts);
                }
            }
            Packet::Message(message) => {
                // Of a connection that was replaced.
                if self.current.get(&(to, line.clone())) != Some(&connection) {
                    return;
                }
                if let Some(member) = &mut self.members[to] {
                    let acts = member.heard(now, &line, message);
                    self.perform(to, acts);
                }
            }
        }
    }

    /// What comes next happens. False: nothing is left.
    pub fn step(&mut self) -> bool {
        let own = self.members.iter().flatten().filter_map(Member::deadline).min();
        let deadline = [own, self.root.deadline()].into_iter().flatten().min();
        let next = self.events.peek().map(|Reverse((at, _))| *at);
        match (next, deadline) {
            (Some(at), deadline) if deadline.is_none_or(|deadline| at <= deadline) => {
                self.now = self.now.max(at);
                if let Some(Reverse((_, number))) = self.events.pop() {
                    if let Some(event) = self.contents.remove(&number) {
                        self.happen(event);
                    }
                }
                true
            }
            (_, Some(deadline)) => {
                self.now = self.now.max(deadline);
                for member in 0..self.members.len() {
                    if let Some(known) = &mut self.members[member] {
                        let acts = known.pass_time(self.now);
                        self.perform(member, acts);
                    }
                }
                let late = self.root.pass_time(self.now);
                self.outcomes.extend(late);
                true
            }
            (None, None) => false,
            (Some(_), None) => unreachable!("an event is taken first"),
        }
    }

    /// Until nothing is left to happen. Panics where that takes too long.
    pub fn settle(&mut self) {
        for _ in 0..2_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!("it goes on for ever");
    }

    /// Connections between living members whose ends both know them.
    pub fn lines(&self) -> Vec<(usize, Line)> {
        self.current
            .iter()
            .filter(|(_, connection)| self.connections[**connection].is_some())
            .map(|((member, line), _)| (*member, line.clone()))
            .collect()
    }
}

pub fn name(number: usize) -> NodeName {
    format!("n{number}").parse().unwrap()
}

/// A call as one of before a reset might look.
pub fn old_call(random: &mut Random, generation: u64, to: usize, others: usize) -> TreeMessage {
    let number = random.below(50);
    let order = protocol::cluster::tree::TreeOrder {
        operation: Operation { generation, number },
        job: format!("j{}", random.below(3)),
        epoch: 1,
        checkpoint: 1,
        step: TreeStep::Freeze,
    };
    let mut places = vec![to, random.below(others as u64) as usize];
    places.dedup();
    let places = places
        .into_iter()
        .map(|member| TreePlace { node: name(member), instances: vec![InstanceId(0)] })
        .collect();
    TreeMessage::Call(TreeCall { order, seal: None, places, limit_ms: 1000, margin_ms: 10 })
}
