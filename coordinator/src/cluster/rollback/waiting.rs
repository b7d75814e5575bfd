//! Nothing older is left: the epoch is planned, or waits until it can be.

use super::making::Stage;
use crate::cluster::decisions;
use crate::cluster::event::Now;
use crate::cluster::job::{Job, State};
use crate::cluster::shared::Shared;

impl Job {
    /// Nothing older is left: decides who goes where, or waits.
    pub(super) fn plan(&mut self, now: Now, shared: &mut Shared) {
        let Some(making) = self.state.making("plan an epoch") else { return };
        making.record.planned_ms = Some(now.unix_ms);
        let attempts = making.attempts.clone();
        if shared.members.usable_for(&self.ledger).next().is_none() {
            let reason = shared.members.nowhere(&self.ledger.user, self.ledger.settings());
            let reason = reason.unwrap_or_else(|| shared.members.nobody());
            if self.could_go_back(&shared.members) {
                // They were let go, or drained, while the job was being made elsewhere.
                self.stuck = Some(reason.clone());
            }
            self.wait_for(now, shared, reason);
            return;
        }
        match self.ledger.checkpoint {
            None => self.launch(now, shared, &attempts),
            Some(checkpoint) => self.prepare(now, shared, checkpoint, &attempts),
        }
    }

    /// Stops until something changes: a machine comes, or one is declared gone.
    pub(super) fn wait_for(&mut self, now: Now, shared: &mut Shared, reason: String) {
        let limit = shared.settings.rollback.machines;
        let Some(making) = self.state.making("wait for machines") else { return };
        if making.is_waiting() {
            making.stage = Stage::Waiting { reason };
            return;
        }
        making.stage = Stage::Waiting { reason: reason.clone() };
        making.deadline = Some(now.nanos.saturating_add(limit));
        decisions::waits(&self.ledger, &reason);
        self.console.say(shared, &format!("the job waits: {reason}"));
    }

    /// Something has changed that may end the wait.
    pub(in crate::cluster) fn plan_if_waiting(&mut self, now: Now, shared: &mut Shared) {
        if matches!(&self.state, State::Making(making) if making.is_waiting()) {
            self.plan(now, shared);
        }
    }

    /// Begins a stage that may take so long.
    pub(super) fn enter(&mut self, stage: Stage, now: Now, limit: u64) {
        if let Some(making) = self.state.making("enter a stage") {
            making.stage = stage;
            making.deadline = Some(now.nanos.saturating_add(limit));
        }
    }
}
