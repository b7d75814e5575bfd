//! Steps of a checkpoint that go by the command tree: for jobs on many nodes, where one connection after the
//! other would take its time while the job stands still.
//!
//! One that the tree fails is taken again by the coordinator's own connections, and after that the tree has to
//! wait: the longer, the more often it failed.

use super::ClusterMachine;
use super::event::Now;
use super::job::tree_use::TreeUse;
use super::job::{Job, State};
use super::shared::Shared;
use command_tree::{Outcome, Wish};
use protocol::agent::{AgentCommand, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::agent::ToAgent;
use protocol::cluster::tree::{TreeAnswer, TreeCause, TreePlace, TreeStep};
use std::collections::BTreeMap;

impl ClusterMachine {
    pub(super) fn tree_answered(&mut self, now: Now, node: &NodeName, answer: TreeAnswer) {
        let outcome = self.shared.tree.answered(node, answer);
        self.tree_came_out(now, outcome);
    }

    /// A node can't be reached.
    pub(super) fn tree_lost(&mut self, now: Now, node: &NodeName) {
        let outcomes = self.shared.tree.lost(node);
        self.tree_came_out(now, outcomes);
    }

    pub(super) fn pass_tree_time(&mut self, now: Now) {
        let outcomes = self.shared.tree.pass_time(now.nanos);
        self.tree_came_out(now, outcomes);
    }

    fn tree_came_out(&mut self, now: Now, outcomes: impl IntoIterator<Item = Outcome>) {
        for outcome in outcomes {
            if let Some(job) = self.jobs.get_mut(&outcome.order.job) {
                if job.ledger.epoch == outcome.order.epoch {
                    job.tree_came_out(now, &mut self.shared, outcome);
                }
            }
        }
    }
}

impl Job {
    /// Whether the instances were told by the tree.
    pub(super) fn tell_by_tree(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instances: &[InstanceId],
        command: &AgentCommand,
    ) -> bool {
        let Some((step, checkpoint)) = TreeStep::of(command) else { return false };
        let State::Running(running) = &self.state else { return false };
        let TreeUse { last, pause, .. } = running.tree;
        // What is said a second time goes to one that has missed it.
        if pause > 0 || last == Some((checkpoint, step)) {
            return false;
        }
        let mut places: BTreeMap<&NodeName, Vec<InstanceId>> = BTreeMap::new();
        for instance in instances {
            match self.live.node(*instance) {
                Some(node) if shared.members.is_connected(node) => {
                    places.entry(node).or_default().push(*instance);
                }
                _ => return false,
            }
        }
        if places.len() <= shared.settings.tree_above as usize {
            return false;
        }
        let places: Vec<TreePlace> = places
            .into_iter()
            .map(|(node, instances)| TreePlace { node: node.clone(), instances })
            .collect();
        let job = self.ledger.id.clone();
        let epoch = self.ledger.epoch;
        let limit_ms = running.machine.limit(step.step()) / 1_000_000 * 3 / 4;
        if !shared.ready_tree(now, &job, &places) {
            return false;
        }
        let wish = Wish { job, epoch, checkpoint, step };
        let Some(call) = shared.tree.begin(now.nanos, wish, places, limit_ms) else {
            return false;
        };
        if let Some(first) = call.places.first().map(|place| place.node.clone()) {
            // One that has begun anew does not know the generation.
            shared.send(&first, ToAgent::TreeReset(shared.tree.mark()));
            shared.send(&first, ToAgent::Tree(Box::new(call)));
        }
        if let State::Running(running) = &mut self.state {
            running.tree.last = Some((checkpoint, step));
        }
        true
    }

    fn tree_came_out(&mut self, now: Now, shared: &mut Shared, outcome: Outcome) {
        // The job may have ended while the step was under way.
        let State::Running(running) = &mut self.state else { return };
        let (step, checkpoint) = (outcome.order.step.step(), outcome.order.checkpoint);
        let mut text = None;
        let result = outcome.result.map_err(|failure| match failure.cause {
            TreeCause::Step { passing } => (failure.reason, passing),
            TreeCause::Lost => {
                running.tree.failed();
                shared.tree_is_stale = true;
                let reason =
                    format!("the command tree has lost {}: {}", failure.node, failure.reason);
                let flight = running.machine.in_flight(now);
                if flight.is_some_and(|flight| flight.checkpoint == checkpoint) {
                    text = Some(format!(
                        "checkpoint {checkpoint} is taken again without it: {reason}"
                    ));
                }
                (reason, true)
            }
        });
        let actions = running.machine.answered_together(now, checkpoint, step, result);
        if let Some(text) = text {
            self.tell_user(shared, &text);
        }
        self.obey(now, shared, actions);
    }
}

impl Shared {
    /// A node has connected anew. It may have forgotten what it was told: nothing of before is to be told
    /// to it a second time.
    pub(super) fn renew_tree(&mut self, now: Now, node: &NodeName) {
        if self.tree.generation() == 0 {
            return;
        }
        if self.tree.is_idle() {
            self.tree.reset(self.coordinator.term, now.unix_ms);
        }
        self.tree_is_stale = true;
        self.send(node, ToAgent::TreeReset(self.tree.mark()));
    }

    /// Makes the tree ready for an operation of a job on these nodes. False: not now, since operations of
    /// other jobs are under way that would be lost.
    fn ready_tree(&mut self, now: Now, job: &str, places: &[TreePlace]) -> bool {
        self.tree.forget(job);
        if !self.tree_is_stale && self.tree.generation() > 0 {
            return true;
        }
        if !self.tree.is_idle() {
            return false;
        }
        self.tree_is_stale = false;
        let mark = self.tree.reset(self.coordinator.term, now.unix_ms);
        for place in places {
            self.send(&place.node, ToAgent::TreeReset(mark.clone()));
        }
        true
    }
}
