//! The coordinator: its machine is fed and obeyed, killed and started again, lost with its computer and followed by
//! another one that has a copy of its log.

use super::{Happening, MILLI, PEACE, World};
use crate::machine::Copy;
use base64::Engine;
use ckpt_node::Event;
use coordinator::cluster::{
    ClusterAction, ClusterEntry, ClusterEvent, ClusterMachine, say_the_same, shorten,
};
use protocol::cluster::agent::{FromAgent, InstanceReport, ToAgent};
use protocol::cluster::client::Answer;
use std::collections::{BTreeSet, VecDeque};

impl World {
    pub(super) fn feed(&mut self, event: ClusterEvent) {
        if self.stalled_coordinator {
            self.inbox.push_back(event);
            return;
        }
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let now = self.time();
            if !self.is_current(&event) {
                continue;
            }
            let Some(machine) = &mut self.machine else { return };
            if self.trace {
                if let ClusterEvent::Agent { node, message, .. } = &event {
                    let often = matches!(
                        message,
                        FromAgent::Heartbeat { .. }
                            | FromAgent::Instance { report: InstanceReport::Console { .. }, .. }
                    );
                    if !often {
                        let text = format!("{message:?}");
                        let text: String = text.chars().take(160).collect();
                        eprintln!("{:>7} <- {node}: {text}", self.now / MILLI);
                    }
                }
            }
            for action in machine.step(now, event) {
                // Killed at any instant: between any two actions.
                let dies = self.now < PEACE && !self.calm;
                if dies && self.random.chance(1) && self.random.chance(200) {
                    self.crash_coordinator();
                    return;
                }
                self.act(action, &mut events);
                if self.machine.is_none() {
                    return;
                }
            }
        }
        let Some(machine) = &self.machine else { return };
        if let Some(deadline) = machine.deadline() {
            let at = deadline.max(self.now + 1);
            if self.clock_at.is_none_or(|known| known > at) {
                self.clock_at = Some(at);
                self.at(at, Happening::Clock);
            }
        }
    }

    /// Whether an event is of a connection that was not replaced: the driver drops others.
    fn is_current(&mut self, event: &ClusterEvent) -> bool {
        match event {
            ClusterEvent::Agent { node, connection, .. } => {
                let newest = self.links.entry(node.clone()).or_insert(*connection);
                *newest = (*newest).max(*connection);
                *newest == *connection
            }
            ClusterEvent::Disconnected { node, connection } => {
                let current = self.links.get(node) == Some(connection);
                if current {
                    self.links.remove(node);
                }
                current
            }
            _ => true,
        }
    }

    pub(super) fn act(&mut self, action: ClusterAction, events: &mut VecDeque<ClusterEvent>) {
        match action {
            ClusterAction::Send { node, message, body } => {
                if matches!(message, ToAgent::ConsoleKept { .. }) {
                    // Held back until all copies have it.
                    for holder in self.log_holders() {
                        self.copy_to(holder, true);
                    }
                }
                let link = self.links.get(&node).copied();
                let node = self.index(&node);
                if let Some(connection) = link {
                    let delay = self.random.millis(0, 20);
                    let when = (self.now + delay).max(self.last_to_node[node] + 1);
                    self.last_to_node[node] = when;
                    self.at(when, Happening::ToNode { node, connection, message, body });
                }
            }
            ClusterAction::Broadcast { message, except } => {
                let others =
                    self.machine.as_ref().map_or_else(Vec::new, |machine| machine.connected());
                for node in others.into_iter().filter(|node| Some(node) != except.as_ref()) {
                    let (message, body) = (message.clone(), Vec::new());
                    self.act(ClusterAction::Send { node, message, body }, events);
                }
            }
            ClusterAction::Disconnect { node } => {
                let link = self.links.remove(&node);
                let node = self.index(&node);
                // The agent sees it when it can.
                if let Some(connection) =
                    self.nodes[node].connection.take_if(|own| Some(*own) == link)
                {
                    self.nodes[node].welcomed = false;
                    self.step(node, Event::Disconnected { connection });
                    self.later(100, 500, Happening::Reconnect { node });
                }
            }
            ClusterAction::Revoke { .. }
            | ClusterAction::NameStandby { .. }
            | ClusterAction::Audit { .. }
            | ClusterAction::ShowAudit { .. }
            | ClusterAction::RemoveJob { .. } => {}
            ClusterAction::Close { .. } | ClusterAction::LogSince { .. } => {}
            ClusterAction::Replay { client, job, pieces, .. } => {
                for piece in pieces {
                    let range = usize::try_from(piece.start).unwrap()
                        ..usize::try_from(piece.end.length).unwrap();
                    let bytes = &self.job_logs[&job][range];
                    let bytes = base64::engine::general_purpose::STANDARD.encode(bytes);
                    let answer = Answer::Output { stream: piece.stream, bytes, at: piece.end };
                    if client.number == self.client {
                        self.answered(answer);
                    }
                }
            }
            ClusterAction::Answer { client, answer } => {
                if client.number == self.client {
                    self.answered(answer);
                } else {
                    self.drain_answered(client.number, &answer);
                }
            }
            ClusterAction::Append { number, entry } => {
                if self.log_works {
                    self.judge_entry(&entry);
                    let waits = entry.waits_for_copy();
                    self.log.push(entry);
                    self.copy(waits);
                    events.push_back(ClusterEvent::Recorded { number });
                } else if entry.is_vital() {
                    self.crash_coordinator();
                } else {
                    let reason = "no room".to_owned();
                    events.push_back(ClusterEvent::RecordFailed { number, reason });
                }
            }
            ClusterAction::Log { job, bytes, .. } => {
                self.job_logs.entry(job).or_default().extend(bytes);
            }
            ClusterAction::CutLog { job, length, .. } => {
                let length = usize::try_from(length).unwrap();
                let log = self.job_logs.entry(job).or_default();
                assert!(log.len() >= length, "the log is shorter than it was at the checkpoint");
                log.truncate(length);
                for holder in self.log_holders() {
                    if let Some(copy) = &mut self.nodes[holder].copy {
                        copy.cut(length);
                    }
                }
            }
            ClusterAction::Superseded { .. } => panic!("there is no other coordinator"),
        }
    }

    pub(super) fn crash_coordinator(&mut self) {
        if self.machine.take().is_none() {
            return;
        }
        if self.trace {
            eprintln!("{:>7} the coordinator is killed", self.now / MILLI);
        }
        self.outcome.recoveries += 1;
        self.clock_at = None;
        self.inbox.clear();
        self.links.clear();
        self.stalled_coordinator = false;
        self.waiting_client = false;
        self.client += 1;
        for node in 0..self.nodes.len() {
            self.nodes[node].welcomed = false;
            if let Some(connection) = self.nodes[node].connection.take() {
                self.step(node, Event::Disconnected { connection });
            }
            // One whose number the log could not take is not known to the next coordinator.
            self.nodes[node].given_up.clear();
            self.held_back[node].clear();
            self.later(10, 300, Happening::Reconnect { node });
        }
        // Whatever was on its way is lost.
        self.lose(|happening| {
            matches!(
                happening,
                Happening::ToCoordinator { .. }
                    | Happening::ToNode { .. }
                    | Happening::Disconnected { .. }
            )
        });
        self.later(20, 6000, Happening::CoordinatorStarts);
    }

    /// Nodes that keep copies, and can be reached.
    pub(super) fn log_holders(&self) -> Vec<usize> {
        let Some(machine) = &self.machine else { return Vec::new() };
        let holders = machine.log_holders(|_| true);
        let there = |index: &usize| {
            let node = &self.nodes[*index];
            let reached = node.up && node.agent.is_some() && node.welcomed && !self.cut[*index];
            reached && holders.contains(&node.name)
        };
        (0..self.nodes.len()).filter(there).collect()
    }

    /// Copies get what was appended: one of them before anything else happens, if it `waits`; the
    /// others later, or not any more.
    pub(super) fn copy(&mut self, waits: bool) {
        let holders = self.log_holders();
        let first = if holders.is_empty() { 0 } else { self.random.below(holders.len() as u64) };
        for (index, holder) in holders.iter().enumerate() {
            if waits && index as u64 == first {
                self.copy_to(*holder, true);
                self.copied = self.log.len();
            } else if self.random.chance(500) {
                // Output comes behind the log.
                let output = self.random.chance(500);
                self.copy_to(*holder, output);
            }
        }
    }

    pub(super) fn copy_to(&mut self, holder: usize, output: bool) {
        let node = &mut self.nodes[holder];
        let copy = node.copy.get_or_insert_with(Copy::default);
        copy.log.clone_from(&self.log);
        if output {
            copy.output.clone_from(&self.job_logs);
        } else {
            copy.shorten(&self.job_logs);
        }
    }

    /// The coordinator's machine is lost for ever; what was on its way may still arrive, or not.
    pub(super) fn lose_coordinator(&mut self) {
        if self.machine.is_none() || self.nodes.iter().all(|node| node.copy.is_none()) {
            return;
        }
        // Machines have forgotten what has ended: where nobody could keep a copy that says so, nobody can carry on.
        let forgotten = |entry: &ClusterEntry| {
            matches!(entry, ClusterEntry::JobOver { .. } | ClusterEntry::InstanceEnded { .. })
        };
        if self.log[self.copied.min(self.log.len())..].iter().any(forgotten) {
            return;
        }
        self.crash_coordinator();
        if self.trace {
            eprintln!("{:>7} and its machine is lost", self.now / MILLI);
        }
        self.outcome.lost += 1;
        self.machine_lost = true;
        self.later(50, 6000, Happening::TakeOver);
    }

    /// Somebody carries on from the newest copy that can be reached, once that has all that anybody was
    /// told of.
    pub(super) fn take_over(&mut self) {
        if !self.machine_lost {
            return;
        }
        let copies = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(index, node)| node.up && !self.cut[*index] && node.copy.is_some());
        let extent =
            |copy: &Copy| (copy.log.len(), copy.output.values().map(Vec::len).sum::<usize>());
        let newest = copies.max_by_key(|(_, node)| node.copy.as_ref().map(extent));
        let Some((index, copy)) =
            newest.and_then(|(index, node)| Some((index, node.copy.clone()?)))
        else {
            return self.later(100, 1000, Happening::TakeOver);
        };
        if copy.log.len() < self.copied {
            return self.later(100, 1000, Happening::TakeOver);
        }
        let term = self.nodes.iter().map(|node| node.followed.term).max().unwrap_or(1).max(1) + 1;
        if self.trace {
            let (had, lost) = (copy.log.len(), self.log.len() - copy.log.len());
            let from = &self.nodes[index].name;
            eprintln!(
                "{:>7} term {term} from {from}: {had} entries, {lost} lost",
                self.now / MILLI
            );
        }
        self.machine_lost = false;
        // Another machine's clock.
        self.wall = 900_000 + self.random.below(200_000);
        self.job_logs = copy.output;
        self.log = copy.log;
        self.relearn();
        let (from, at_ms) = (self.nodes[index].name.clone(), self.now / MILLI);
        let claim = format!("{term}");
        self.log.push(ClusterEntry::TermBegun { term, claim, from, lost: Vec::new(), at_ms });
        self.recover();
    }

    /// What was never in a copy never was.
    pub(super) fn relearn(&mut self) {
        self.expected.clear();
        self.committed.clear();
        self.over = None;
        (self.last_run, self.last_checkpoint) = (None, None);
        for entry in &self.log {
            match entry {
                ClusterEntry::Running { .. } => {
                    self.last_run = Some((self.committed.clone(), self.last_checkpoint));
                }
                ClusterEntry::EpochBegun { epoch, checkpoint, .. } => {
                    self.last_checkpoint = *checkpoint;
                    self.expected.insert(*epoch, BTreeSet::new());
                }
                ClusterEntry::Instances { instances, .. } => {
                    if let Some(mut last) = self.expected.last_entry() {
                        last.get_mut().extend(instances.keys().copied());
                    }
                }
                ClusterEntry::InstanceEnded { instance, .. } => {
                    if let Some(mut last) = self.expected.last_entry() {
                        last.get_mut().remove(instance);
                    }
                }
                ClusterEntry::Committed { record, .. } => {
                    self.committed.insert(record.checkpoint);
                }
                ClusterEntry::JobOver { status: Some(status), .. } => self.over = Some(*status),
                _ => {}
            }
        }
    }

    pub(super) fn recover(&mut self) {
        if self.machine.is_some() {
            return;
        }
        self.not_restored = None;
        let lengths =
            self.job_logs.iter().map(|(job, log)| (job.clone(), log.len() as u64)).collect();
        // Its way through the disk and back is a part of what has to work.
        let entries: Vec<ClusterEntry> = self
            .log
            .iter()
            .map(|entry| serde_json::from_str(&serde_json::to_string(entry).unwrap()).unwrap())
            .collect();
        let entries = self.shortened(entries);
        let machine = ClusterMachine::recover(
            self.settings.clone(),
            Self::secrets(self.seed ^ self.now),
            self.time(),
            entries,
            &lengths,
        );
        self.machine = Some(machine.unwrap());
        self.feed(ClusterEvent::Clock);
    }

    /// The log as it is where it was made shorter at some moment, and perhaps once more since; sometimes it never was.
    fn shortened(&self, log: Vec<ClusterEntry>) -> Vec<ClusterEntry> {
        let chance = (self.seed ^ self.now).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        if chance & 3 == 0 || log.is_empty() {
            return log;
        }
        let cut = (chance >> 8) as usize % log.len();
        let mut shorter = self.shorter(&log[..=cut]);
        shorter.extend_from_slice(&log[cut + 1..]);
        if chance & 3 == 1 {
            shorter = self.shorter(&shorter);
        }
        assert!(say_the_same(self.time(), &log, &shorter).unwrap(), "cut at {cut}: {log:#?}");
        shorter
    }

    fn shorter(&self, log: &[ClusterEntry]) -> Vec<ClusterEntry> {
        let text = |entry: &ClusterEntry| serde_json::to_string(entry).unwrap();
        let made = shorten(self.time(), log).unwrap();
        made.iter().map(|entry| serde_json::from_str(&text(entry)).unwrap()).collect()
    }
}
