//! Instances of an epoch that have not ended, to be found by whatever they are asked for by.

use crate::cluster::entry::{InstanceRecord, Origin};
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

/// What all else follows from.
type Instances = BTreeMap<InstanceId, InstanceRecord>;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Instances", into = "Instances")]
pub(in crate::cluster) struct Roster {
    instances: Instances,
    roots: BTreeSet<InstanceId>,
    calls: BTreeSet<(InstanceId, u64, InstanceId)>,
    by_logical_node: BTreeMap<NodeName, BTreeSet<InstanceId>>,
    by_node: BTreeMap<NodeName, BTreeSet<InstanceId>>,
}

impl Deref for Roster {
    type Target = BTreeMap<InstanceId, InstanceRecord>;

    fn deref(&self) -> &Self::Target {
        &self.instances
    }
}

impl From<Instances> for Roster {
    fn from(instances: Instances) -> Self {
        let mut roster = Self::default();
        for (instance, record) in instances {
            roster.insert(instance, record);
        }
        roster
    }
}

impl From<Roster> for Instances {
    fn from(roster: Roster) -> Self {
        roster.instances
    }
}

impl Roster {
    pub(super) fn insert(&mut self, instance: InstanceId, record: InstanceRecord) {
        self.remove(instance);
        if record.root {
            self.roots.insert(instance);
        }
        if let Origin::Shell { caller, call } = record.origin {
            self.calls.insert((caller, call, instance));
        }
        enter(&mut self.by_logical_node, &record.logical_node, instance);
        enter(&mut self.by_node, &record.node, instance);
        self.instances.insert(instance, record);
    }

    pub(super) fn remove(&mut self, instance: InstanceId) {
        let Some(record) = self.instances.remove(&instance) else { return };
        self.roots.remove(&instance);
        if let Origin::Shell { caller, call } = record.origin {
            self.calls.remove(&(caller, call, instance));
        }
        strike(&mut self.by_logical_node, &record.logical_node, instance);
        strike(&mut self.by_node, &record.node, instance);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The instance with the job's first process.
    pub(in crate::cluster) fn root(&self) -> Option<InstanceId> {
        self.roots.first().copied()
    }

    /// The instance that a shell's call has led to.
    pub(in crate::cluster) fn of_call(&self, caller: InstanceId, call: u64) -> Option<InstanceId> {
        let of_call = (caller, call, InstanceId(0))..=(caller, call, InstanceId(u32::MAX));
        self.calls.range(of_call).next().map(|(_, _, instance)| *instance)
    }

    /// The first instance of a logical node.
    pub(in crate::cluster) fn first_of(&self, logical_node: &NodeName) -> Option<&InstanceRecord> {
        self.instances.get(self.by_logical_node.get(logical_node)?.first()?)
    }

    /// Machines that have instances.
    pub(in crate::cluster) fn nodes(&self) -> impl ExactSizeIterator<Item = &NodeName> {
        self.by_node.keys()
    }

    /// Instances on a machine.
    pub(in crate::cluster) fn on(&self, node: &NodeName) -> impl Iterator<Item = &InstanceRecord> {
        let numbers = self.by_node.get(node).into_iter().flatten();
        numbers.filter_map(|number| self.instances.get(number))
    }

    /// Whether a machine has an instance.
    pub(in crate::cluster) fn is_on(&self, node: &NodeName) -> bool {
        self.by_node.contains_key(node)
    }
}

/// Notes an instance under a name.
pub(super) fn enter(
    index: &mut BTreeMap<NodeName, BTreeSet<InstanceId>>,
    name: &NodeName,
    instance: InstanceId,
) {
    match index.get_mut(name) {
        Some(instances) => {
            instances.insert(instance);
        }
        None => {
            index.insert(name.clone(), BTreeSet::from([instance]));
        }
    }
}

/// Takes the note back.
pub(super) fn strike(
    index: &mut BTreeMap<NodeName, BTreeSet<InstanceId>>,
    name: &NodeName,
    instance: InstanceId,
) {
    if let Some(instances) = index.get_mut(name) {
        instances.remove(&instance);
        if instances.is_empty() {
            index.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(node: &str, logical: &str, origin: Origin) -> InstanceRecord {
        let (node, logical_node) = (node.parse().unwrap(), logical.parse().unwrap());
        let root = origin == Origin::Run;
        InstanceRecord { node, logical_node, root, origin, addresses: Vec::new() }
    }

    #[test]
    fn instances_are_found_until_they_are_taken_out() {
        let [one, two, three] = [1, 2, 3].map(InstanceId);
        let call = |call| Origin::Shell { caller: one, call };
        let mut roster = Roster::default();
        roster.insert(one, record("a", "a", Origin::Run));
        roster.insert(three, record("a", "b", call(7)));
        roster.insert(two, record("c", "b", call(8)));
        let node = |name: &str| -> NodeName { name.parse().unwrap() };
        assert_eq!((roster.root(), roster.len()), (Some(one), 3));
        assert_eq!((roster.of_call(one, 7), roster.of_call(two, 7)), (Some(three), None));
        assert_eq!(roster.first_of(&node("b")).unwrap().node, node("c"));
        assert_eq!(roster.nodes().len(), 2);
        roster.remove(two);
        assert_eq!(roster.first_of(&node("b")).unwrap().node, node("a"));
        assert!(!roster.is_on(&node("c")) && roster.is_on(&node("a")));
        roster.clear();
        assert!(roster.is_empty() && roster.root().is_none() && roster.of_call(one, 7).is_none());
    }
}
