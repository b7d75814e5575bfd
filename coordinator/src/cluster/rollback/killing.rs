//! The first step: nothing of an older epoch runs anywhere any more.

use crate::cluster::entry::Cause;
use crate::cluster::event::Now;
use crate::cluster::job::{Job, State};
use crate::cluster::shared::Shared;
use protocol::cluster::NodeName;

impl Job {
    /// A machine has nothing older than this epoch any more.
    pub(in crate::cluster) fn killed(
        &mut self,
        now: Now,
        shared: &mut Shared,
        node: &NodeName,
        below: u64,
    ) {
        if below < self.ledger.epoch {
            return;
        }
        self.nodes_with_stale_instances.remove(node);
        if let State::Making(making) = &mut self.state {
            making.killed(node);
        }
        self.after_killing(now, shared);
    }

    /// A machine was declared gone, or turned out.
    pub(in crate::cluster) fn node_gone(&mut self, now: Now, shared: &mut Shared, node: &NodeName) {
        self.nodes_with_stale_instances.remove(node);
        if self.is_over() {
            return;
        }
        let lost = self.live.present_on(node);
        if { lost }.any(|(number, _)| !self.has_succeeded_without(number)) {
            self.roll_back(now, shared, Cause::Lost { node: node.clone() });
            return;
        }
        if let State::Making(making) = &mut self.state {
            making.killed(node);
        }
        self.after_killing(now, shared);
        self.plan_if_waiting(now, shared);
        self.await_no_more(now, shared, Some(node));
    }

    /// Plans the epoch once nothing older is left anywhere.
    pub(super) fn after_killing(&mut self, now: Now, shared: &mut Shared) {
        if matches!(&self.state, State::Making(making) if making.has_killed()) {
            self.plan(now, shared);
        }
    }
}
