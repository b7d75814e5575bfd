//! Takes an instance apart: which of its processes go where, and what becomes of the kernel objects
//! between them. Pure: every machine that brings back a part works out the same.
//!
//! * `holdings`: who holds what;
//! * `idle`: what somebody holds without knowing;
//! * `units`: which processes cannot be taken apart;
//! * `family`: processes of a part and those that stand in for others;
//! * `things`: kernel objects of a part;
//! * `standin`: what a stand-in does, in the restored instance.

mod family;
mod holdings;
mod idle;
pub mod standin;
#[cfg(test)]
mod tests;
mod things;
mod units;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::graph::{FileId, Graph, InodeId, Pid, ProcessNode, RelayEnd};

pub use protocol::cluster::agent::DEPARTED;

pub use holdings::{Holdings, Possessions};
pub use units::{Unit, units};

/// Which part of an instance is to be brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartOrder {
    /// The part of every living process, [`DEPARTED`] for one that is not brought back anywhere; zombies and stand-ins follow their parents and children.
    pub assignment: BTreeMap<Pid, u32>,
    /// Which part is wanted.
    pub part: u32,
    /// Prefix of the names of new relays: unique for every restore of an instance.
    pub origin: String,
}

/// One part of an instance.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its number.
    pub part: u32,
    /// Living processes that are brought back here.
    pub members: BTreeSet<Pid>,
    /// The tree to be built: members, their zombies, and stand-ins.
    pub nodes: Vec<ProcessNode>,
    /// Links of stand-ins.
    pub links: Vec<Leg>,
    /// Open file descriptions that members hold, and how each is made.
    pub files: BTreeMap<FileId, Realisation>,
    /// Those of them that a member has inherited without knowing, and that are held by others elsewhere: made
    /// without their content and their other ends.
    pub idle: BTreeSet<FileId>,
    /// Carried inodes that members use.
    pub inodes: BTreeSet<InodeId>,
}

/// How an open file description is made in a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Realisation {
    /// As it was, with the relays that it had.
    Native,
    /// A native object of which the agent holds ends, too.
    Relays {
        /// These; the same for all descriptions of the object, old relays among them.
        legs: Vec<Leg>,
        /// Bytes in flight towards its readers, and its place among the launcher's streams, are this
        /// side's.
        home: bool,
    },
    /// A TCP connection whose other end is in another part.
    RemoteConnection {
        /// The part that has the other end, by its number.
        peer_part: u32,
    },
}

/// A relay as one part sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leg {
    /// What the agent holds here.
    pub end: RelayEnd,
    /// The part of the same instance that has the other side; none of a relay from before.
    pub peer_part: Option<u32>,
}

/// Why an instance cannot be taken apart like this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// A process without a place.
    #[error("process {0} is not assigned to any part")]
    Unassigned(Pid),
    /// Processes that share what cannot be divided.
    #[error("processes {} share {what}, which cannot be divided between parts", list(.pids))]
    Apart {
        /// What they share.
        what: &'static str,
        /// The processes, ascending.
        pids: Vec<Pid>,
    },
}

fn list(pids: &[Pid]) -> String {
    pids.iter().map(Pid::to_string).collect::<Vec<_>>().join(", ")
}

/// Works out one part. With every process assigned to it, the part is the whole instance.
///
/// # Errors
/// Processes that cannot be taken apart: those of a [`Unit`] that were.
pub fn plan(graph: &Graph, holdings: &Holdings, order: &PartOrder) -> Result<Part, SplitError> {
    let family = family::family(graph, order)?;
    let mut files = things::realise(graph, holdings, order)?;
    let mut idle = BTreeSet::new();
    for file in holdings.idle_of(&family.members) {
        if let Entry::Vacant(free) = files.entry(file) {
            free.insert(Realisation::Native);
            idle.insert(file);
        }
    }
    let inodes = things::inodes(graph, holdings, &family.members, &files);
    let family::Family { members, nodes, links } = family;
    Ok(Part { part: order.part, members, nodes, links, files, idle, inodes })
}

impl PartOrder {
    /// The order for all of an instance in one part.
    pub fn whole(graph: &Graph) -> Self {
        let alive = graph.processes.iter().filter(|node| family::is_alive(node));
        Self {
            assignment: alive.map(|node| (node.pid, 0)).collect(),
            part: 0,
            origin: String::new(),
        }
    }

    fn part_of(&self, pid: Pid) -> Result<u32, SplitError> {
        self.assignment.get(&pid).copied().ok_or(SplitError::Unassigned(pid))
    }

    /// Where what belongs to nobody in particular goes.
    fn first(&self) -> u32 {
        self.assignment.values().min().copied().unwrap_or(self.part)
    }
}
