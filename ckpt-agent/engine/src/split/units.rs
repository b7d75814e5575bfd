//! Which processes must stay together, whatever the placement.

use std::collections::{BTreeMap, BTreeSet};

use super::super::graph::{FileId, Graph, InodeId, OpenFile, Pid, ProcessState};
use super::super::inodes::segments;
use super::super::objects::{Fate, Object, TcpPeer, TcpState, TerminalSide, UnixLink};
use super::holdings::{Holdings, Possessions};
use super::things::{all_mapped, is_reader, pipes};

/// Processes that go to one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Their numbers, ascending, zombies among them.
    pub pids: Vec<Pid>,
    /// Stored bytes of their memory.
    pub bytes: u64,
}

/// Takes an instance into the smallest pieces that can be placed by themselves, in the order of their
/// lowest process. Stand-ins are not placed. `callers`: who may yet need a daemon stays with it.
pub fn units(graph: &Graph, holdings: &Holdings, callers: bool) -> Vec<Unit> {
    let mut together = Together::new(holdings.by_process.keys().copied());
    for (index, file) in graph.files.iter().enumerate() {
        let id = FileId(index as u32);
        if file.object.when_divided(file.flags) == Fate::Undivided {
            together.join(holdings.holders(id));
        }
        if let Some(other) = tied(&file.object) {
            together.join(holdings.holders(id).chain(holdings.holders(other)));
        }
    }
    join_sharers(graph, holdings, &mut together);
    join_namespaces(graph, holdings, &mut together);
    join_watchers(graph, holdings, &mut together);
    join_readers(graph, holdings, &mut together);
    join_terminals(graph, holdings, &mut together);
    join_fifos(graph, holdings, &mut together);
    join_queues(graph, holdings, &mut together);
    join_memory(holdings, &mut together);
    join_segments(graph, holdings, &mut together);
    if !graph.ipc.is_empty() {
        // Any process may use them at any time.
        together.join(holdings.by_process.keys().copied());
    }
    if callers {
        join_callers(graph, holdings, &mut together);
    }
    together.units(graph, holdings)
}

/// Descriptions that cannot be elsewhere than this one.
fn tied(object: &Object) -> Option<FileId> {
    match object {
        Object::UnixSocket(socket) => match socket.link {
            UnixLink::Waiting { listener, .. } => Some(listener),
            _ => None,
        },
        Object::TcpSocket(_) => match object.tcp_peer() {
            Some(TcpPeer::Waiting { listener, .. }) => Some(listener),
            _ => None,
        },
        _ => None,
    }
}

/// What a process shares with its parent is shared on one machine only.
fn join_sharers(graph: &Graph, holdings: &Holdings, together: &mut Together) {
    for one in &graph.sharing {
        let parent = graph.processes.iter().find(|node| node.pid == one.pid).map(|node| node.ppid);
        let pids = parent.into_iter().chain([one.pid]);
        together.join(pids.filter(|pid| holdings.by_process.contains_key(pid)));
    }
}

/// What one process changes in a namespace, a host's name or a file in memory, the others see.
fn join_namespaces(graph: &Graph, holdings: &Holdings, together: &mut Together) {
    let mut inside: BTreeMap<u32, Vec<Pid>> = BTreeMap::new();
    for (pid, possessions) in &holdings.by_process {
        for place in &possessions.namespaces {
            inside.entry(*place).or_default().push(*pid);
        }
    }
    // A socket of a network is worth nothing without those who are in it.
    for (at, file) in graph.files.iter().enumerate() {
        let of_network = file.network.and_then(|place| inside.get_mut(&place));
        of_network.into_iter().for_each(|pids| pids.extend(holdings.holders(FileId(at as u32))));
    }
    inside.into_values().for_each(|pids| together.join(pids));
}

/// Who has a descriptor of a process, or one of its files in /proc, is where that process is.
fn join_watchers(graph: &Graph, holdings: &Holdings, together: &mut Together) {
    for (index, file) in graph.files.iter().enumerate() {
        if let Some(process) = file.object.process() {
            let target = process.filter(|pid| holdings.by_process.contains_key(pid));
            together.join(holdings.holders(FileId(index as u32)).chain(target));
        }
    }
}

fn join_readers(graph: &Graph, holdings: &Holdings, together: &mut Together) {
    for ends in pipes(graph).into_values() {
        let is_input = ends.iter().any(|(_, pipe)| pipe.is_job_input());
        if is_input || ends.iter().all(|(_, pipe)| pipe.is_at_end()) {
            // Inherited by everybody, read by the first; or there is nothing to be read.
            continue;
        }
        let readers = ends.iter().filter(|(id, _)| is_reader(graph, *id));
        together.join(readers.flat_map(|(id, _)| holdings.holders(*id)));
    }
}

/// All that hold a terminal's slave read the same keyboard; who holds both sides keeps them.
fn join_terminals(graph: &Graph, holdings: &Holdings, together: &mut Together) {
    let mut sides: BTreeMap<u32, [BTreeSet<Pid>; 2]> = BTreeMap::new();
    for (index, file) in graph.files.iter().enumerate() {
        let Object::Terminal(terminal) = &file.object else { continue };
        let side = match terminal.side {
            TerminalSide::Master => 0,
            TerminalSide::Slave => 1,
            TerminalSide::HungUp => continue,
        };
        let holders = holdings.holders(FileId(index as u32));
        sides.entry(terminal.index).or_default()[side].extend(holders);
    }
    for [masters, slaves] in sides.into_values() {
        together.join(masters.iter().copied());
        together.join(slaves.iter().copied());
        if masters.intersection(&slaves).next().is_some() {
            together.join(masters.union(&slaves).copied());
        }
    }
}

fn join_fifos(graph: &Graph, holdings: &Holdings, together: &mut Together) {
    let mut fifos: BTreeMap<u32, BTreeSet<Pid>> = BTreeMap::new();
    for (index, file) in graph.files.iter().enumerate() {
        if let Object::Fifo(fifo) = &file.object {
            fifos.entry(fifo.fifo).or_default().extend(holdings.holders(FileId(index as u32)));
        }
    }
    fifos.into_values().for_each(|holders| together.join(holders));
}

/// Processes that hold one message queue. One that still has its name is there for every process of the instance.
fn join_queues(graph: &Graph, holdings: &Holdings, together: &mut Together) {
    let mut queues: BTreeMap<u32, BTreeSet<Pid>> = BTreeMap::new();
    for (index, file) in graph.files.iter().enumerate() {
        if let Object::MessageQueue(queue) = &file.object {
            let pids = queues.entry(queue.queue).or_default();
            match queue.deleted {
                true => pids.extend(holdings.holders(FileId(index as u32))),
                false => pids.extend(holdings.by_process.keys()),
            }
        }
    }
    queues.into_values().for_each(|pids| together.join(pids));
}

/// Memory that one writes and others see.
fn join_memory(holdings: &Holdings, together: &mut Together) {
    let mut sharers: BTreeMap<InodeId, (BTreeSet<Pid>, bool)> = BTreeMap::new();
    for (pid, possessions) in &holdings.by_process {
        for (inode, mapped) in possessions.mapped.iter().filter(|(_, mapped)| mapped.shared) {
            let (pids, written) = sharers.entry(*inode).or_default();
            pids.insert(*pid);
            *written |= mapped.written;
        }
    }
    for (pids, written) in sharers.into_values() {
        if written {
            together.join(pids);
        }
    }
}

/// Who holds a SysV segment may attach it for writing at any time. One that nobody has attached yet is there for
/// whoever will.
fn join_segments(graph: &Graph, holdings: &Holdings, together: &mut Together) {
    for inode in segments::known(&graph.inodes).into_keys() {
        let holds = |pid: &Pid| holdings.by_process[pid].mapped.contains_key(&inode);
        together.join(holdings.by_process.keys().copied().filter(holds));
    }
    if !segments::unattached(&graph.inodes, &all_mapped(holdings)).is_empty() {
        together.join(holdings.by_process.keys().copied());
    }
}

/// A listening socket at a loopback address is reached from its own machine only. Whoever descends from its holder and has
/// no connection to it yet may be about to make one, as a rank in MPI_Init to the daemon that started it: until then it
/// stays there. So does one that has nothing but that connection: it is about to listen and to tell others where, and two
/// of them on two machines could take the same port of one logical node.
fn join_callers(graph: &Graph, holdings: &Holdings, together: &mut Together) {
    let listeners = graph.files.iter().enumerate().filter(|(_, file)| is_for_this_machine(file));
    let mut holders: BTreeSet<Pid> = BTreeSet::new();
    listeners.for_each(|(index, _)| holders.extend(holdings.holders(FileId(index as u32))));
    if holders.is_empty() {
        return;
    }
    let parents: BTreeMap<Pid, Pid> =
        graph.processes.iter().map(|node| (node.pid, node.ppid)).collect();
    for (pid, possessions) in &holdings.by_process {
        let mut at = *pid;
        // No chain of parents is longer than that, whatever an image says.
        for _ in 0..parents.len() {
            let Some(parent) = parents.get(&at) else { break };
            at = *parent;
            if holders.contains(&at) {
                if !is_settled(graph, holdings, possessions, at) {
                    together.join([at, *pid]);
                }
                break;
            }
        }
    }
}

fn is_for_this_machine(file: &OpenFile) -> bool {
    let Object::TcpSocket(socket) = &file.object else { return false };
    file.network.is_none()
        && matches!(socket.state, TcpState::Listening { .. })
        && socket.local.is_some_and(|local| local.ip().to_canonical().is_loopback())
}

/// Whether these possessions have a connection whose other end that process has, and some other TCP socket in use.
fn is_settled(graph: &Graph, holdings: &Holdings, own: &Possessions, other: Pid) -> bool {
    let (mut connected, mut others) = (false, false);
    for object in own.files.iter().filter_map(|file| graph.object(*file)) {
        let Object::TcpSocket(socket) = object else { continue };
        match object.tcp_peer() {
            Some(TcpPeer::Socket { file }) if holdings.holders(file).any(|it| it == other) => {
                connected = true;
            }
            // Bound, and about to listen.
            _ if socket.state == TcpState::Idle && socket.local.is_some() => return false,
            _ => others |= socket.state != TcpState::Idle,
        }
    }
    connected && others
}

/// Sets of processes that grow together.
struct Together {
    /// Each process's way to the lowest one of its set.
    above: BTreeMap<Pid, Pid>,
}

impl Together {
    fn new(pids: impl Iterator<Item = Pid>) -> Self {
        Self { above: pids.map(|pid| (pid, pid)).collect() }
    }

    fn root(&self, pid: Pid) -> Pid {
        let mut at = pid;
        while let Some(&above) = self.above.get(&at) {
            if above == at {
                break;
            }
            at = above;
        }
        at
    }

    fn join(&mut self, pids: impl IntoIterator<Item = Pid>) {
        let mut pids = pids.into_iter();
        let Some(first) = pids.next() else { return };
        for pid in pids {
            let (one, other) = (self.root(first), self.root(pid));
            self.above.insert(one.max(other), one.min(other));
        }
    }

    fn units(&self, graph: &Graph, holdings: &Holdings) -> Vec<Unit> {
        let mut units: BTreeMap<Pid, Unit> = BTreeMap::new();
        for (pid, possessions) in &holdings.by_process {
            let unit =
                units.entry(self.root(*pid)).or_insert_with(|| Unit { pids: Vec::new(), bytes: 0 });
            unit.pids.push(*pid);
            unit.bytes += possessions.bytes;
        }
        let first = units.keys().next().copied();
        for node in &graph.processes {
            let ProcessState::Zombie { .. } = node.state else { continue };
            let parent = self.above.contains_key(&node.ppid).then(|| self.root(node.ppid));
            if let Some(unit) = parent.or(first).and_then(|root| units.get_mut(&root)) {
                unit.pids.push(node.pid);
                unit.pids.sort_unstable();
            }
        }
        units.into_values().collect()
    }
}
