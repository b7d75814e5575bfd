//! What a node says and wants done, in order.

use std::collections::VecDeque;

use command_tree::Works;
use protocol::agent::{AgentEvent, CheckpointNumber, InstanceEvent, Step};
use protocol::cluster::InstanceKey;
use protocol::cluster::agent::{FromAgent, InstanceReport};
use protocol::cluster::tree::Operation;

use crate::Action;

/// Something for the command tree that an instance has said.
#[derive(Debug)]
pub(super) enum TreeWord {
    /// An instance has answered a step that came by the tree.
    Answered(InstanceKey, AgentEvent),
    /// An own instance has come further.
    Progressed(Operation),
}

/// Collects actions. What the coordinator is told goes nowhere until it has bid this node welcome: what it must know is
/// said again then.
#[derive(Debug, Default)]
pub(super) struct Voice {
    actions: Vec<Action>,
    heard: bool,
    /// Steps of the command tree that are under way here: their answers go by the tree.
    pub works: Works,
    pub words: VecDeque<TreeWord>,
}

impl Voice {
    /// Whether the coordinator listens.
    pub fn is_heard(&self) -> bool {
        self.heard
    }

    /// The coordinator listens from now on.
    pub fn unmute(&mut self) {
        self.heard = true;
    }

    /// It does not listen any more, or not yet.
    pub fn mute(&mut self) {
        self.heard = false;
    }

    pub fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Tells the coordinator.
    pub fn tell(&mut self, message: FromAgent) {
        self.tell_with(message, Vec::new());
    }

    /// Tells the coordinator, with bytes.
    pub fn tell_with(&mut self, message: FromAgent, body: Vec<u8>) {
        if self.heard {
            self.act(Action::Tell(Box::new(message), body));
        }
    }

    /// Tells the coordinator, or the command tree where that waits for it, what an instance reports.
    pub fn report(&mut self, key: &InstanceKey, report: impl Into<InstanceReport>) {
        let report = report.into();
        if let InstanceReport::Event(InstanceEvent::Agent(event)) = &report {
            if self.works.awaits(key, event) {
                return self.words.push_back(TreeWord::Answered(key.clone(), event.clone()));
            }
            if let Some(operation) = self.works.goes_on(key, event) {
                self.words.push_back(TreeWord::Progressed(operation));
            }
        }
        self.tell(FromAgent::of(key.clone(), report));
    }

    /// Says that a step failed, for an instance that can't say it itself.
    pub fn fail(
        &mut self,
        key: &InstanceKey,
        checkpoint: CheckpointNumber,
        step: Step,
        reason: String,
    ) {
        self.report(key, AgentEvent::Failed { checkpoint, step, reason, passing: false });
    }

    /// A line for the user.
    pub fn warn(&mut self, key: &InstanceKey, text: String) {
        self.report(key, AgentEvent::Warning { text });
    }
}
