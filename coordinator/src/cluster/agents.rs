//! What agents say.

use super::ClusterMachine;
use super::entry::Cause;
use super::event::{ClientId, ClusterAction, Now};
use super::job::Job;
use super::job::instances::Delayed;
use super::rollback::RelayEnds;
use super::shared::Shared;
use protocol::cluster::agent::{FromAgent, InstanceReport};
use protocol::cluster::{InstanceKey, NodeName};

impl ClusterMachine {
    pub(super) fn agent_says(
        &mut self,
        now: Now,
        node: &NodeName,
        connection: u64,
        message: FromAgent,
        body: Vec<u8>,
    ) {
        if let FromAgent::Hello { version, term, profile, instances, holdings, .. } = message {
            // With that coordinator's seal, or it would not have come so far.
            if term > self.shared.coordinator.term {
                let by = node.clone();
                self.shared.act(ClusterAction::Superseded { term, by });
                return;
            }
            self.hello(now, node, connection, version, profile, instances, holdings);
            return;
        }
        if self.shared.members.of_connection(node, connection).is_none() {
            return;
        }
        let client = |number| ClientId { node: Some(node.clone()), connection, number };
        match message {
            FromAgent::Heartbeat { sequence, answered, vitals } => {
                self.heartbeat(now, node, (sequence, answered), vitals);
            }
            FromAgent::ClientOpened { client: number, user } => {
                self.client_opened(client(number), user);
            }
            FromAgent::ClientLine { client: number, line } => {
                self.client_line(now, &client(number), &line);
            }
            FromAgent::ClientClosed { client: number } => self.client_gone(&client(number)),
            FromAgent::Tree(answer) => self.tree_answered(now, node, answer),
            FromAgent::Leaving { reason } => self.announces_leave(now, node, &reason),
            FromAgent::Rehearsed { number, instance } => {
                self.rehearsed(now, node, number, instance);
            }
            FromAgent::Copied { job, instance, checkpoint, failure } => {
                self.copied(now, node, (job, instance, checkpoint), failure);
            }
            FromAgent::Adopted { client: number, job, facts, failure } => {
                self.adopted(now, &client(number), &job, facts, failure);
            }
            FromAgent::Killed { job, below } => {
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.killed(now, &mut self.shared, node, below);
                }
            }
            FromAgent::Instance { key, report } => {
                self.instance_says(now, node, &key, report, body);
            }
            FromAgent::Shell { mut call, logical_node, launch } => {
                call.node = node.clone();
                if let Some((job, shared)) = self.job_of(node, &call.caller) {
                    job.called(now, shared, Delayed { call, logical_node, launch });
                }
            }
            // The first is obeyed above, the others where the server takes what agents send.
            FromAgent::Hello { .. } | FromAgent::Replica(_) | FromAgent::Dmtcp(_) => {}
        }
    }

    /// The job that a key belongs to, if the key is of an instance on this node and of the epoch
    /// that counts.
    fn job_of(&mut self, node: &NodeName, key: &InstanceKey) -> Option<(&mut Job, &mut Shared)> {
        let job = self.jobs.get_mut(&key.job)?;
        let current = !job.is_over()
            && job.ledger.epoch == key.epoch
            && job.live.node(key.instance) == Some(node);
        current.then_some((job, &mut self.shared))
    }

    fn instance_says(
        &mut self,
        now: Now,
        node: &NodeName,
        key: &InstanceKey,
        report: InstanceReport,
        body: Vec<u8>,
    ) {
        // What an older epoch's instance still reports has no effect.
        let Some((job, shared)) = self.job_of(node, key) else { return };
        let instance = key.instance;
        match report {
            InstanceReport::Event(event) => job.instance_event(now, shared, instance, event),
            InstanceReport::Launched { root } => job.launched(now, shared, instance, Some(root)),
            InstanceReport::NotMade { reason } => job.not_made(now, shared, instance, &reason),
            InstanceReport::Damaged { copies, reason } => {
                job.copies_damaged(now, shared, instance, copies, &reason);
            }
            InstanceReport::Image { checkpoint, facts, holders } => {
                job.image(shared, instance, checkpoint, facts, holders);
            }
            InstanceReport::Prepared { sockets } => job.prepared(now, shared, instance, sockets),
            InstanceReport::Restored { relays, outputs, listeners, warnings } => {
                let ends = RelayEnds { sides: relays, outputs };
                job.restored(now, shared, instance, ends, listeners, warnings);
            }
            InstanceReport::Rest { waits } => job.rests(now, shared, instance, waits),
            InstanceReport::OrphanEnded { pid, status } => {
                job.orphan_ended(now, shared, instance, pid, status);
            }
            InstanceReport::Running => job.runs(now, shared, instance),
            InstanceReport::Console { offset, stream } => {
                job.output(shared, instance, offset, stream, body);
            }
            InstanceReport::Drained { checkpoint, offset } => {
                job.drained(now, shared, checkpoint, offset);
            }
            InstanceReport::InputLeft { checkpoint, ended } => {
                job.console.input_left(checkpoint, body, ended);
            }
            // What had to go over them has gone over them.
            InstanceReport::RelaysLost { .. } if job.has_succeeded() => {}
            InstanceReport::RelaysLost { reason } => {
                job.roll_back(now, shared, Cause::Broken { node: node.clone(), reason });
            }
        }
    }
}
