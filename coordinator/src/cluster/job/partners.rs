//! Which machines get copies of an instance's images.

use super::ledger::Ledger;
use super::roster::{enter, strike};
use crate::cluster::changes::Revision;
use crate::cluster::members::{Members, Presence};
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::settings::Trust;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The partners of an epoch's instances, and the machines that can be some, by how often they are. One that can't be
/// reached is none. Kept up with members and instances, so that a choice costs the same however many there are.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Partners {
    /// Instances that have not ended, by their partners.
    of: BTreeMap<NodeName, BTreeSet<InstanceId>>,
    /// Machines that can be partners, with how often they are.
    able: BTreeMap<NodeName, usize>,
    by_load: BTreeMap<usize, BTreeSet<NodeName>>,
    /// Those of them on which no process can be: whoever has such a partner is looked at again each time.
    slotless: BTreeSet<NodeName>,
    /// Those of them that are drained, and may be switched off before long, or whose disks are full: they are chosen last.
    unfit: BTreeSet<NodeName>,
    /// Instances whose partners have changed, or were not all that they should be.
    doubtful: BTreeSet<InstanceId>,
    /// What was known when members were last looked at.
    seen: Option<Seen>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    revision: Revision,
    trust: Trust,
    copies: u32,
}

impl Partners {
    /// An instance has these partners.
    pub(super) fn take(&mut self, instance: InstanceId, partners: &[NodeName]) {
        for partner in partners {
            enter(&mut self.of, partner, instance);
            self.sort_in(partner);
        }
        let copies = self.seen.map(|seen| seen.copies);
        let is_complete = copies.is_some_and(|copies| partners.len() == wanted(copies));
        let is_good = |partner: &NodeName| {
            self.able.contains_key(partner)
                && !self.slotless.contains(partner)
                && !self.unfit.contains(partner)
        };
        if !is_complete || !partners.iter().all(is_good) {
            self.doubtful.insert(instance);
        }
    }

    /// It has them no more.
    pub(super) fn release(&mut self, instance: InstanceId, partners: &[NodeName]) {
        for partner in partners {
            strike(&mut self.of, partner, instance);
            self.sort_in(partner);
        }
    }

    /// Looks at the members that have changed since this was done last. `by_node`: instances by their machines.
    pub(super) fn look(
        &mut self,
        ledger: &Ledger,
        members: &Members,
        by_node: &BTreeMap<NodeName, BTreeSet<InstanceId>>,
    ) {
        let settings = ledger.settings();
        let (revision, trust, copies) = (members.revision(), settings.trust, settings.copies);
        let now = Seen { revision, trust, copies };
        let before = self.seen.replace(now);
        let same = before.filter(|seen| (seen.trust, seen.copies) == (trust, copies));
        match same.and_then(|seen| members.changed_since(seen.revision)) {
            Some(changed) => {
                for name in changed {
                    self.consider(name, ledger, members);
                    self.doubtful.extend(self.of.get(name).into_iter().flatten());
                    self.doubtful.extend(by_node.get(name).into_iter().flatten());
                }
            }
            None => {
                self.able.clear();
                self.slotless.clear();
                self.unfit.clear();
                self.by_load.clear();
                members.iter().for_each(|(name, _)| self.consider(name, ledger, members));
                self.doubtful.extend(by_node.values().flatten());
            }
        }
    }

    /// Whether a member is there and may have images of the job.
    fn consider(&mut self, name: &NodeName, ledger: &Ledger, members: &Members) {
        let is_able = members.get(name).is_some_and(|member| {
            let is_there = member.is_connected() && member.presence == Presence::There;
            is_there && ledger.trusts(member)
        });
        self.sort_out(name);
        if is_able {
            let load = self.load(name);
            self.able.insert(name.clone(), load);
            self.by_load.entry(load).or_default().insert(name.clone());
        } else {
            self.able.remove(name);
        }
        if is_able && !members.is_usable(name) {
            self.slotless.insert(name.clone());
        } else {
            self.slotless.remove(name);
        }
        if is_able && (members.is_drained(name) || members.is_full(name)) {
            self.unfit.insert(name.clone());
        } else {
            self.unfit.remove(name);
        }
    }

    /// As many as `copies` asks for besides the instance's own machine, or as there are: those that
    /// are partners least often so far, then those that come after the own machine in the order of
    /// names.
    pub(super) fn choose(&self, node: &NodeName, copies: u32) -> Vec<NodeName> {
        let after = (Bound::Excluded(node), Bound::Unbounded);
        let in_order = || {
            self.by_load.values().flat_map(|names| {
                names.range::<NodeName, _>(after).chain(names.range::<NodeName, _>(..node))
            })
        };
        let fit = in_order().filter(|name| !self.unfit.contains(*name));
        let unfit = in_order().filter(|name| self.unfit.contains(*name));
        fit.chain(unfit).take(wanted(copies)).cloned().collect()
    }

    /// Instances that may need other partners. Those that do are to be [taken](Self::take) once more.
    pub(super) fn doubtful(&mut self) -> BTreeSet<InstanceId> {
        std::mem::take(&mut self.doubtful)
    }

    fn load(&self, node: &NodeName) -> usize {
        self.of.get(node).map_or(0, BTreeSet::len)
    }

    /// Puts a machine to those that are partners as often.
    fn sort_in(&mut self, node: &NodeName) {
        let load = self.load(node);
        self.sort_out(node);
        // One that can't be reached any more is not chosen.
        let Some(known) = self.able.get_mut(node) else { return };
        *known = load;
        self.by_load.entry(load).or_default().insert(node.clone());
    }

    fn sort_out(&mut self, node: &NodeName) {
        let Some(load) = self.able.get(node) else { return };
        if let Some(names) = self.by_load.get_mut(load) {
            names.remove(node);
            if names.is_empty() {
                self.by_load.remove(load);
            }
        }
    }
}

/// How many partners an instance is to have.
pub(super) fn wanted(copies: u32) -> usize {
    usize::try_from(copies.saturating_sub(1)).unwrap_or(usize::MAX)
}
