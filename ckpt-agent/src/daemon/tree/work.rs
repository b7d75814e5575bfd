//! The own part of an operation: a step that the instances of this node are told, as if the coordinator had.

use std::collections::BTreeSet;

use command_tree::{Act, Own};
use protocol::agent::{AgentEvent, AgentId};
use protocol::cluster::InstanceKey;
use protocol::cluster::tree::{Operation, TreeOrder, TreeStep, TreeSum};

use super::Tree;

/// See the module.
#[derive(Debug)]
pub struct Work {
    order: TreeOrder,
    left: BTreeSet<AgentId>,
    sum: TreeSum,
}

/// What an instance's event says to a step that it was told, if anything.
fn answer(order: &TreeOrder, event: &AgentEvent) -> Option<Own> {
    let one = TreeSum { instances: 1, ..TreeSum::default() };
    let (of, own) = match event {
        AgentEvent::Frozen { checkpoint, processes, threads } => (
            (*checkpoint, Some(TreeStep::Freeze)),
            Own::Done(TreeSum { processes: *processes, threads: *threads, ..one }),
        ),
        AgentEvent::Quiesced { checkpoint } => {
            ((*checkpoint, Some(TreeStep::Quiesce)), Own::Done(one))
        }
        AgentEvent::SnapshotTaken { checkpoint } => {
            ((*checkpoint, Some(TreeStep::Snapshot)), Own::Done(one))
        }
        AgentEvent::Resumed { checkpoint, pause_us } => (
            (*checkpoint, Some(TreeStep::Resume)),
            Own::Done(TreeSum { pause_us: *pause_us, ..one }),
        ),
        AgentEvent::Failed { checkpoint, reason, passing, .. } => {
            ((*checkpoint, None), Own::Failed { passing: *passing, reason: reason.clone() })
        }
        _ => return None,
    };
    let (checkpoint, step) = of;
    let fits = checkpoint == order.checkpoint && step.is_none_or(|step| step == order.step);
    fits.then_some(own)
}

impl Tree {
    pub(in crate::daemon) fn begin(&mut self, order: TreeOrder, instances: Vec<AgentId>) {
        let left = instances.into_iter().collect();
        self.works.insert(order.operation, Work { order, left, sum: TreeSum::default() });
    }

    /// Whether an instance's event answers what came by the tree: then the coordinator hears of it by the
    /// tree.
    pub(in crate::daemon) fn awaits(&self, key: &InstanceKey, event: &AgentEvent) -> bool {
        self.works.values().any(|work| work.awaits(key) && answer(&work.order, event).is_some())
    }

    /// No process of an instance is left: it answers nothing any more.
    pub(in crate::daemon) fn ended(&mut self, key: &InstanceKey) -> Vec<Act> {
        let of = |(_, work): &(&Operation, &Work)| work.awaits(key);
        let Some(operation) = self.works.iter().find(of).map(|(operation, _)| *operation) else {
            return Vec::new();
        };
        self.works.remove(&operation);
        let reason = format!("the processes of instance {} ended", key.instance.0);
        self.member.own(operation, Own::Failed { passing: true, reason })
    }

    pub(super) fn answered(&mut self, key: &InstanceKey, event: AgentEvent) -> Vec<Act> {
        let found = self.works.iter_mut().find_map(|(operation, work)| {
            let own = answer(&work.order, &event).filter(|_| work.awaits(key))?;
            Some((*operation, work, own))
        });
        let Some((operation, work, own)) = found else { return Vec::new() };
        let own = match own {
            Own::Done(sum) => {
                work.sum.add(&sum);
                work.left.remove(&key.instance);
                if !work.left.is_empty() {
                    return Vec::new();
                }
                Own::Done(work.sum)
            }
            failed => failed,
        };
        self.works.remove(&operation);
        self.member.own(operation, own)
    }
}

impl Work {
    fn awaits(&self, key: &InstanceKey) -> bool {
        self.order.job == key.job
            && self.order.epoch == key.epoch
            && self.left.contains(&key.instance)
    }
}
