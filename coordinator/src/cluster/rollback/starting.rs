//! Everything is complete: relays are paired, and every instance is let go.

use super::making::{Arrival, Gathering, RelayEnds, Stage};
use super::pairing;
use super::telling;
use crate::cluster::entry::ClusterEntry;
use crate::cluster::event::Now;
use crate::cluster::job::Job;
use crate::cluster::job::instances::Stage as InstanceStage;
use crate::cluster::shared::Shared;
use protocol::agent::InstanceId;
use protocol::cluster::agent::{Fallen, RelayLink, RelaySide, ToAgent};
use std::collections::BTreeMap;

impl Job {
    /// Everything is complete: tells where relays lead to, and lets everything run.
    pub(super) fn let_go(
        &mut self,
        now: Now,
        shared: &mut Shared,
        ends: BTreeMap<InstanceId, RelayEnds>,
    ) {
        let Some(making) = self.state.making("let an epoch go") else { return };
        making.record.restored_ms = Some(now.unix_ms);
        let (mut sides, mut outputs) = (BTreeMap::new(), BTreeMap::new());
        for (instance, ends) in ends {
            sides.insert(instance, ends.sides);
            outputs.insert(instance, ends.outputs);
        }
        let pairs = pairing::relays(&sides);
        let lonely = pairing::lonely(&sides, &pairs);
        for ((one, its_side), (other, other_side)) in pairs {
            for (instance, side, peer) in [(one, its_side, other), (other, other_side, one)] {
                let node = self.live.node(peer).cloned();
                let key = protocol::cluster::InstanceKey {
                    job: self.ledger.id.clone(),
                    epoch: self.ledger.epoch,
                    instance: peer,
                };
                if let (Some(found), Some(node)) = (self.live.instances.get_mut(&instance), node) {
                    found.links.push(RelayLink { side, peer: key, node });
                }
            }
        }
        let mut fallen = self.fallen(lonely, &outputs);
        self.cut_log_back(shared);
        self.tell_addresses(shared);
        let gathering = Gathering::of(self.live.instances.keys().copied());
        self.enter(Stage::Starting(gathering), now, shared.settings.rollback.start);
        for (instance, found) in &self.live.instances {
            let (key, links) = (self.key(*instance), found.links.clone());
            let go = ToAgent::Go { key, links, fallen: fallen.remove(instance) };
            shared.send(&found.record.node, go);
        }
    }

    /// In a job that does without some of its daemons: relays that lead to them. What comes out of
    /// processes becomes output of the job, everything else is silent.
    fn fallen(
        &mut self,
        lonely: Vec<pairing::Side>,
        outputs: &BTreeMap<InstanceId, Vec<RelaySide>>,
    ) -> BTreeMap<InstanceId, Fallen> {
        if self.ledger.departed.is_empty() {
            return BTreeMap::new();
        }
        let mut fallen: BTreeMap<InstanceId, Fallen> =
            self.live.instances.keys().map(|instance| (*instance, Fallen::default())).collect();
        let root = self.ledger.root().zip(self.root_node());
        for (instance, side) in lonely {
            let is_output = outputs.get(&instance).is_some_and(|sides| sides.contains(&side));
            let node = self.live.node(instance).cloned();
            let (Some((root, root_node)), Some(node), true) = (&root, node, is_output) else {
                fallen.entry(instance).or_default().silent.push(side);
                continue;
            };
            let other = RelaySide { relay: side.relay.clone(), side: 1 - side.side.min(1) };
            let to_root = RelayLink { side, peer: self.key(*root), node: root_node.clone() };
            let from_root = RelayLink { side: other, peer: self.key(instance), node };
            if let Some(found) = self.live.instances.get_mut(&instance) {
                found.links.push(to_root);
            }
            fallen.entry(*root).or_default().outputs.push(from_root);
        }
        fallen
    }

    /// An instance runs.
    pub(in crate::cluster) fn runs(&mut self, now: Now, shared: &mut Shared, instance: InstanceId) {
        match self.state.arrival(|making| making.runs(instance)) {
            Arrival::Stale | Arrival::Counted => {}
            Arrival::Last(_) => self.complete(now, shared),
        }
    }

    /// All instances run.
    pub(super) fn complete(&mut self, now: Now, shared: &mut Shared) {
        let Some(making) = self.state.making("end the making of an epoch") else { return };
        making.record.running_ms = Some(now.unix_ms);
        let record = std::mem::take(&mut making.record);
        making.span.record("moves", record.moves.len());
        if self.ledger.epoch > 1 {
            let line = telling::goes_on(&self.ledger, now, &record);
            self.console.say(shared, &line);
            self.mark_always(shared, &line);
        }
        let rollback = match record.reason.as_str() {
            "run" | "restart" => None,
            _ => Some(Box::new(record)),
        };
        let links = self
            .live
            .instances
            .iter()
            .map(|(number, instance)| (*number, instance.links.clone()))
            .collect();
        for instance in self.live.instances.values_mut() {
            if instance.stage == InstanceStage::Restoring {
                instance.stage = InstanceStage::Running;
            }
        }
        let (job, epoch) = (self.ledger.id.clone(), self.ledger.epoch);
        self.record(shared, ClusterEntry::Running { job, epoch, rollback, links });
        self.run(now, shared, false);
        self.announce_start(shared);
        // What happened while others were still being let go.
        let ended: Vec<InstanceId> = self
            .ledger
            .instances
            .keys()
            .copied()
            .filter(|number| {
                let found = self.live.instances.get(number);
                found.is_some_and(|instance| instance.stage == InstanceStage::Ended)
            })
            .collect();
        for instance in ended {
            self.remove_ended(now, shared, instance);
        }
        if let Some(status) = self.live.root_end {
            self.weigh_end(now, shared, status);
        }
    }
}
