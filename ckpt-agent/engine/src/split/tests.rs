//! Random instances, taken apart at random.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;

use super::super::graph::{
    Clocks, FileId, GRAPH_VERSION, Graph, OpenFile, Pid, ProcessNode, ProcessState, RelayKind,
};
use super::super::restore::tree;
use super::{
    DEPARTED, Holdings, Leg, Part, PartOrder, Possessions, Realisation, SplitError, plan, units,
};

/// One event of an instance's history; numbers choose among what there is.
#[derive(Debug, Clone)]
enum Event {
    Fork(usize),
    Setsid(usize),
    Group(usize),
    JoinGroup(usize, usize),
    Exit(usize),
    Zombie(usize),
    Pipe(usize, usize, usize),
    Terminal(usize, usize),
    Pair(usize, usize),
    Tcp(usize, usize),
    Counter(usize, usize),
}

fn event() -> impl Strategy<Value = Event> {
    let who = any::<usize>();
    let two = (any::<usize>(), any::<usize>());
    prop_oneof![
        8 => who.prop_map(Event::Fork),
        1 => who.prop_map(Event::Setsid),
        2 => who.prop_map(Event::Group),
        1 => two.prop_map(|(a, b)| Event::JoinGroup(a, b)),
        1 => who.prop_map(Event::Exit),
        1 => who.prop_map(Event::Zombie),
        3 => any::<[usize; 3]>().prop_map(|[a, b, c]| Event::Pipe(a, b, c)),
        2 => two.prop_map(|(a, b)| Event::Terminal(a, b)),
        2 => two.prop_map(|(a, b)| Event::Pair(a, b)),
        2 => two.prop_map(|(a, b)| Event::Tcp(a, b)),
        1 => two.prop_map(|(a, b)| Event::Counter(a, b)),
    ]
}

fn node(pid: Pid, ppid: Pid, pgid: Pid, sid: Pid) -> ProcessNode {
    let (comm, state) = (String::new(), ProcessState::Alive);
    let (exit_signal, inside) = (libc::SIGCHLD, None);
    ProcessNode { pid, ppid, pgid, sid, comm, exit_signal, subreaper: false, state, inside }
}

/// An instance and who holds what.
#[derive(Debug, Clone)]
struct World {
    graph: Graph,
    held: BTreeMap<Pid, Possessions>,
}

impl World {
    fn new(events: &[Event]) -> Self {
        let graph = Graph {
            version: GRAPH_VERSION,
            architecture: "x86_64".into(),
            page_size: 4096,
            clocks: Clocks { monotonic_ns: 0, boottime_ns: 0, realtime_ns: 0 },
            vdso: String::new(),
            vdso_image: None,
            layout: Vec::new(),
            offers: Vec::new(),
            root: 2,
            init: 0,
            processes: vec![node(2, 1, 2, 2)],
            files: Vec::new(),
            inodes: Vec::new(),
            blobs: Vec::new(),
            folders: Vec::new(),
            kept: Default::default(),
            ipc: crate::graph::IpcObjects::default(),
            namespaces: Vec::new(),
            sharing: Vec::new(),
            relays: Vec::new(),
            remote_shells: Vec::new(),
        };
        let mut world = Self { graph, held: BTreeMap::from([(2, Possessions::default())]) };
        events.iter().for_each(|event| world.apply(event));
        world
    }

    fn alive(&self, number: usize) -> Pid {
        *self.held.keys().nth(number % self.held.len()).unwrap()
    }

    fn at(&mut self, pid: Pid) -> &mut ProcessNode {
        self.graph.processes.iter_mut().find(|node| node.pid == pid).unwrap()
    }

    fn file(&mut self, flags: i32, object: serde_json::Value, holders: &[Pid]) -> FileId {
        let id = FileId(self.graph.files.len() as u32);
        let object = serde_json::from_value(object).unwrap();
        self.graph.files.push(OpenFile {
            flags,
            owner: None,
            locks: Vec::new(),
            object,
            inside: None,
            network: None,
        });
        for pid in holders {
            self.held.get_mut(pid).unwrap().files.insert(id);
        }
        id
    }

    fn apply(&mut self, event: &Event) {
        let number = self.graph.files.len() as u32;
        let options = json!({"set": {}, "send_buffer": 0, "receive_buffer": 0});
        match *event {
            Event::Fork(parent) => {
                let parent = self.at(self.alive(parent)).clone();
                let pid = 3 + self.graph.processes.iter().map(|node| node.pid).max().unwrap();
                self.graph.processes.push(node(pid, parent.pid, parent.pgid, parent.sid));
                self.held.insert(pid, Possessions::default());
            }
            Event::Setsid(pid) => {
                let pid = self.alive(pid);
                if self.graph.processes.iter().all(|node| node.pgid != pid) {
                    let node = self.at(pid);
                    (node.sid, node.pgid) = (pid, pid);
                }
            }
            Event::Group(pid) => {
                let pid = self.alive(pid);
                if self.at(pid).sid != pid {
                    self.at(pid).pgid = pid;
                }
            }
            Event::JoinGroup(pid, other) => {
                let (pid, other) = (self.alive(pid), self.alive(other));
                let other = self.at(other).clone();
                let node = self.at(pid);
                if node.sid == other.sid && node.sid != pid {
                    node.pgid = other.pgid;
                }
            }
            Event::Exit(pid) => {
                let pid = self.alive(pid);
                if pid != 2 {
                    self.held.remove(&pid);
                    self.graph.processes.retain(|node| node.pid != pid);
                    for node in &mut self.graph.processes {
                        if node.ppid == pid {
                            node.ppid = 1;
                        }
                    }
                }
            }
            Event::Zombie(pid) => {
                let pid = self.alive(pid);
                if pid != 2 && self.graph.processes.iter().all(|node| node.ppid != pid) {
                    self.held.remove(&pid);
                    self.at(pid).state = ProcessState::Zombie { status: 256, user: None };
                }
            }
            Event::Pipe(reader, writer, another) => {
                let pipe = json!({"kind": "pipe", "pipe": number, "size": 4096});
                let readers = [self.alive(reader)];
                let writers = [self.alive(writer), self.alive(another)];
                self.file(libc::O_RDONLY, pipe.clone(), &readers);
                self.file(libc::O_WRONLY, pipe, &writers);
            }
            Event::Terminal(master, slave) => {
                let (master, slave) = ([self.alive(master)], [self.alive(slave)]);
                let side = |side: &str| json!({"kind": "terminal", "index": number, "side": side});
                self.file(libc::O_RDWR, side("master"), &master);
                self.file(libc::O_RDWR, side("slave"), &slave);
            }
            Event::Pair(one, other) => {
                let (one, other) = ([self.alive(one)], [self.alive(other)]);
                let socket = |peer: u32| {
                    json!({"kind": "unix_socket", "variety": "stream", "options": options,
                        "link": {"link": "socket", "file": peer}})
                };
                self.file(libc::O_RDWR, socket(number + 1), &one);
                self.file(libc::O_RDWR, socket(number), &other);
            }
            Event::Tcp(one, other) => {
                let (one, other) = ([self.alive(one)], [self.alive(other)]);
                let socket = |peer: u32| {
                    json!({"kind": "tcp_socket", "v6": false, "options": options,
                        "state": {"state": "connected", "peer": "127.0.0.1:1",
                            "end": {"end": "socket", "file": peer}}})
                };
                self.file(libc::O_RDWR, socket(number + 1), &one);
                self.file(libc::O_RDWR, socket(number), &other);
            }
            Event::Counter(one, other) => {
                let holders = [self.alive(one), self.alive(other)];
                let counter = json!({"kind": "event_counter", "count": 0, "semaphore": false});
                self.file(libc::O_RDWR, counter, &holders);
            }
        }
    }

    fn holdings(&self) -> Holdings {
        Holdings::new(self.held.clone())
    }

    /// All parts, with unit number N in the part that `places` says.
    fn parts(&self, places: &[u32]) -> Vec<Part> {
        let holdings = self.holdings();
        let mut assignment = BTreeMap::new();
        for (unit, place) in units(&self.graph, &holdings, true).iter().zip(places.iter().cycle()) {
            assignment.extend(unit.pids.iter().map(|pid| (*pid, *place)));
        }
        let numbers: BTreeSet<u32> = assignment.values().copied().collect();
        numbers
            .into_iter()
            .map(|part| {
                let origin = "test".to_owned();
                let order = PartOrder { assignment: assignment.clone(), part, origin };
                plan(&self.graph, &holdings, &order).unwrap()
            })
            .collect()
    }
}

/// Legs of a part, each once.
fn legs(part: &Part) -> BTreeSet<&Leg> {
    let of_files = part.files.values().filter_map(|how| match how {
        Realisation::Relays { legs, .. } => Some(legs),
        _ => None,
    });
    of_files.flatten().chain(&part.links).collect()
}

fn match_each_other(one: RelayKind, other: RelayKind) -> bool {
    match (one, other) {
        (RelayKind::PipeWrite, RelayKind::PipeRead)
        | (RelayKind::TerminalSlave, RelayKind::TerminalMaster) => true,
        (one, other) => {
            one == other
                && matches!(one, RelayKind::Stream | RelayKind::Packets | RelayKind::Link { .. })
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_process_is_in_one_part(
        events in prop::collection::vec(event(), 1..60),
        places in prop::collection::vec(0u32..4, 1..12),
    ) {
        let world = World::new(&events);
        let parts = world.parts(&places);
        for node in &world.graph.processes {
            let there = parts.iter().filter(|part| {
                part.nodes.iter().any(|other| {
                    other.pid == node.pid && other.state == node.state
                })
            });
            prop_assert_eq!(there.count(), 1, "process {}", node.pid);
        }
        for part in &parts {
            for pid in &part.members {
                for file in &world.held[pid].files {
                    prop_assert!(part.files.contains_key(file));
                }
            }
        }
    }

    #[test]
    fn both_sides_of_a_relay_agree(
        events in prop::collection::vec(event(), 1..60),
        places in prop::collection::vec(0u32..4, 1..12),
    ) {
        let world = World::new(&events);
        let parts = world.parts(&places);
        let mut relays: BTreeMap<&str, Vec<(u32, &Leg)>> = BTreeMap::new();
        for part in &parts {
            for leg in legs(part) {
                relays.entry(&leg.end.id).or_default().push((part.part, leg));
            }
        }
        for (id, mut sides) in relays {
            sides.sort_by_key(|(_, leg)| leg.end.side);
            let [(home, first), (away, second)] = sides.as_slice() else {
                return Err(TestCaseError::fail(format!("{id} has {} sides", sides.len())));
            };
            prop_assert_eq!([first.end.side, second.end.side], [0, 1]);
            prop_assert_eq!([first.peer_part, second.peer_part], [Some(*away), Some(*home)]);
            prop_assert!(match_each_other(first.end.kind, second.end.kind), "{:?}", sides);
        }
        for (part, how) in parts.iter().flat_map(|p| p.files.values().map(move |how| (p, how))) {
            let Realisation::RemoteConnection { peer_part } = how else { continue };
            prop_assert_ne!(*peer_part, part.part);
        }
    }

    #[test]
    fn every_part_is_a_tree_that_can_be_built(
        events in prop::collection::vec(event(), 1..60),
        places in prop::collection::vec(0u32..4, 1..12),
    ) {
        let world = World::new(&events);
        prop_assume!(tree::plan(&world.graph.processes).is_ok());
        for part in world.parts(&places) {
            let planned = tree::plan(&part.nodes);
            prop_assert!(planned.is_ok(), "{:?}: {:?}", planned.err(), part.nodes);
        }
    }

    #[test]
    fn one_part_has_no_relays(events in prop::collection::vec(event(), 1..60)) {
        let world = World::new(&events);
        let order = PartOrder::whole(&world.graph);
        let part = plan(&world.graph, &world.holdings(), &order).unwrap();
        prop_assert!(legs(&part).is_empty());
        prop_assert_eq!(part.nodes.len(), world.graph.processes.len());
        prop_assert!(part.nodes.iter().all(|node| node.state != ProcessState::StandIn));
        prop_assert!(part.files.values().all(|how| *how == Realisation::Native));
    }
}

fn two_processes() -> World {
    World::new(&[Event::Fork(0)])
}

fn apart(world: &World, part: u32) -> Result<Part, SplitError> {
    let assignment = BTreeMap::from([(2, 0), (5, 1)]);
    let order = PartOrder { assignment, part, origin: "j/1@2".into() };
    plan(&world.graph, &world.holdings(), &order)
}

#[test]
fn who_may_yet_call_a_loopback_listener_stays_with_it() {
    let listening = |local: &str| {
        let mut world = two_processes();
        let options = json!({"set": {}, "send_buffer": 0, "receive_buffer": 0});
        let socket = json!({"kind": "tcp_socket", "v6": false, "options": options,
            "local": local, "state": {"state": "listening", "backlog": 1}});
        world.file(libc::O_RDWR, socket, &[2]);
        world
    };
    let count = |world: &World| units(&world.graph, &world.holdings(), true).len();
    let mut world = listening("127.0.0.1:4000");
    assert_eq!(count(&world), 1);
    assert_eq!(units(&world.graph, &world.holdings(), false).len(), 2, "it is done without");
    world.apply(&Event::Fork(1));
    assert_eq!(count(&world), 1, "nor does who was started by that one go");
    assert_eq!(count(&listening("10.0.0.1:4000")), 2, "reached from everywhere");
    let mut world = listening("127.0.0.1:4000");
    world.apply(&Event::Tcp(1, 0));
    assert_eq!(count(&world), 1, "connected, and about to listen");
    let options = json!({"set": {}, "send_buffer": 0, "receive_buffer": 0});
    let socket = json!({"kind": "tcp_socket", "v6": false, "options": options,
        "local": "0.0.0.0:1024", "state": {"state": "listening", "backlog": 1}});
    world.file(libc::O_RDWR, socket, &[5]);
    assert_eq!(count(&world), 2, "others know where it listens");
}

#[test]
fn what_is_shared_is_not_divided() {
    let mut world = two_processes();
    world.apply(&Event::Counter(0, 1));
    assert_eq!(units(&world.graph, &world.holdings(), true).len(), 1);
    let pids = vec![2, 5];
    assert_eq!(apart(&world, 0).unwrap_err(), SplitError::Apart { what: "eventfd", pids });
}

#[test]
fn a_pipe_is_at_home_with_its_reader() {
    let mut world = two_processes();
    world.apply(&Event::Pipe(1, 0, 1));
    let (writer, reader) = (apart(&world, 0).unwrap(), apart(&world, 1).unwrap());
    let Realisation::Relays { legs, home: true } = &reader.files[&FileId(0)] else {
        panic!("{:?}", reader.files)
    };
    assert_eq!(reader.files[&FileId(0)], reader.files[&FileId(1)]);
    assert_eq!((legs[0].end.id.as_str(), legs[0].end.side), ("j/1@2#pipe0-0", 0));
    assert_eq!(legs[0].end.kind, RelayKind::PipeWrite);
    let Realisation::Relays { legs, home: false } = &writer.files[&FileId(1)] else {
        panic!("{:?}", writer.files)
    };
    assert_eq!((legs[0].end.side, legs[0].end.kind), (1, RelayKind::PipeRead));
    assert!(!writer.files.contains_key(&FileId(0)));
}

#[test]
fn a_daemon_that_departs_leaves_relays_to_nobody() {
    let mut world = two_processes();
    // What the child writes; what both read; a terminal, a pair, a connection.
    world.apply(&Event::Pipe(0, 1, 1));
    world.apply(&Event::Pipe(1, 0, 0));
    world.apply(&Event::Terminal(0, 1));
    world.apply(&Event::Pair(0, 1));
    world.apply(&Event::Tcp(0, 1));
    let assignment = BTreeMap::from([(2, DEPARTED), (5, 0)]);
    let order = PartOrder { assignment, part: 0, origin: "j/1@2".into() };
    let part = plan(&world.graph, &world.holdings(), &order).unwrap();
    assert_eq!(part.members, BTreeSet::from([5]));
    let parent = part.nodes.iter().find(|node| node.pid == 2).unwrap();
    assert_eq!(parent.state, ProcessState::StandIn);
    let all = legs(&part);
    assert!(all.iter().all(|leg| leg.peer_part == Some(DEPARTED)), "{all:?}");
    let kinds: Vec<RelayKind> = all.iter().map(|leg| leg.end.kind).collect();
    for kind in [
        RelayKind::PipeRead,
        RelayKind::PipeWrite,
        RelayKind::TerminalMaster,
        RelayKind::Stream,
        RelayKind::Link { parent: 2, child: 5 },
    ] {
        assert_eq!(kinds.iter().filter(|known| **known == kind).count(), 1, "{kind:?}: {kinds:?}");
    }
    let remote = Realisation::RemoteConnection { peer_part: DEPARTED };
    assert!(part.files.values().any(|how| *how == remote));
}

#[test]
fn standard_input_that_a_departed_daemon_shared_stays_open() {
    let mut world = two_processes();
    let relay = json!({"id": "j/1#link#fd0", "side": 1, "kind": "pipe_write"});
    let pipe = json!({"kind": "pipe", "pipe": 7, "size": 4096, "relays": [relay]});
    world.file(libc::O_RDONLY, pipe, &[2, 5]);
    let assignment = BTreeMap::from([(2, DEPARTED), (5, 0)]);
    let order = PartOrder { assignment, part: 0, origin: "j/1@2".into() };
    let part = plan(&world.graph, &world.holdings(), &order).unwrap();
    let Realisation::Relays { legs, home: true } = &part.files[&FileId(0)] else {
        panic!("{:?}", part.files)
    };
    assert_eq!(legs[0].end.id, "j/1#link#fd0");
}

#[test]
fn an_old_relay_stays_with_the_reader() {
    let mut world = two_processes();
    let relay = json!({"id": "old", "side": 0, "kind": "pipe_write"});
    let pipe = json!({"kind": "pipe", "pipe": 7, "size": 4096, "relays": [relay]});
    world.file(libc::O_RDONLY, pipe.clone(), &[5]);
    world.file(libc::O_WRONLY, pipe, &[2]);
    let names = |part: &Part, file: u32| match &part.files[&FileId(file)] {
        Realisation::Relays { legs, .. } => {
            legs.iter().map(|leg| leg.end.id.clone()).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(names(&apart(&world, 1).unwrap(), 0), ["old", "j/1@2#pipe7-0"]);
    assert_eq!(names(&apart(&world, 0).unwrap(), 1), ["j/1@2#pipe7-0"]);
}

#[test]
fn a_stand_in_is_made_again_with_its_link() {
    let mut world = two_processes();
    world.held.remove(&5);
    world.at(5).state = ProcessState::StandIn;
    let end = json!({"id": "old", "side": 0, "kind": {"link": {"parent": 2, "child": 5}}});
    world.graph.relays.push(serde_json::from_value(json!({"end": end})).unwrap());
    let order = PartOrder::whole(&world.graph);
    let part = plan(&world.graph, &world.holdings(), &order).unwrap();
    assert_eq!(part.members, BTreeSet::from([2]));
    assert_eq!(part.nodes.len(), 2);
    assert_eq!(part.links.len(), 1);
    assert_eq!((part.links[0].end.id.as_str(), part.links[0].peer_part), ("old", None));
}

#[test]
fn who_shares_a_namespace_stays_together() {
    let mut world = World::new(&[Event::Fork(0), Event::Fork(0)]);
    let count = |world: &World| units(&world.graph, &world.holdings(), false).len();
    assert_eq!(count(&world), 3);
    for (place, possessions) in world.held.values_mut().enumerate() {
        possessions.namespaces.insert(place.min(1) as u32);
    }
    assert_eq!(count(&world), 2);
}
