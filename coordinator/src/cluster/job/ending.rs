//! How a job ends; or seems to.

use super::running::HeldEnd;
use super::{Job, State};
use crate::cluster::entry::ClusterEntry;
use crate::cluster::event::Now;
use crate::cluster::shared::Shared;
use crate::cluster::text;
use crate::event::{Event, Outcome};
use crate::history::Entry;
use protocol::agent::{AgentEvent, ExitKind, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::client::Answer;

/// SIGKILL on every architecture of Linux (signal(7)).
const SIGKILL: i32 = 9;

impl Job {
    /// The job's first process ended.
    pub(in crate::cluster) fn root_ended(
        &mut self,
        now: Now,
        shared: &mut Shared,
        status: ExitKind,
    ) {
        if self.live.root_end.is_none() {
            self.live.root_end = Some(status);
            self.weigh_end(now, shared, status);
        }
    }

    /// Killed processes send FIN and RST at once, and an MPI run time gives up long before a grace
    /// is over, or ends with 0, as prterun does that has lost a daemon. So an end counts only once every other machine that
    /// has an instance left was heard after it.
    pub(in crate::cluster) fn weigh_end(
        &mut self,
        now: Now,
        shared: &mut Shared,
        status: ExitKind,
    ) {
        self.hold_while_needed();
        let mut awaited = self.nodes();
        if let Some(root) = self.root_node() {
            // What it says comes in order: it was heard just now.
            awaited.remove(&root);
        }
        // While others are still being let go, it waits until all of them run.
        let State::Running(running) = &mut self.state else { return };
        if awaited.is_empty() || running.machine.is_ending() {
            self.end_with(now, shared, status);
        } else {
            let unheard: Vec<&str> = awaited
                .iter()
                .filter(|node| !shared.members.is_connected(node))
                .map(NodeName::as_str)
                .collect();
            let line = (!unheard.is_empty()).then(|| {
                let (how, who) = (text::ended(status), unheard.join(", "));
                format!(
                    "the job ended {how} while {who} can't be heard: it goes back to its last checkpoint \
                     if that stays so"
                )
            });
            running.held = Some(HeldEnd { since: now.nanos, awaited });
            if let Some(line) = line {
                self.console.say(shared, &line);
            }
        }
    }

    /// The coordinator itself has found that the job has come to its end: every instance has said so of itself.
    pub(in crate::cluster) fn came_to_rest(&mut self, now: Now, shared: &mut Shared) {
        let status = ExitKind::Exited(0);
        self.live.root_end = Some(status);
        self.hold_while_needed();
        self.end_with(now, shared, status);
    }

    /// Whether the job's first process has ended with success.
    pub(in crate::cluster) fn has_succeeded(&self) -> bool {
        let early = self.live.early_end.map(|end| end.status);
        self.live.root_end.or(early) == Some(ExitKind::Exited(0))
    }

    /// Whether the job has come to a good end in spite of what this instance has lost or was: all its output is there, if
    /// that came from here, or its machine was heard after that end.
    pub(in crate::cluster) fn has_succeeded_without(&self, instance: InstanceId) -> bool {
        let State::Running(running) = &self.state else { return false };
        let heard = |held: &HeldEnd| {
            self.live.node(instance).is_none_or(|node| !held.awaited.contains(node))
        };
        self.live.root_end == Some(ExitKind::Exited(0))
            && (self.ledger.root() == Some(instance) || running.held.as_ref().is_none_or(heard))
    }

    /// Some instances have ended, or a machine has gone without one: nobody waits for machines that have none left. Of an end
    /// that is no success each of them must be heard all the same, as long as it is there.
    pub(in crate::cluster) fn await_no_more(
        &mut self,
        now: Now,
        shared: &mut Shared,
        gone: Option<&NodeName>,
    ) {
        let succeeded = self.has_succeeded();
        let instances = &self.ledger.instances;
        if let Some(held) = self.state.held_end() {
            held.awaited.retain(|node| Some(node) != gone && (!succeeded || instances.is_on(node)));
            self.release_end(now, shared);
        }
    }

    fn end_with(&mut self, now: Now, shared: &mut Shared, status: ExitKind) {
        // Agents tell, with its images, who has the first process; where none does, no end is its.
        let Some(agent) = self.ledger.root() else { return };
        if let State::Running(running) = &mut self.state {
            running.held = None;
        }
        self.feed(now, shared, Event::Agent { agent, event: AgentEvent::Ended { status } });
    }

    /// A machine's heartbeat came that was sent after this time. When it came says nothing: what a cut network has kept
    /// comes long after its machine is gone.
    pub(in crate::cluster) fn heard(
        &mut self,
        now: Now,
        shared: &mut Shared,
        node: &NodeName,
        sent_after: u64,
    ) {
        if let Some(end) = self.live.early_end.filter(|end| !end.comes_again) {
            let later = sent_after >= end.since;
            if later && self.root_node().as_ref() == Some(node) {
                self.live.early_end = None;
                self.root_ended(now, shared, end.status);
            }
        }
        // Heartbeats come whatever the job does; only an end that is held waits for them.
        if let Some(held) = self.state.held_end() {
            if sent_after >= held.since {
                held.awaited.remove(node);
            }
            self.release_end(now, shared);
        }
    }

    /// Lets a held end count, if nothing speaks against it any more.
    pub(in crate::cluster) fn release_end(&mut self, now: Now, shared: &mut Shared) {
        let is_free = match &self.state {
            State::Running(running) => running.lets_end_count(),
            State::Making(_) | State::Over => false,
        };
        if let Some(status) = self.live.root_end.filter(|_| is_free) {
            self.end_with(now, shared, status);
        }
    }

    /// The one-job machine says that it is over.
    pub(in crate::cluster) fn finish(&mut self, now: Now, shared: &mut Shared, outcome: Outcome) {
        match outcome {
            Outcome::Ended { status, .. } => self.over(now, shared, status),
            Outcome::Lost { reason } => self.give_up(now, shared, &reason),
        }
    }

    /// The job is over.
    pub(in crate::cluster) fn over(&mut self, now: Now, shared: &mut Shared, status: ExitKind) {
        let checkpoint = self.ledger.history.newest().map(|record| record.checkpoint);
        self.come_to_rest(now, shared, Some(status), None);
        self.console.end(shared, &Answer::Ended { status, checkpoint });
        self.tickets.fail_all(shared, "reach the job: it has ended");
    }

    /// The job can't go on by itself.
    pub(in crate::cluster) fn give_up(&mut self, now: Now, shared: &mut Shared, reason: &str) {
        let newest = self.ledger.history.newest().map(|record| record.checkpoint);
        let way_out = match newest {
            Some(checkpoint) => format!(
                "; 'ckptd restart {}' goes on from checkpoint {checkpoint}",
                self.ledger.name
            ),
            None => String::new(),
        };
        let line = format!("keep {} running: {reason}{way_out}", self.ledger.name);
        if self.ledger.history.end().is_none() {
            let entry = Entry::Ended { at_ms: now.unix_ms, status: None, asked: false };
            self.record(shared, ClusterEntry::Job { job: self.ledger.id.clone(), entry });
        }
        self.mark(shared, &format!("failed to {line}"));
        self.come_to_rest(now, shared, None, Some(reason.to_owned()));
        self.console.fail(shared, &line);
        self.tickets.fail_all(shared, &line);
    }

    /// Ends a job that nobody wants any more, whatever is being done with it.
    pub(in crate::cluster) fn kill_all(&mut self, now: Now, shared: &mut Shared) {
        let status = ExitKind::Signalled(SIGKILL);
        let entry = Entry::Ended { at_ms: now.unix_ms, status: Some(status), asked: true };
        self.record(shared, ClusterEntry::Job { job: self.ledger.id.clone(), entry });
        let checkpoint = self.ledger.history.newest().map(|record| record.checkpoint);
        self.tickets.answer_all(shared, &Answer::Ended { status, checkpoint });
        self.over(now, shared, status);
    }

    fn come_to_rest(
        &mut self,
        now: Now,
        shared: &mut Shared,
        status: Option<ExitKind>,
        reason: Option<String>,
    ) {
        let nodes = self.nodes();
        self.nodes_with_stale_instances.extend(nodes);
        self.nodes_with_stale_instances.append(&mut self.live.given_up_on);
        let epoch = self.ledger.epoch;
        let job = self.ledger.id.clone();
        let at_ms = now.unix_ms;
        let length = Some(self.console.length());
        self.record(shared, ClusterEntry::JobOver { job, epoch, status, reason, length, at_ms });
        shared.occupied.remove(&self.ledger.id);
        self.state = State::Over;
        self.ahead = None;
        self.live = super::Live::default();
        for node in &self.nodes_with_stale_instances {
            self.kill_below(shared, node, epoch.saturating_add(1));
        }
    }
}
