//! The own part of an operation: a step that the instances of this node are told, as if the coordinator had.

use crate::member::Own;
use protocol::agent::{AgentEvent, InstanceId};
use protocol::cluster::InstanceKey;
use protocol::cluster::tree::{Operation, TreeOrder, TreeStep, TreeSum};
use std::collections::{BTreeMap, BTreeSet};

/// Own parts that are under way.
#[derive(Debug, Default)]
pub struct Works(BTreeMap<Operation, Work>);

#[derive(Debug)]
struct Work {
    order: TreeOrder,
    left: BTreeSet<InstanceId>,
    sum: TreeSum,
}

impl Works {
    /// One begins: whom to tell [`TreeStep::command`] of its step.
    pub fn begin(&mut self, order: TreeOrder, instances: Vec<InstanceId>) -> Vec<InstanceKey> {
        let (job, epoch) = (&order.job, order.epoch);
        let keys = instances
            .iter()
            .map(|instance| InstanceKey { job: job.clone(), epoch, instance: *instance })
            .collect();
        let left = instances.into_iter().collect();
        self.0.insert(order.operation, Work { order, left, sum: TreeSum::default() });
        keys
    }

    /// Nobody waits for it any more.
    pub fn forget(&mut self, operation: Operation) {
        self.0.remove(&operation);
    }

    /// Whether an instance's event answers what came by the tree: then the coordinator hears of it by the
    /// tree.
    #[must_use]
    pub fn awaits(&self, key: &InstanceKey, event: &AgentEvent) -> bool {
        self.0.values().any(|work| work.awaits(key) && answer(&work.order, event).is_some())
    }

    /// The operation that goes on, by an instance's event.
    #[must_use]
    pub fn goes_on(&self, key: &InstanceKey, event: &AgentEvent) -> Option<Operation> {
        let AgentEvent::Progress { checkpoint, .. } = event else { return None };
        let fits = |work: &Work| work.awaits(key) && work.order.checkpoint == *checkpoint;
        self.0.iter().find(|(_, work)| fits(work)).map(|(operation, _)| *operation)
    }

    /// An instance's event, where that decides an own part.
    pub fn answered(&mut self, key: &InstanceKey, event: &AgentEvent) -> Option<(Operation, Own)> {
        let (operation, work, own) = self.0.iter_mut().find_map(|(operation, work)| {
            let own = answer(&work.order, event).filter(|_| work.awaits(key))?;
            Some((*operation, work, own))
        })?;
        let own = match own {
            Own::Done(sum) => {
                work.sum.add(&sum);
                work.left.remove(&key.instance);
                if !work.left.is_empty() {
                    return None;
                }
                Own::Done(work.sum)
            }
            failed => failed,
        };
        self.0.remove(&operation);
        Some((operation, own))
    }

    /// No process of an instance is left: it answers nothing any more.
    pub fn ended(&mut self, key: &InstanceKey) -> Option<(Operation, Own)> {
        let operation =
            self.0.iter().find(|(_, work)| work.awaits(key)).map(|(found, _)| *found)?;
        self.0.remove(&operation);
        let reason = format!("the processes of instance {} ended", key.instance.0);
        Some((operation, Own::Failed { passing: true, reason }))
    }
}

impl Work {
    fn awaits(&self, key: &InstanceKey) -> bool {
        self.order.job == key.job
            && self.order.epoch == key.epoch
            && self.left.contains(&key.instance)
    }
}

/// What an instance's event says to a step that it was told, if anything.
fn answer(order: &TreeOrder, event: &AgentEvent) -> Option<Own> {
    let one = TreeSum { instances: 1, ..TreeSum::default() };
    let (checkpoint, step, own) = match event {
        AgentEvent::Frozen { checkpoint, processes, threads } => {
            let sum = TreeSum { processes: *processes, threads: *threads, ..one };
            (*checkpoint, Some(TreeStep::Freeze), Own::Done(sum))
        }
        AgentEvent::Quiesced { checkpoint } => {
            (*checkpoint, Some(TreeStep::Quiesce), Own::Done(one))
        }
        AgentEvent::SnapshotTaken { checkpoint } => {
            (*checkpoint, Some(TreeStep::Snapshot), Own::Done(one))
        }
        AgentEvent::Resumed { checkpoint, pause_us } => {
            let sum = TreeSum { pause_us: *pause_us, ..one };
            (*checkpoint, Some(TreeStep::Resume), Own::Done(sum))
        }
        AgentEvent::Failed { checkpoint, reason, passing, .. } => {
            (*checkpoint, None, Own::Failed { passing: *passing, reason: reason.clone() })
        }
        _ => return None,
    };
    let fits = checkpoint == order.checkpoint && step.is_none_or(|step| step == order.step);
    fits.then_some(own)
}
