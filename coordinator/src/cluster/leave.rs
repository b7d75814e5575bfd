//! An announced departure: a checkpoint is taken, and the node's processes go on elsewhere from it.

use super::ClusterMachine;
use super::entry::Cause;
use super::event::{ClientId, Now};
use super::job::State;
use super::members::Presence;
use super::rollback::Beginning;
use crate::event::Event;
use crate::settings::SECOND;
use protocol::agent::CheckpointNumber;
use protocol::cluster::NodeName;
use protocol::cluster::agent::{JobUser, ToAgent};
use protocol::cluster::client::Answer;
use std::collections::BTreeMap;

/// From a checkpoint that failed to the next attempt, in nanoseconds.
const PAUSE: u64 = 2 * SECOND;

/// A node that is about to go.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// Who waits for it.
    pub(super) clients: Vec<ClientId>,
    /// Per job, the number that the next checkpoint had when one was asked for.
    asked: BTreeMap<String, CheckpointNumber>,
    /// When the next attempt is to be made.
    pub(super) retry_at: Option<u64>,
}

impl ClusterMachine {
    /// Somebody wants a node to go.
    pub(super) fn leave(
        &mut self,
        now: Now,
        client: &ClientId,
        user: &JobUser,
        node: Option<NodeName>,
    ) {
        let Some(node) = node.or_else(|| client.node.clone()) else {
            self.shared.fail(client, "let a node go: say which");
            return;
        };
        if !self.is_operator(user) {
            let reason = format!("let {node} go: only root and the coordinator's user may");
            self.shared.fail(client, reason);
        } else if !self.shared.members.is_connected(&node) {
            self.shared.fail(client, format!("let {node} go: it is not there"));
        } else if let Some(job) = self.cannot_spare(&node) {
            let reason = format!("let {node} go: no other machine can take its part of {job}");
            self.shared.fail(client, reason);
        } else {
            self.begin_leave(&node);
            if let Some(leaving) = self.leaving.get_mut(&node) {
                leaving.clients.push(client.clone());
            }
            self.go_on_leaving(now);
        }
    }

    /// A node announces that it goes.
    pub(super) fn announces_leave(&mut self, now: Now, node: &NodeName, _reason: &str) {
        self.begin_leave(node);
        self.go_on_leaving(now);
    }

    /// A job with processes on the node that nobody else could take.
    fn cannot_spare(&self, node: &NodeName) -> Option<String> {
        let others = self.shared.members.usable().any(|(other, _)| other != node);
        let job = self.jobs.values().find(|job| !job.is_over() && job.nodes().contains(node));
        job.filter(|_| !others).map(|job| job.ledger.name.clone())
    }

    fn begin_leave(&mut self, node: &NodeName) {
        if let Some(member) = self.shared.members.get_mut(node) {
            member.presence = Presence::Leaving;
            self.leaving.entry(node.clone()).or_default();
        }
    }

    /// Takes the next step of every departure. Called after every event.
    pub(super) fn go_on_leaving(&mut self, now: Now) {
        let nodes: Vec<NodeName> = self.leaving.keys().cloned().collect();
        for node in nodes {
            let Some(mut leaving) = self.leaving.remove(&node) else { continue };
            if self.move_away(now, &node, &mut leaving) {
                self.shared.send(&node, ToAgent::Farewell);
                let text = Some(format!("{node} is free to go"));
                for client in leaving.clients {
                    self.shared.answer_last(&client, Answer::Done { text: text.clone() });
                }
            } else {
                self.leaving.insert(node, leaving);
            }
        }
    }

    /// True once nothing of any job is on the node.
    fn move_away(&mut self, now: Now, node: &NodeName, leaving: &mut Leaving) -> bool {
        let mut free = true;
        if leaving.retry_at.is_some_and(|at| now.nanos >= at) {
            leaving.retry_at = None;
        }
        for job in self.jobs.values_mut() {
            let concerned = job.nodes().contains(node) || job.haunted.contains(node);
            if !concerned || (job.is_over() && !job.haunted.contains(node)) {
                continue;
            }
            free = false;
            let State::Running(running) = &job.state else { continue };
            if !job.nodes().contains(node) {
                continue;
            }
            if running.machine.is_ending() || job.live.root_end.is_some() {
                continue;
            }
            let next = job.ledger.history.next_number();
            let newest = job.last_checkpoint();
            match leaving.asked.get(&job.ledger.id) {
                // Committed since, and nothing new is under way.
                Some(asked) if newest.is_some_and(|newest| newest >= *asked) => {
                    if job.step_in_flight(now).is_none() {
                        leaving.asked.remove(&job.ledger.id);
                        let cause = Cause::Leave { node: node.clone() };
                        let begin = Beginning::of(now, cause, newest);
                        let failures = job.ledger.failures;
                        job.begin_epoch(now, &mut self.shared, Beginning { failures, ..begin });
                    }
                }
                Some(_) if job.step_in_flight(now).is_some() => {}
                Some(_) if leaving.retry_at.is_some() => {}
                _ => {
                    // Nobody waits for this ticket: what becomes of the checkpoint is seen above.
                    leaving.asked.insert(job.ledger.id.clone(), next);
                    leaving.retry_at = Some(now.nanos.saturating_add(PAUSE));
                    job.feed(now, &mut self.shared, Event::Request { ticket: 0 });
                }
            }
        }
        free
    }
}
