//! Which machines get copies of an instance's images.

use super::ledger::Ledger;
use crate::cluster::members::{Members, Presence};
use protocol::cluster::NodeName;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The machines that can be partners, by how often they are so far. One that can't be reached is none.
#[derive(Debug)]
pub(in crate::cluster) struct Candidates {
    load: BTreeMap<NodeName, u32>,
    by_load: BTreeMap<u32, BTreeSet<NodeName>>,
}

impl Candidates {
    /// All members that are there and may have images of the job. `load`: how often each is a partner.
    pub(in crate::cluster) fn new(
        ledger: &Ledger,
        members: &Members,
        load: &BTreeMap<NodeName, u32>,
    ) -> Self {
        let mut candidates = Self { load: BTreeMap::new(), by_load: BTreeMap::new() };
        for (name, member) in members.iter() {
            let is_there = member.is_connected() && member.presence == Presence::There;
            if is_there && ledger.trusts(member) {
                let load = load.get(name).copied().unwrap_or(0);
                candidates.load.insert(name.clone(), load);
                candidates.by_load.entry(load).or_default().insert(name.clone());
            }
        }
        candidates
    }

    /// As many as `copies` asks for besides the instance's own machine, or as there are: those that
    /// are partners least often so far, then those that come after the own machine in the order of
    /// names. They are partners once more from then on.
    pub(in crate::cluster) fn choose(&mut self, node: &NodeName, copies: u32) -> Vec<NodeName> {
        let wanted = usize::try_from(copies.saturating_sub(1)).unwrap_or(usize::MAX);
        let chosen: Vec<NodeName> = self
            .by_load
            .values()
            .flat_map(|names| {
                let after = (Bound::Excluded(node), Bound::Unbounded);
                names.range::<NodeName, _>(after).chain(names.range::<NodeName, _>(..node))
            })
            .take(wanted)
            .cloned()
            .collect();
        chosen.iter().for_each(|name| self.count(name, 1));
        chosen
    }

    /// One is a partner once less.
    pub(in crate::cluster) fn release(&mut self, node: &NodeName) {
        self.count(node, -1);
    }

    fn count(&mut self, node: &NodeName, change: i32) {
        // A partner that can't be reached any more is no candidate.
        let Some(load) = self.load.get_mut(node) else { return };
        if let Some(names) = self.by_load.get_mut(load) {
            names.remove(node);
            if names.is_empty() {
                self.by_load.remove(load);
            }
        }
        *load = load.saturating_add_signed(change);
        self.by_load.entry(*load).or_default().insert(node.clone());
    }
}
