//! What becomes of kernel objects whose ends come apart.

use std::collections::{BTreeMap, BTreeSet};

use super::super::graph::{FileId, Graph, InodeId, OpenFile, Origin, Pid, RelayEnd, RelayKind};
use super::super::inodes::segments;
use super::super::objects::{
    Fate, Object, Pipe, TcpPeer, Terminal, TerminalSide, UnixKind, UnixLink, UnixSocket,
};
use super::holdings::Holdings;
use super::{DEPARTED, Leg, PartOrder, Realisation, SplitError};

/// All descriptions of each pipe.
pub(super) fn pipes(graph: &Graph) -> BTreeMap<u32, Vec<(FileId, &Pipe)>> {
    let mut pipes: BTreeMap<u32, Vec<(FileId, &Pipe)>> = BTreeMap::new();
    for (index, file) in graph.files.iter().enumerate() {
        if let Object::Pipe(pipe) = &file.object {
            pipes.entry(pipe.pipe).or_default().push((FileId(index as u32), pipe));
        }
    }
    pipes
}

pub(super) fn is_reader(graph: &Graph, id: FileId) -> bool {
    let file = graph.files.get(id.0 as usize);
    file.is_some_and(|file| file.flags & libc::O_ACCMODE != libc::O_WRONLY)
}

/// How every description that a member holds is made.
pub(super) fn realise(
    graph: &Graph,
    holdings: &Holdings,
    order: &PartOrder,
) -> Result<BTreeMap<FileId, Realisation>, SplitError> {
    let mut divider = Divider { graph, holdings, order, made: BTreeMap::new() };
    for (index, file) in graph.files.iter().enumerate() {
        divider.simple(FileId(index as u32), file)?;
    }
    for ends in pipes(graph).into_values() {
        divider.pipe(&ends)?;
    }
    divider.terminals()?;
    Ok(divider.made)
}

/// Carried inodes that members map, hold, or execute.
pub(super) fn inodes(
    graph: &Graph,
    holdings: &Holdings,
    members: &BTreeSet<Pid>,
    files: &BTreeMap<FileId, Realisation>,
) -> BTreeSet<InodeId> {
    let held = files.keys().filter_map(|id| graph.object(*id)?.carried_inode());
    let mut needed: BTreeSet<InodeId> = held.collect();
    let mine = || holdings.by_process.iter().filter(|(pid, _)| members.contains(pid));
    needed.extend(mine().flat_map(|(_, possessions)| possessions.mapped.keys()));
    for (index, inode) in graph.inodes.iter().enumerate() {
        let Origin::Named { path } = &inode.origin else { continue };
        if mine().any(|(_, possessions)| possessions.paths.contains(path)) {
            needed.insert(InodeId(index as u32));
        }
    }
    let mapped = all_mapped(holdings);
    if holdings.by_process.keys().next().is_some_and(|first| members.contains(first)) {
        needed.extend(segments::unattached(&graph.inodes, &mapped));
    }
    needed
}

/// Carried inodes that any process maps.
pub(super) fn all_mapped(holdings: &Holdings) -> BTreeSet<InodeId> {
    let all = holdings.by_process.values();
    all.flat_map(|possessions| possessions.mapped.keys().copied()).collect()
}

struct Divider<'a> {
    graph: &'a Graph,
    holdings: &'a Holdings,
    order: &'a PartOrder,
    made: BTreeMap<FileId, Realisation>,
}

impl Divider<'_> {
    fn parts(&self, files: impl IntoIterator<Item = FileId>) -> Result<BTreeSet<u32>, SplitError> {
        files
            .into_iter()
            .flat_map(|file| self.holdings.holders(file))
            .map(|pid| self.order.part_of(pid))
            .collect()
    }

    /// The one part of all holders.
    fn one_part(&self, what: &'static str, files: &[FileId]) -> Result<Option<u32>, SplitError> {
        let parts = self.parts(files.iter().copied())?;
        if parts.len() > 1 {
            let pids = files.iter().flat_map(|file| self.holdings.holders(*file));
            let pids: BTreeSet<Pid> = pids.collect();
            return Err(SplitError::Apart { what, pids: pids.into_iter().collect() });
        }
        Ok(parts.first().copied())
    }

    fn departs(&self, pid: Pid) -> bool {
        self.order.part_of(pid).is_ok_and(|part| part == DEPARTED)
    }

    fn give(&mut self, files: impl IntoIterator<Item = FileId>, how: &Realisation) {
        for file in files {
            let parts = self.parts([file]).unwrap_or_default();
            if parts.contains(&self.order.part) {
                self.made.insert(file, how.clone());
            }
        }
    }

    fn leg(&self, thing: &str, other: u32, side: u8, kind: RelayKind, peer_part: u32) -> Leg {
        let id = format!("{}#{thing}-{other}", self.order.origin);
        Leg { end: RelayEnd { id, side, kind }, peer_part: Some(peer_part) }
    }

    /// All but pipes and terminals.
    fn simple(&mut self, id: FileId, file: &OpenFile) -> Result<(), SplitError> {
        if file.object.when_divided(file.flags) == Fate::Undivided {
            self.one_part(file.object.kind(), &[id])?;
        }
        let here = self.parts([id])?.contains(&self.order.part);
        if !here {
            return Ok(());
        }
        let how = match &file.object {
            Object::Pipe(_) | Object::Terminal(_) => return Ok(()),
            Object::UnixSocket(socket) => self.unix(id, socket)?,
            Object::TcpSocket(_) => match file.object.tcp_peer() {
                Some(TcpPeer::Socket { file }) => match self.one_part("tcp", &[file])? {
                    Some(peer_part) if peer_part != self.order.part => {
                        Realisation::RemoteConnection { peer_part }
                    }
                    _ => Realisation::Native,
                },
                Some(TcpPeer::Waiting { listener, .. }) => {
                    self.one_part("a TCP connection not accepted yet", &[id, listener])?;
                    Realisation::Native
                }
                _ => Realisation::Native,
            },
            Object::Fifo(fifo) => {
                let number = fifo.fifo;
                let all: Vec<FileId> = self.all_files(
                    |object| matches!(object, Object::Fifo(other) if other.fifo == number),
                );
                self.one_part("a FIFO", &all)?;
                Realisation::Native
            }
            Object::MessageQueue(queue) => {
                let number = queue.queue;
                let all: Vec<FileId> = self.all_files(
                    |object| matches!(object, Object::MessageQueue(other) if other.queue == number),
                );
                self.one_part("a message queue", &all)?;
                Realisation::Native
            }
            _ => Realisation::Native,
        };
        self.made.insert(id, how);
        Ok(())
    }

    fn all_files(&self, wanted: impl Fn(&Object) -> bool) -> Vec<FileId> {
        let files = self.graph.files.iter().enumerate();
        files
            .filter(|(_, file)| wanted(&file.object))
            .map(|(index, _)| FileId(index as u32))
            .collect()
    }

    fn unix(&self, id: FileId, socket: &UnixSocket) -> Result<Realisation, SplitError> {
        let peer = match socket.link {
            UnixLink::Socket { file } => file,
            UnixLink::Waiting { listener, .. } => {
                self.one_part("a Unix connection not accepted yet", &[id, listener])?;
                return Ok(Realisation::Native);
            }
            _ => return Ok(Realisation::Native),
        };
        let peer_part = match self.one_part("a Unix socket", &[peer])? {
            Some(part) if part != self.order.part => part,
            _ => return Ok(Realisation::Native),
        };
        let mutual = match self.graph.object(peer) {
            Some(Object::UnixSocket(other)) => other.link == UnixLink::Socket { file: id },
            _ => false,
        };
        if !mutual {
            let pids = self.holdings.holders(id).chain(self.holdings.holders(peer)).collect();
            return Err(SplitError::Apart { what: "a datagram socket", pids });
        }
        let (home, side) = if id < peer { (id, 0) } else { (peer, 1) };
        let away = if side == 0 { peer_part } else { self.order.part };
        let kind = match socket.variety {
            UnixKind::Stream => RelayKind::Stream,
            UnixKind::Datagram | UnixKind::Sequence => RelayKind::Packets,
        };
        let leg = self.leg(&format!("unix{}", home.0), away, side, kind, peer_part);
        Ok(Realisation::Relays { legs: vec![leg], home: side == 0 })
    }

    /// A pipe's home is where its readers are; each other part has a pipe of its own, which its
    /// agent reads.
    fn pipe(&mut self, ends: &[(FileId, &Pipe)]) -> Result<(), SplitError> {
        let Some((_, first)) = ends.first() else { return Ok(()) };
        let all: Vec<FileId> = ends.iter().map(|(id, _)| *id).collect();
        let readers: Vec<FileId> =
            all.iter().copied().filter(|id| is_reader(self.graph, *id)).collect();
        let parts = self.parts(all.iter().copied())?;
        let old: BTreeSet<&RelayEnd> = ends.iter().flat_map(|(_, pipe)| &pipe.relays).collect();
        if parts.len() <= 1 || first.is_job_output() || (readers.is_empty() && old.is_empty()) {
            self.give(all, &Realisation::Native);
            return Ok(());
        }
        // A reader that departs is no home while another one is left.
        let reader_pids = readers.iter().flat_map(|file| self.holdings.holders(*file));
        let reader_pids = reader_pids.min_by_key(|pid| (self.departs(*pid), *pid));
        let home = match reader_pids {
            Some(pid) => {
                let alone = first.is_one_sided();
                if !alone {
                    self.one_part("the read end of a pipe", &readers)?;
                }
                self.order.part_of(pid)?
            }
            // The agent reads; whoever has the lowest number keeps it.
            None => parts.first().copied().unwrap_or(self.order.part),
        };
        let thing = format!("pipe{}", first.pipe);
        let here = self.order.part;
        let divided = !first.is_one_sided();
        let legs = if here == home {
            let old = old.into_iter().map(|end| Leg { end: end.clone(), peer_part: None });
            let others = parts.iter().filter(|part| divided && **part != home);
            old.chain(others.map(|part| self.leg(&thing, *part, 0, RelayKind::PipeWrite, *part)))
                .collect()
        } else if divided {
            vec![self.leg(&thing, here, 1, RelayKind::PipeRead, home)]
        } else {
            Vec::new()
        };
        self.give(all, &Realisation::Relays { legs, home: here == home });
        Ok(())
    }

    fn terminals(&mut self) -> Result<(), SplitError> {
        let mut pairs: BTreeMap<u32, Vec<(FileId, &Terminal)>> = BTreeMap::new();
        for (index, file) in self.graph.files.iter().enumerate() {
            if let Object::Terminal(terminal) = &file.object {
                let id = FileId(index as u32);
                match terminal.side {
                    TerminalSide::HungUp => self.give([id], &Realisation::Native),
                    _ => pairs.entry(terminal.index).or_default().push((id, terminal)),
                }
            }
        }
        for (index, sides) in pairs {
            let of = |side: TerminalSide| -> Vec<FileId> {
                let some = sides.iter().filter(|(_, terminal)| terminal.side == side);
                some.map(|(id, _)| *id).collect()
            };
            let (masters, slaves) = (of(TerminalSide::Master), of(TerminalSide::Slave));
            let master = self.one_part("the master of a terminal", &masters)?;
            let slave = self.one_part("a terminal", &slaves)?;
            let how = match (master, slave) {
                (Some(master), Some(slave)) if master != slave => {
                    let home = self.order.part == master;
                    let (side, kind, peer) = match home {
                        true => (0, RelayKind::TerminalSlave, slave),
                        false => (1, RelayKind::TerminalMaster, master),
                    };
                    let leg = self.leg(&format!("terminal{index}"), slave, side, kind, peer);
                    Realisation::Relays { legs: vec![leg], home }
                }
                _ => Realisation::Native,
            };
            self.give(masters.into_iter().chain(slaves), &how);
        }
        Ok(())
    }
}
