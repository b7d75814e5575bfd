//! What machines do: they carry out orders, their instances make progress together, and end.

use super::{FREEZE_LIMIT, Happening, MILLI, PEACE, World};
use crate::node::{Life, Node, Out, written};
use protocol::agent::{ExitKind, InstanceId};
use protocol::cluster::agent::{FromAgent, Stream, ToAgent};
use protocol::cluster::{InstanceKey, NodeName};
use std::collections::{BTreeMap, BTreeSet};

impl World {
    pub(super) fn index(&self, name: &NodeName) -> usize {
        self.nodes.iter().position(|node| node.name == *name).unwrap()
    }

    pub(super) fn deliver(&mut self, node: usize, message: ToAgent) {
        if self.trace {
            eprintln!("{:>7} -> {}: {}", self.now / MILLI, self.nodes[node].name, brief(&message));
        }
        match &message {
            ToAgent::Go { key, links, .. } => self.judge_go(key, links),
            ToAgent::Keep { images, .. } => self.judge_keep(images),
            ToAgent::Launch(order) => self.judge_alone(order.key.epoch),
            ToAgent::Instance { key, command } => self.judge_step(node, key, command),
            _ => {}
        }
        self.tree_told(node, &message);
        let reach: Vec<(NodeName, bool)> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(index, other)| {
                let reached = index == node
                    || (other.up && other.agent && !self.cut[index] && !self.cut[node]);
                (other.name.clone(), reached)
            })
            .collect();
        let disks: Vec<_> = self.nodes.iter().map(|node| node.disk.clone()).collect();
        let fetch = |name: &NodeName, image: &(String, InstanceId, u64)| {
            let index = reach.iter().position(|(other, _)| other == name)?;
            if reach[index].1 { disks[index].get(image).cloned() } else { None }
        };
        let welcome = matches!(message, ToAgent::Welcome { .. });
        let out = self.nodes[node].handle(self.now, message, &mut self.random, &fetch);
        if welcome {
            self.nodes[node].welcomed_at = self.now;
            let lease = self.nodes[node].lease;
            let sent = self.nodes[node].hello_sent;
            self.nodes[node].lease_until = self.nodes[node].lease_until.max(sent + lease);
        }
        let mut copies: BTreeMap<(String, InstanceId, u64), Vec<NodeName>> = BTreeMap::new();
        for one in out {
            match one {
                Out::Send(message, body) => self.send(node, message, body),
                Out::Copy(to, name, image) => {
                    let index = self.index(&to);
                    copies.entry(name.clone()).or_default();
                    if reach[index].1 {
                        self.nodes[index].disk.insert(name.clone(), image);
                        copies.entry(name).or_default().push(to);
                    }
                }
            }
        }
        if welcome {
            for (message, body) in std::mem::take(&mut self.nodes[node].outbox) {
                self.send(node, message, body);
            }
        }
        if let Some((name, mut holders)) = copies.into_iter().next() {
            holders.push(self.nodes[node].name.clone());
            self.tell_written(node, &name, holders);
        } else {
            // An image without a partner is told of as well.
            self.tell_lone_images(node);
        }
        if self.nodes[node].left {
            let others_stay = self.judge_farewell(node);
            self.hang_up(node);
            // Somebody starts it again later, at times with another disk.
            self.nodes[node].left = false;
            self.nodes[node].leaves = false;
            self.nodes[node].begin_anew();
            self.nodes[node].instances.clear();
            if others_stay && self.random.chance(300) {
                self.nodes[node].disk.clear();
            }
            self.outcome.farewells += 1;
            self.later(1000, 5000, Happening::Reconnect { node });
        }
    }

    pub(super) fn tell_written(
        &mut self,
        node: usize,
        name: &(String, InstanceId, u64),
        holders: Vec<NodeName>,
    ) {
        let image = self.nodes[node].disk[name].clone();
        let found = self.nodes[node]
            .instances
            .values_mut()
            .find(|instance| instance.key.instance == name.1 && instance.life == Life::Running);
        let Some(instance) = found else { return };
        instance.snapshot = None;
        let key = instance.key.clone();
        for message in written(&key, name.2, &image, holders) {
            self.send(node, message, Vec::new());
        }
    }

    pub(super) fn tell_lone_images(&mut self, node: usize) {
        let done: Vec<(String, InstanceId, u64)> = self.nodes[node]
            .instances
            .values()
            .filter_map(|instance| {
                let (checkpoint, _) = instance.snapshot.as_ref()?;
                let name = (instance.key.job.clone(), instance.key.instance, *checkpoint);
                self.nodes[node].disk.contains_key(&name).then_some(name)
            })
            .collect();
        for name in done {
            let holders = vec![self.nodes[node].name.clone()];
            self.tell_written(node, &name, holders);
        }
    }

    /// Everything of a job that is complete goes on.
    pub(super) fn progress(&mut self) {
        self.wear_wires();
        let now = self.now;
        let mut going: BTreeMap<u64, Vec<(usize, InstanceKey)>> = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            for instance in node.instances.values() {
                if instance.goes() && node.up && now < node.lease_until {
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
        let offset = root.console.len() as u64;
        root.console.extend_from_slice(&line);
        let (target, status) = (root.app.target, root.app.status);
        let console = FromAgent::Console { key: root_key.clone(), offset, stream: Stream::Output };
        self.send(root_node, console, line);
        if counter >= target && !(self.fallback && departed) {
            self.end_root(root_node, &root_key, status);
        }
    }

    /// Everybody waits for somebody who will not answer.
    pub(super) fn rest(&mut self, members: &[(usize, InstanceKey)]) {
        for (node, key) in members {
            let instance = self.nodes[*node].instances.get_mut(key).unwrap();
            if !std::mem::replace(&mut instance.rests, true) {
                self.outcome.rests = 1;
                let rest = FromAgent::Rest { key: key.clone(), waits: true };
                self.send(*node, rest, Vec::new());
            }
        }
    }

    pub(super) fn end_root(&mut self, node: usize, key: &InstanceKey, status: u8) {
        if self.trace {
            eprintln!("{:>7} the root ends with {status}", self.now / MILLI);
        }
        let whole = |index: usize| {
            let node = &self.nodes[index];
            node.up && node.agent && !self.cut[index]
        };
        // Of an agent that has lost relays the coordinator may hear before it hears of the end.
        let loses = |(index, at): (usize, &Node)| {
            let known = index == node && status == 0;
            at.instances.values().any(|instance| {
                let untold = at.adopted.contains(&instance.key) && !known;
                instance.key.epoch == key.epoch && (instance.relays_lost || untold)
            })
        };
        self.ended_well = status == self.status
            && (0..self.nodes.len()).all(whole)
            && self.is_known_to_run(key.epoch)
            && !self.nodes.iter().enumerate().any(loses);
        let status = ExitKind::Exited(status);
        let root = self.nodes[node].instances.get_mut(key).unwrap();
        root.ended = Some(status);
        root.life = Life::Ended;
        self.send(node, FromAgent::RootEnded { key: key.clone(), status }, Vec::new());
        // Its daemons end with it.
        for index in 0..self.nodes.len() {
            let keys: Vec<_> = self.nodes[index]
                .instances
                .keys()
                .filter(|other| other.epoch == key.epoch && *other != key)
                .cloned()
                .collect();
            for other in keys {
                if self.nodes[index].up && !self.cut[index] {
                    if let Some(instance) = self.nodes[index].instances.get_mut(&other) {
                        instance.life = Life::Ended;
                        instance.frozen = None;
                    }
                    self.send(index, FromAgent::Empty { key: other }, Vec::new());
                }
            }
        }
    }
}

fn brief(message: &ToAgent) -> String {
    let text = format!("{message:?}");
    text.chars().take(170).collect()
}
