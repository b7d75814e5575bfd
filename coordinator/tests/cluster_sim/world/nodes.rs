//! What processes do: they make progress together, rest, and end.

use super::{FREEZE_LIMIT, MILLI, PEACE, World};
use crate::machine::Machine;
use ckpt_node::{Event, InstanceEvent};
use protocol::agent::{ExitKind, InstanceId};
use protocol::cluster::InstanceKey;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    /// Everything of a job that is complete goes on.
    pub(super) fn progress(&mut self) {
        self.wear_wires();
        self.keep_leases();
        let now = self.now;
        let mut going: BTreeMap<u64, Vec<(usize, InstanceKey)>> = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            for instance in node.instances.values() {
                if instance.goes() && node.up {
                    going
                        .entry(instance.key.epoch)
                        .or_default()
                        .push((index, instance.key.clone()));
                }
                if let Some((checkpoint, since)) = instance.frozen {
                    assert!(
                        now - since.max(PEACE.min(now)) < FREEZE_LIMIT,
                        "frozen for checkpoint {checkpoint} for ever: {}",
                        instance.key
                    );
                }
            }
        }
        assert!(going.len() <= 1, "two epochs run at a time: {going:?}");
        let Some((epoch, members)) = going.into_iter().next() else { return };
        let root = members.iter().find(|(index, key)| self.nodes[*index].instances[key].app.root);
        let Some((root_node, root_key)) = root.cloned() else { return };
        let root = &self.nodes[root_node].instances[&root_key];
        if root.app.calls.values().any(|(_, answered)| !answered) {
            return;
        }
        let present: BTreeSet<InstanceId> = members.iter().map(|(_, key)| key.instance).collect();
        let expected = self.expected.get(&epoch).cloned().unwrap_or_default();
        let exists = |instance: &InstanceId| {
            self.nodes.iter().any(|node| {
                node.up
                    && node
                        .instances
                        .keys()
                        .any(|key| key.epoch == epoch && key.instance == *instance)
            })
        };
        if expected.iter().any(|instance| !exists(instance)) {
            if self.random.chance(100) {
                // An MPI run time gives up when a connection ends, by mpirun's status or by prterun's.
                let status = if self.seed % 3 == 0 { 0 } else { 205 };
                self.end_root(root_node, &root_key, status);
                self.ended_well = false;
            }
            return;
        }
        if expected != present {
            return;
        }
        let counters: BTreeSet<u64> = members
            .iter()
            .map(|(index, key)| self.nodes[*index].instances[key].app.counter)
            .collect();
        assert!(
            counters.len() == 1,
            "instances of one epoch differ in their progress: {counters:?}"
        );
        if !self.is_wired(&members) || !self.is_connected(&members) {
            return;
        }
        let departed = members.iter().any(|(index, key)| {
            let instance = &self.nodes[*index].instances[key];
            instance.app.orphaned || !instance.silent.is_empty()
        });
        let reached = counters.iter().max().is_some_and(|counter| *counter >= self.target);
        if self.fallback && departed && reached {
            self.rest(&members);
            return;
        }
        let counter = counters.iter().max().unwrap() + 1;
        for (index, key) in &members {
            self.nodes[*index].instances.get_mut(key).unwrap().app.counter = counter;
        }
        let root = self.nodes[root_node].instances.get_mut(&root_key).unwrap();
        let line = format!("line {counter}\n").into_bytes();
        let piece = root.console.write(&line);
        let (target, status) = (root.app.target, root.app.status);
        if let Some(piece) = piece {
            self.step(root_node, Event::Console(root_key.clone(), piece));
        }
        if counter >= target && !(self.fallback && departed) {
            self.end_root(root_node, &root_key, status);
        }
    }

    /// Everybody waits for somebody who will not answer.
    pub(super) fn rest(&mut self, members: &[(usize, InstanceKey)]) {
        for (node, key) in members {
            let instance = self.nodes[*node].instances.get_mut(key).unwrap();
            if instance.watched && !std::mem::replace(&mut instance.rests, true) {
                self.outcome.rests = 1;
                self.step(*node, Event::Rest(key.clone(), true));
            }
        }
    }

    pub(super) fn end_root(&mut self, node: usize, key: &InstanceKey, status: u8) {
        if self.trace {
            eprintln!("{:>7} the root ends with {status}", self.now / MILLI);
        }
        let whole = |index: usize| {
            let node = &self.nodes[index];
            node.up && node.agent.is_some() && !self.cut[index]
        };
        // Of an agent that has lost relays the coordinator may hear before it hears of the end.
        let loses = |at: &Machine| {
            let mut instances = at.instances.values();
            instances.any(|one| one.key.epoch == key.epoch && one.relays_lost)
        };
        self.ended_well = status == self.status
            && (0..self.nodes.len()).all(whole)
            && self.is_known_to_run(key.epoch)
            && !self.nodes.iter().any(loses);
        self.end_instance(node, key, ExitKind::Exited(status));
        // Its daemons end with it.
        for index in 0..self.nodes.len() {
            let of_job = |other: &&InstanceKey| other.epoch == key.epoch && *other != key;
            let keys: Vec<_> = self.nodes[index].instances.keys().filter(of_job).cloned().collect();
            for other in keys {
                if self.nodes[index].up && !self.cut[index] {
                    if let Some(instance) = self.nodes[index].instances.get_mut(&other) {
                        instance.ended = Some(ExitKind::Exited(0));
                        instance.end();
                    }
                    self.report(index, &other, InstanceEvent::RootEnded(ExitKind::Exited(0)));
                    self.report(index, &other, InstanceEvent::Empty);
                }
            }
        }
    }

    /// Inits without an agent hold what they have when the lease has run out.
    pub(super) fn keep_leases(&mut self) {
        let now = self.now;
        self.nodes.iter_mut().for_each(|machine| machine.keep_leases(now));
    }
}
