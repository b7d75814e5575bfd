//! Calls of `ckptd rsh` from inside of instances on this node, and what they started here.
//!
//! A caller becomes the stand-in of a program on another node. Four relays lead to the instance that the call
//! began: its link, and its three standard streams.

use protocol::agent::AgentCommand;
use protocol::cluster::agent::{FromAgent, RelaySide, ShellCall};
use protocol::cluster::{InstanceKey, NodeName};

use super::instance::Instance;
use super::{Node, Voice};
use crate::{Action, Call};

/// Callers that may be too early.
const MOST_EARLY: usize = 1024;

/// All callers that wait.
#[derive(Debug, Default)]
pub(super) struct ShellCalls {
    waiting: Vec<Waiting>,
    /// Numbers of callers that may belong to an instance of which it is not known yet that it is there.
    early: Vec<u64>,
}

#[derive(Debug)]
struct Waiting {
    call: ShellCall,
    message: FromAgent,
    /// The caller's number.
    number: u64,
}

impl ShellCalls {
    /// An instance is gone, and its callers with it.
    pub fn forget(&mut self, key: &InstanceKey, voice: &mut Voice) {
        self.waiting.retain(|waiting| {
            let stays = waiting.call.caller != *key;
            if !stays {
                voice.act(Action::DropCall(waiting.number));
            }
            stays
        });
    }

    fn take(&mut self, call: &ShellCall) -> Option<Waiting> {
        let index = self.waiting.iter().position(|waiting| waiting.call == *call)?;
        Some(self.waiting.swap_remove(index))
    }
}

impl Node {
    /// After a new connection: calls that the coordinator may have missed.
    pub(super) fn ask_again(&mut self) {
        for waiting in &self.calls.waiting {
            self.voice.tell(waiting.message.clone());
        }
    }

    pub(super) fn called(&mut self, call: Call) {
        let Call { number, identity, inside, uid, node: logical_node, launch } = call;
        let inside = inside.and_then(|key| self.instances.get(&key)).filter(|known| known.lives());
        let starting = self.instances.values().any(Instance::is_starting);
        if inside.is_none() && starting && self.calls.early.len() < MOST_EARLY {
            return self.calls.early.push(number);
        }
        let refuse = |reason: &str| Action::FailCall(number, reason.to_owned());
        let Some(instance) = inside else {
            return self.voice.act(refuse("it works only from inside its job"));
        };
        // Whoever got into a job as somebody else must not act for its user elsewhere.
        if instance.record.uid != Some(uid) {
            return self.voice.act(refuse("it works only for the user of its job"));
        }
        // A process whose agent has died calls again: what it began the first time is there already.
        let caller = instance.key().clone();
        let call = ShellCall { caller, node: self.own.name.clone(), call: identity };
        let message = FromAgent::Shell { call: call.clone(), logical_node, launch };
        self.voice.tell(message.clone());
        self.calls.waiting.push(Waiting { call, message, number });
    }

    /// After an instance has been made: callers that were too early for it.
    pub(super) fn hear_early_calls(&mut self) {
        for number in std::mem::take(&mut self.calls.early) {
            self.voice.act(Action::CallAgain(number));
        }
    }

    pub(super) fn shell_failed(&mut self, call: &ShellCall, reason: String) {
        if let Some(waiting) = self.calls.take(call) {
            self.voice.act(Action::FailCall(waiting.number, reason));
        }
    }

    pub(super) fn shell_runs(&mut self, call: &ShellCall, peer: InstanceKey, node: NodeName) {
        if let Some(Waiting { number, .. }) = self.calls.take(call) {
            let key = call.caller.clone();
            self.voice.act(Action::TieCaller { number, key, peer, node });
        }
    }

    /// Comes before any checkpoint that the coordinator begins from now on.
    pub(super) fn caller_tied(&mut self, key: &InstanceKey, sides: Vec<RelaySide>) {
        if let Some(caller) = self.instances.get_mut(key) {
            caller.relays.extend(sides);
        }
    }

    pub(super) fn shell_signal(&mut self, key: &InstanceKey, signal: i32) {
        if self.instances.get(key).is_some_and(|known| known.ended.is_none()) {
            let command = AgentCommand::Signal { signal };
            self.voice.act(Action::Command(key.clone(), command));
        }
    }
}
