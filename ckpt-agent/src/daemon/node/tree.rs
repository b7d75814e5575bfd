//! What this node does for the command tree.

use command_tree::{Act, Own};
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::InstanceKey;
use protocol::cluster::agent::FromAgent;
use protocol::cluster::tree::{TreeCall, TreeMark, TreeOrder};

use super::Node;
use crate::daemon::lease::boot_time;
use crate::daemon::tree::TreeEvent;

impl Node {
    pub(super) fn tree(&mut self, event: TreeEvent) {
        let acts = self.parts.tree.take(event);
        self.do_for_tree(acts);
    }

    pub(super) fn tree_ordered(&mut self, call: TreeCall) {
        let acts = self.parts.tree.member.ordered(boot_time(), call);
        self.do_for_tree(acts);
    }

    pub(super) fn tree_reset(&mut self, mark: TreeMark) {
        let acts = self.parts.tree.member.reset(mark);
        self.do_for_tree(acts);
    }

    /// The coordinator itself gives a checkpoint up.
    pub(super) fn tree_abandoned(&mut self, job: &str, checkpoint: CheckpointNumber) {
        let acts = self.parts.tree.member.abandoned(job, checkpoint);
        self.do_for_tree(acts);
    }

    /// Other members are there than before.
    pub(super) fn tree_members_changed(&mut self) {
        let members = self.parts.members.clone();
        let acts = self.parts.tree.keep_lines(|node| members.contains(node));
        self.do_for_tree(acts);
    }

    /// No process of an instance is left.
    pub(super) fn tree_deserted(&mut self, key: &InstanceKey) {
        let acts = self.parts.tree.ended(key);
        self.do_for_tree(acts);
    }

    fn do_for_tree(&mut self, acts: Vec<Act>) {
        let mut acts = std::collections::VecDeque::from(acts);
        while let Some(act) = acts.pop_front() {
            match act {
                Act::Open(node) => self.parts.tree.open(node),
                Act::Send(line, message) => self.parts.tree.send(&line, message),
                Act::Clear(line) => self.parts.tree.clear(&line),
                Act::Report(answer) => self.tell(FromAgent::Tree(answer)),
                Act::Work(order, instances) => acts.extend(self.work_for_tree(order, instances)),
                Act::Forget(operation) => self.parts.tree.works.forget(operation),
            }
        }
        self.parts.tree.set_clock();
    }

    /// The own instances are told the step, as if the coordinator had said it to each.
    fn work_for_tree(&mut self, order: TreeOrder, instances: Vec<InstanceId>) -> Vec<Act> {
        if self.coordinator.as_ref().is_none_or(|known| !known.welcome) {
            // Who stands still must be within reach of the word that lets him go.
            let reason = "it has no connection to the coordinator".to_owned();
            let own = Own::Failed { passing: true, reason };
            return self.parts.tree.member.own(order.operation, own);
        }
        let command = order.step.command(order.checkpoint);
        for key in self.parts.tree.works.begin(order, instances) {
            self.command(&key, command.clone());
        }
        Vec::new()
    }
}
