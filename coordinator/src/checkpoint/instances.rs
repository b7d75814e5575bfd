//! What only a job on a cluster needs: its agents are instances, which come and go, and which
//! can't be reached at times.

use super::phase::limit;
use super::{JobMachine, Life};
use crate::event::{Action, Time};
use protocol::agent::{CheckpointNumber, InstanceId, Step};
use protocol::cluster::tree::TreeSum;

impl JobMachine {
    /// Goes on with a job that runs already, after the coordinator was started again. A checkpoint
    /// that was in flight is abandoned. Once, and before everything else, instead of
    /// [`crate::Event::Started`].
    pub fn adopt(&mut self, now: Time, in_flight: Option<CheckpointNumber>) -> Vec<Action> {
        let mut out = Vec::new();
        if self.life == Life::Fresh {
            self.life = Life::Running;
            self.due = self.interval.map(|interval| now.nanos.saturating_add(interval));
            if let Some(checkpoint) = in_flight {
                self.abandon_unknown(now, checkpoint, &mut out);
            }
        }
        out
    }

    /// One more agent holds a part of the job; it takes part in the next checkpoint. The caller
    /// keeps checkpoints from being frozen while one is being added ([`JobMachine::hold`]).
    pub fn add_agent(&mut self, agent: InstanceId) {
        self.agents.insert(agent);
    }

    /// An agent has no process of the job left, by the job's own doing.
    pub fn remove_agent(&mut self, now: Time, agent: InstanceId) -> Vec<Action> {
        let mut out = Vec::new();
        if self.agents.remove(&agent) && matches!(self.life, Life::Running | Life::Ended(_)) {
            self.leave_checkpoint(now, agent, &mut out);
        }
        out
    }

    /// Whether the checkpoint in flight still needs what this agent has in hand.
    #[must_use]
    pub fn has_in_hand(&self, agent: InstanceId) -> bool {
        self.phase.takes_from(agent)
    }

    /// As [`crate::Event::Park`], at the next checkpoint whose time comes or that is asked for; false: not
    /// any more.
    pub fn park_next(&mut self, wanted: bool) {
        self.parks_next = wanted;
    }

    /// Whether the job is about to be parked.
    #[must_use]
    pub fn is_parking(&self) -> bool {
        self.park || self.phase.is_parking()
    }

    /// Whether the checkpoint in flight is one in which the job is not let go.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.phase.is_parking()
    }

    /// Whether a checkpoint falls due.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        self.due.is_some_and(|due| now.nanos >= due)
    }

    /// Whether [`JobMachine::hurry`] would begin a checkpoint: checkpoints are taken at intervals, and none is under way.
    #[must_use]
    pub fn may_hurry(&self) -> bool {
        self.due.is_some() && self.may_begin()
    }

    /// Whether checkpoints are taken at intervals.
    #[must_use]
    pub fn has_interval(&self) -> bool {
        self.interval.is_some()
    }

    /// The next checkpoint falls due now.
    pub fn hurry(&mut self, now: Time) {
        if self.may_hurry() {
            self.due = Some(now.nanos);
        }
    }

    /// While held, no checkpoint is begun; one that is in flight goes on.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// While somebody reads these checkpoints, they stay although there are newer ones.
    pub fn let_read(&mut self, checkpoints: impl IntoIterator<Item = CheckpointNumber>) {
        self.read = checkpoints.into_iter().collect();
    }

    /// Whether the job stands still for a checkpoint, or is about to.
    #[must_use]
    pub fn is_pausing(&self) -> bool {
        self.phase.is_pausing()
    }

    /// The image of an agent is durable in so many places.
    pub fn copied(&mut self, agent: InstanceId, checkpoint: CheckpointNumber, copies: u32) {
        self.note_copies(agent, checkpoint, copies);
    }

    /// All agents that were told a step of a checkpoint have answered, or one has failed: why, and whether
    /// that passes.
    pub fn answered_together(
        &mut self,
        now: Time,
        checkpoint: CheckpointNumber,
        step: Step,
        result: Result<TreeSum, (String, bool)>,
    ) -> Vec<Action> {
        let mut out = Vec::new();
        if self.life != Life::Over {
            match result {
                Ok(sum) => self.all_answered(now, checkpoint, step, &sum, &mut out),
                Err((reason, passing)) => {
                    self.one_failed(now, checkpoint, step, reason, passing, &mut out);
                }
            }
        }
        out
    }

    /// How long a step may take, in nanoseconds.
    #[must_use]
    pub fn limit(&self, step: Step) -> u64 {
        limit(&self.settings.limits, step)
    }

    /// An agent can't be reached for the moment. A checkpoint for which the job stands still is
    /// abandoned.
    pub fn agent_unheard(&mut self, now: Time, agent: InstanceId, reason: &str) -> Vec<Action> {
        let mut out = Vec::new();
        if self.life == Life::Running {
            self.unheard(now, agent, reason, &mut out);
        }
        out
    }

    /// An agent can be reached again: it is told once more what it has not answered.
    pub fn agent_heard(&mut self, agent: InstanceId) -> Vec<Action> {
        let mut out = Vec::new();
        if self.life != Life::Over {
            self.heard_again(agent, &mut out);
        }
        out
    }
}
