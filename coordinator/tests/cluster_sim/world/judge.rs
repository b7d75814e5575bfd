//! The judge of what the coordinator makes of it.

use super::{MILLI, World};
use crate::machine::{Life, Machine};
use coordinator::cluster::ClusterEntry;
use coordinator::cluster::entry::{Cause, ImageRecord};
use protocol::agent::{CommitRecord, ExitKind, InstanceId};
use protocol::cluster::agent::{RelayLink, RelaySide};
use protocol::cluster::{InstanceKey, NodeName};
use std::collections::{BTreeMap, BTreeSet};

impl World {
    pub(super) fn judge_entry(&mut self, entry: &ClusterEntry) {
        match entry {
            ClusterEntry::EpochBegun { cause, .. } => {
                assert!(!self.ended_well, "a job that has ended is begun again: {cause:?}");
            }
            ClusterEntry::JobOver { .. } | ClusterEntry::Committed { parked: Some(_), .. } => {
                self.ended_well = false;
            }
            _ => {}
        }
        if self.trace {
            let text: String = format!("{entry:?}").chars().take(200).collect();
            eprintln!("{:>7} log: {text}", self.now / MILLI);
        }
        match entry {
            ClusterEntry::Running { .. } => {
                self.last_run = Some((self.committed.clone(), self.last_checkpoint));
            }
            ClusterEntry::EpochBegun { epoch, cause, checkpoint, .. } => {
                self.last_checkpoint = *checkpoint;
                if let (Some(number), Some((before, start))) = (checkpoint, &self.last_run) {
                    self.superseded |= before.contains(number) && Some(*number) > *start;
                }
                assert!(!self.expected.contains_key(epoch), "epoch {epoch} begun twice");
                self.expected.insert(*epoch, BTreeSet::new());
                match cause {
                    Cause::Run | Cause::Restart => {}
                    Cause::Leave { .. } => self.outcome.leaves += 1,
                    Cause::Join { .. } => self.outcome.joins += 1,
                    Cause::Drain { .. } => self.outcome.drains += 1,
                    Cause::Address { .. } => {
                        self.outcome.rollbacks += 1;
                        self.outcome.addresses += 1;
                    }
                    _ => self.outcome.rollbacks += 1,
                }
                if let (true, Some(number)) = (cause.is_move(), checkpoint) {
                    self.judge_move(*epoch, *number);
                }
            }
            ClusterEntry::Instances { instances, .. } => {
                let drained = self.drained();
                for record in instances.values() {
                    assert!(!drained.contains(&record.node), "{} is drained", record.node);
                }
                for all in self.expected.values() {
                    for number in instances.keys() {
                        assert!(!all.contains(number), "number {} used twice", number.0);
                    }
                }
                if let Some(mut last) = self.expected.last_entry() {
                    last.get_mut().extend(instances.keys().copied());
                }
            }
            ClusterEntry::InstanceEnded { instance, .. } => {
                if let Some(mut last) = self.expected.last_entry() {
                    last.get_mut().remove(instance);
                }
            }
            ClusterEntry::Committed { record, images, .. } => {
                self.outcome.commits += 1;
                self.committed.insert(record.checkpoint);
                for (instance, image) in images {
                    let name = (record.job.clone(), *instance, record.checkpoint);
                    for holder in &image.holders {
                        let node = &self.nodes[self.index(holder)];
                        assert!(node.disk.contains_key(&name), "{holder} does not hold {name:?}");
                    }
                    assert_eq!(record.degraded, record.copies < self.copies);
                    assert!(image.holders.len() >= record.copies as usize);
                }
                // One cut through all of them.
                let counters: BTreeSet<u64> = images
                    .iter()
                    .map(|(instance, image)| {
                        let name = (record.job.clone(), *instance, record.checkpoint);
                        let node = &self.nodes[self.index(&image.node)];
                        node.disk[&name].state.counter
                    })
                    .collect();
                assert!(counters.len() <= 1, "no consistent cut: {counters:?}");
            }
            ClusterEntry::JobOver { status: Some(status), .. } => {
                assert_eq!(self.over, None, "ended twice");
                self.over = Some(*status);
                self.outcome.ended_at_ms = self.now / MILLI;
            }
            _ => {}
        }
    }

    /// A job that goes on elsewhere has not done a thing since its checkpoint.
    pub(super) fn judge_move(&self, epoch: u64, checkpoint: u64) {
        let image =
            self.nodes.iter().flat_map(|node| &node.disk).find(|(name, _)| name.2 == checkpoint);
        let Some((_, image)) = image else { return };
        for instance in self.nodes.iter().flat_map(|node| node.instances.values()) {
            assert!(
                instance.key.epoch + 1 != epoch || instance.app.counter == image.state.counter,
                "{} was at {} when it was moved, its image at {}",
                instance.key,
                instance.app.counter,
                image.state.counter
            );
        }
    }

    /// Whether the log says that this epoch runs. Before that, a coordinator that is started again makes it once more.
    pub(super) fn is_known_to_run(&self, epoch: u64) -> bool {
        let runs = |entry: &ClusterEntry| matches!(entry, ClusterEntry::Running { epoch: of, .. } if *of == epoch);
        self.log.iter().rev().any(runs)
    }

    /// Whether a node is about to go, as the coordinator knows: its user may have asked for that.
    pub(super) fn is_told_to_go(&self, name: &NodeName) -> bool {
        let last = self.log.iter().rev().find_map(|entry| match entry {
            ClusterEntry::NodeLeaves { node, leaves } if node == name => Some(*leaves),
            ClusterEntry::NodeGone { node, .. } if node == name => Some(false),
            _ => None,
        });
        last.unwrap_or(false)
    }

    /// The newest committed checkpoint, unless the job runs from an older one: then it has been given up.
    fn newest_needed(&self) -> Option<(&CommitRecord, &BTreeMap<InstanceId, ImageRecord>)> {
        let (mut newest, mut from) = (None, None);
        for entry in &self.log {
            match entry {
                ClusterEntry::Committed { record, images, .. } => newest = Some((record, images)),
                ClusterEntry::EpochBegun { checkpoint, .. } => from = *checkpoint,
                ClusterEntry::Running { .. } => {
                    newest = newest.filter(|(record, _)| Some(record.checkpoint) <= from);
                }
                _ => {}
            }
        }
        newest
    }

    /// What goes with a node is nowhere else needed. Whether others stay.
    pub(super) fn judge_farewell(&self, leaver: usize) -> bool {
        let committed = self.newest_needed();
        let epoch = self.expected.keys().next_back();
        let node = &self.nodes[leaver];
        // What has ended by itself may go with its machine.
        let alive = node.instances.values().filter(|one| one.life != Life::Ended);
        let of_epoch = alive.map(|one| &one.key).find(|key| Some(&key.epoch) == epoch);
        assert!(self.over.is_some() || of_epoch.is_none(), "{} lets {of_epoch:?} go", node.name);
        let stays = |index: usize, other: &Machine| {
            index != leaver
                && other.welcomed
                && !other.leaves
                && !self.is_told_to_go(&other.name)
                && other.welcomed_at + 500 * MILLI < self.now
        };
        let others = self.nodes.iter().enumerate().filter(|(index, other)| stays(*index, other));
        if others.count() == 0 {
            return false;
        }
        // What has ended by itself goes back nowhere, also before its end is in the log.
        let mut instances = self.nodes.iter().flat_map(|node| node.instances.values());
        let is_over = self.over.is_some()
            || instances.any(|instance| instance.app.root && instance.ended.is_some());
        let Some((record, images)) = committed.filter(|_| !is_over) else { return true };
        for instance in images.keys() {
            let name = (record.job.clone(), *instance, record.checkpoint);
            let elsewhere = self.nodes.iter().enumerate();
            let held = elsewhere
                .filter(|(index, other)| *index != leaver && other.disk.contains_key(&name));
            assert!(
                !node.disk.contains_key(&name) || held.count() > 0,
                "{name:?} goes with {}",
                node.name
            );
        }
        true
    }

    pub(super) fn judge_alone(&mut self, epoch: u64) {
        self.keep_leases();
        for node in &self.nodes {
            for instance in node.instances.values() {
                let runs = instance.goes() && node.up;
                assert!(
                    !runs || instance.key.epoch == epoch,
                    "{} still runs when epoch {epoch} is let go",
                    instance.key
                );
            }
        }
    }

    pub(super) fn judge_go(&mut self, key: &InstanceKey, links: &[RelayLink]) {
        self.judge_alone(key.epoch);
        // The other side of new output is made at the same moment.
        for link in links.iter().filter(|link| !link.side.relay.ends_with("#pipe")) {
            let there = &self.nodes[self.index(&link.node)];
            if let Some(peer) = there.instances.get(&link.peer) {
                let other = 1 - link.side.side;
                let found = peer
                    .app
                    .relays
                    .iter()
                    .any(|side| side.relay == link.side.relay && side.side == other);
                assert!(found, "{} has no other side of {:?}", link.peer, link.side);
            }
        }
    }

    pub(super) fn judge_keep(&self, images: &BTreeMap<InstanceId, Vec<u64>>) {
        let committed = self.log.iter().rev().find_map(|entry| match entry {
            ClusterEntry::Committed { record, images, .. } => Some((record, images)),
            _ => None,
        });
        let Some((record, committed)) = committed else { return };
        let newest = images.values().flatten().max().copied().unwrap_or(0);
        if newest < record.checkpoint {
            // An older order that was long on its way: it spares what is newer.
            return;
        }
        for instance in committed.keys() {
            assert!(
                images.get(instance).is_some_and(|kept| kept.contains(&record.checkpoint)),
                "the newest checkpoint {} is not kept",
                record.checkpoint
            );
        }
    }

    /// Whether both ends of every remote shell have been told of each other.
    pub(super) fn is_wired(&self, members: &[(usize, InstanceKey)]) -> bool {
        let mut sides: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, key) in members {
            let instance = &self.nodes[*index].instances[key];
            let leads = |side: &&RelaySide| !instance.silent.contains(*side);
            for side in instance.app.relays.iter().filter(leads) {
                if !instance.links.contains_key(side) {
                    return false;
                }
                *sides.entry(&side.relay).or_default() += 1;
            }
        }
        sides.values().all(|ends| *ends == 2)
    }

    /// Whether all have the addresses over which they are connected. Who is alone has no connections.
    pub(super) fn is_connected(&mut self, members: &[(usize, InstanceKey)]) -> bool {
        let alone = members.iter().all(|(index, _)| *index == members[0].0);
        members.iter().all(|(index, key)| {
            let node = &mut self.nodes[*index];
            let instance = node.instances.get_mut(key).unwrap();
            if alone {
                instance.connected = node.moves;
            }
            instance.connected == node.moves
        })
    }

    pub(super) fn judge_end(&mut self) {
        self.judge_peers();
        let expected = ExitKind::Exited(self.status);
        let over = self.over;
        assert_eq!(over, Some(expected), "{}", self.describe());
        if self.superseded {
            self.outcome.superseded = 1;
            return;
        }
        let log = self.job_logs.values().next().cloned().unwrap_or_default();
        let text = String::from_utf8(log).unwrap();
        let lacks = text.contains("bytes of output are not in this log");
        let lines: Vec<&str> =
            text.lines().filter(|line| !line.is_empty() && !line.starts_with("[ckptd")).collect();
        let wanted: Vec<String> =
            (1..=self.target).map(|number| format!("line {number}")).collect();
        if lacks {
            self.outcome.lacking = 1;
            let mut rest = wanted.iter();
            // A line may have lost its beginning.
            let known = |line: &&&str| rest.any(|wanted| wanted.ends_with(**line));
            let found = lines.iter().filter(known).count();
            assert_eq!(found, lines.len(), "the output is not a part of what it should be; {text}");
            return;
        }
        assert_eq!(lines, wanted, "the output is not what it should be; {text}");
        if self.outcome.restarts == 0 {
            self.judge_shown();
        }
        if self.calm {
            let wanted: String =
                (1..=self.target).map(|number| format!("line {number}\n")).collect();
            let seen = String::from_utf8_lossy(&self.seen);
            assert_eq!(seen, wanted, "what was shown is not what was written");
        }
    }

    /// The client who came again after each loss has missed nothing, and was shown nothing twice but what was
    /// written twice, after a rollback.
    pub(super) fn judge_shown(&self) {
        let seen = String::from_utf8_lossy(&self.seen);
        let (mut last, mut back) = (0, 0);
        for line in seen.lines() {
            let number = line.strip_prefix("line ").and_then(|line| line.parse::<u64>().ok());
            let Some(number) = number else { panic!("'{line}' was shown:\n{seen}") };
            assert!(
                number <= last + 1,
                "{last} is followed by {number} in what was shown:\n{seen}"
            );
            back += usize::from(number != last + 1);
            last = number;
        }
        let begun = |entry: &&ClusterEntry| matches!(entry, ClusterEntry::EpochBegun { .. });
        let epochs = self.log.iter().filter(begun).count();
        assert!(back < epochs.max(1), "shown again {back} times in {epochs} epochs:\n{seen}");
    }
}
