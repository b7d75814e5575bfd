//! An operator who drains nodes, for a while or for good; and what must come of it.

use super::{PEACE, SECOND, World};
use crate::machine::Life;
use coordinator::cluster::{ClientId, ClusterEntry, ClusterEvent};
use protocol::cluster::NodeName;
use protocol::cluster::agent::JobUser;
use protocol::cluster::client::{Answer, Ask};
use std::collections::BTreeSet;

/// Numbers of the operator's commands, by node, begin here.
const FIRST: u64 = 600_000;
/// For how long something may run on a drained node though it could be elsewhere, while nothing goes wrong.
const LINGER: u64 = 20 * SECOND;

impl World {
    /// Drains a node, or has one take processes again; in the end all but one do.
    pub(super) fn drain(&mut self) {
        let peace = self.now >= PEACE;
        let after =
            if peace { self.drains.millis(300, 600) } else { self.drains.millis(300, 4000) };
        self.at(self.now + after, super::Happening::Drain);
        if self.machine.is_none() || self.stalled_coordinator {
            return;
        }
        let count = self.nodes.len();
        let drained = self.drained();
        let is_drained = |index: usize| drained.contains(&self.nodes[index].name);
        if peace {
            let many = (0..count).filter(|index| is_drained(*index));
            let many: Vec<usize> =
                many.filter(|index| Some(*index) != self.stays_drained || count < 2).collect();
            many.into_iter().for_each(|index| self.operator_orders(index, false));
            return;
        }
        let index = usize::try_from(self.drains.below(count as u64)).unwrap();
        // A node that is not known is refused.
        let on = !is_drained(index) && self.drains.chance(600);
        self.operator_orders(index, on);
    }

    fn operator_orders(&mut self, index: usize, on: bool) {
        let node = self.nodes[index].name.clone();
        let wait = self.drains.chance(700);
        let ask = if on { Ask::Drain { node, wait } } else { Ask::Uncordon { node } };
        let client = ClientId { node: None, connection: 0, number: FIRST + index as u64 };
        let user = JobUser { uid: 0, name: "root".to_owned() };
        self.feed(ClusterEvent::Asked { client, user, ask });
    }

    /// The nodes that are drained, as the log says.
    pub(super) fn drained(&self) -> BTreeSet<NodeName> {
        let mut drained = BTreeSet::new();
        for entry in &self.log {
            match entry {
                ClusterEntry::NodeDrained { node, on: true } => drained.insert(node.clone()),
                ClusterEntry::NodeDrained { node, on: false } => drained.remove(node),
                _ => false,
            };
        }
        drained
    }

    /// Whether a node has something of the job as it is now that has not ended.
    fn has_part(&self, index: usize) -> bool {
        let epoch = self.expected.keys().next_back();
        let mut alive =
            self.nodes[index].instances.values().filter(|instance| instance.life != Life::Ended);
        self.over.is_none() && alive.any(|instance| Some(&instance.key.epoch) == epoch)
    }

    /// What is said to be empty is empty.
    pub(super) fn drain_answered(&mut self, client: u64, answer: &Answer) {
        let index = client.checked_sub(FIRST).and_then(|index| usize::try_from(index).ok());
        let (Some(index), Answer::Done { text: Some(text) }) = (index, answer) else { return };
        if text.contains("nothing runs there") {
            assert!(!self.has_part(index), "{text}, but something does");
            self.outcome.emptied += 1;
        }
    }

    /// Where nothing goes wrong, a drained node with another one for its processes becomes empty.
    pub(super) fn judge_drained(&mut self) {
        let is_calm = self.calm || self.now > PEACE;
        let drained = self.drained();
        let takes: Vec<usize> = (0..self.nodes.len())
            .filter(|index| {
                let node = &self.nodes[*index];
                let stays = !node.leaves && !self.is_told_to_go(&node.name);
                node.welcomed && stays && !drained.contains(&node.name)
            })
            .collect();
        for index in 0..self.nodes.len() {
            let could_move = is_calm
                && drained.contains(&self.nodes[index].name)
                && self.has_part(index)
                && takes.iter().any(|other| *other != index);
            if !could_move {
                self.lingers.remove(&index);
                continue;
            }
            let since = *self.lingers.entry(index).or_insert(self.now);
            if self.now - since >= LINGER {
                let name = self.nodes[index].name.clone();
                panic!("{name} is drained and runs something still: {}", self.describe());
            }
        }
    }
}
