//! Copies of this coordinator's folder on agents' disks.
//!
//! Each agent that keeps one gets the small files whole, then the log, then jobs' output, each as
//! it grows. Its copy is then at any time what the folder here once was: no byte of a job's output
//! is there before the entries of the log that it follows, and what is cut off is cut off there
//! before later entries come. [`holder`] has what one agent is sent.

mod holder;
mod source;

use holder::{Holder, Key};
use protocol::cluster::NodeName;
use protocol::cluster::replica::{ReplicaNote, ReplicaOrder, ReplicaReport};
use std::collections::{BTreeMap, BTreeSet};

pub use source::{LOG, Source};

/// Agents that keep a copy, at most: enough that all of them are not lost at once.
const MOST_HOLDERS: usize = 16;

/// Sends an order with its body to a node's agent.
pub type Send<'a> = dyn FnMut(&NodeName, ReplicaOrder, &[u8]) + 'a;

/// How far a folder goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of the log.
    pub log: u64,
    /// Changes of the register so far.
    pub register: u64,
    /// Bytes of jobs' output.
    pub jobs: BTreeMap<String, u64>,
}

/// What a copy must have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Need {
    /// Bytes of the log.
    pub log: u64,
    /// Changes of the register.
    pub register: u64,
    /// Bytes of jobs' output.
    pub jobs: BTreeMap<String, u64>,
}

/// All copies.
#[derive(Debug)]
pub struct Replication {
    source: Source,
    note: ReplicaNote,
    holders: BTreeMap<NodeName, Holder>,
}

impl Replication {
    /// None yet, of that folder.
    pub fn new(source: Source, note: ReplicaNote) -> Self {
        Self { source, note, holders: BTreeMap::new() }
    }

    /// Nodes that should have one, with the numbers of their connections; `first`: before others. One that keeps a copy goes on
    /// as long as it is connected (`is_connected`), so that nothing is sent twice.
    pub fn want(
        &mut self,
        wanted: &BTreeMap<NodeName, u64>,
        first: &BTreeSet<NodeName>,
        is_connected: impl Fn(&NodeName, u64) -> bool,
        send: &mut Send<'_>,
    ) {
        self.holders.retain(|node, holder| is_connected(node, holder.connection));
        let (before, after): (Vec<_>, Vec<_>) =
            wanted.iter().partition(|(node, _)| first.contains(*node));
        for (node, connection) in before.into_iter().chain(after) {
            if self.holders.contains_key(node) || self.holders.len() >= MOST_HOLDERS {
                continue;
            }
            send(node, ReplicaOrder::Hold, &[]);
            self.holders.insert(node.clone(), Holder::new(*connection));
        }
    }

    /// The log is another one: every copy of it begins anew, and each is waited for as before.
    pub fn begin_anew(&mut self, send: &mut Send<'_>) {
        for (node, holder) in &mut self.holders {
            send(node, ReplicaOrder::Hold, &[]);
            *holder = Holder::new(holder.connection);
        }
    }

    /// A connection is gone.
    pub fn gone(&mut self, node: &NodeName) {
        self.holders.remove(node);
    }

    /// An agent has said something about its copy.
    pub fn reported(&mut self, node: &NodeName, report: ReplicaReport, send: &mut Send<'_>) {
        // It may no longer be one that keeps a copy.
        let Some(holder) = self.holders.get_mut(node) else { return };
        match report {
            ReplicaReport::Held { log, jobs } => {
                holder.begin(&self.source, &log, &jobs, &mut |order, body| send(node, order, body));
            }
            ReplicaReport::Durable { number } => {
                if holder.durable(number) {
                    tracing::info!("{node} has a copy of this coordinator's log");
                }
            }
            ReplicaReport::Failed { reason } => {
                tracing::warn!(
                    "{node} keeps no copy of this coordinator's log: failed to {reason}"
                );
                holder.fail();
            }
        }
    }

    /// A job's output is cut to a length.
    pub fn cut(&mut self, job: &str, length: u64, send: &mut Send<'_>) {
        for (node, holder) in &mut self.holders {
            holder.cut(job, length, &mut |order, body| send(node, order, body));
        }
    }

    /// A job is forgotten.
    pub fn forget(&mut self, job: &str, send: &mut Send<'_>) {
        for (node, holder) in &mut self.holders {
            holder.forget(job, &mut |order, body| send(node, order, body));
        }
    }

    /// Sends what is there and has not been sent, as far as it fits. `may_hold_key`: who gets the cluster's key with it.
    pub fn pump(
        &mut self,
        extent: &Extent,
        may_hold_key: &dyn Fn(&NodeName) -> bool,
        send: &mut Send<'_>,
    ) {
        for (node, holder) in &mut self.holders {
            let mut send = |order, body: &[u8]| send(node, order, body);
            let key = Key::of(may_hold_key(node));
            if let Err(error) = holder.pump(&self.source, extent, &self.note, key, &mut send) {
                tracing::warn!("failed to copy this coordinator's folder to {node}: {error}");
                holder.fail();
            }
        }
    }

    /// Whether a copy has that much, or nobody can be asked to keep one.
    pub fn has(&self, need: &Need) -> bool {
        let mut nobody = true;
        for holder in self.holders.values() {
            if holder.has(need) {
                return true;
            }
            nobody &= !holder.is_live();
        }
        nobody
    }

    /// Whether all copies that are waited for have that much.
    pub fn all_have(&self, need: &Need) -> bool {
        self.holders.values().all(|holder| !holder.is_live() || holder.has(need))
    }

    /// Waits no longer for those that do not have that much. Who they are.
    pub fn give_up(&mut self, need: &Need) -> Vec<NodeName> {
        let mut slow = Vec::new();
        for (node, holder) in &mut self.holders {
            if holder.is_live() && !holder.has(need) {
                holder.stall();
                slow.push(node.clone());
            }
        }
        slow
    }
}

#[cfg(test)]
mod tests;
