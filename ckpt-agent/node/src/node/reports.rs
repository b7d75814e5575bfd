//! What instances report.

use protocol::agent::{AgentEvent, ExitKind, InstanceEvent};
use protocol::cluster::InstanceKey;
use protocol::cluster::agent::{FromAgent, InstanceReport};

use super::Node;
use super::instance::Ended;
use crate::{Action, ConsoleOrder, ConsoleReport, RelayOrder};

/// Bytes of input that are handed back in one message.
const MOST_INPUT: usize = 256 * 1024;

impl Node {
    pub(super) fn agent_event(&mut self, key: &InstanceKey, event: AgentEvent) {
        match event {
            AgentEvent::Written { checkpoint, summary } => {
                return self.copy(key, checkpoint, summary);
            }
            AgentEvent::Committed { checkpoint } => return self.committed_here(key, checkpoint),
            AgentEvent::Ended { status } => {
                self.root_ended(key, status);
                return self.emptied(key);
            }
            AgentEvent::Resumed { checkpoint, .. } => {
                self.resume_relays(key);
                self.read_efforts(key, checkpoint);
            }
            AgentEvent::Failed { checkpoint, .. } | AgentEvent::Abandoned { checkpoint } => {
                self.resume_relays(key);
                self.order_console(key, ConsoleOrder::Release);
                self.abandon_copies(key, checkpoint);
            }
            _ => {}
        }
        self.voice.report(key, event);
    }

    pub(super) fn order_console(&mut self, key: &InstanceKey, order: ConsoleOrder) {
        if self.instances.get(key).is_some_and(|instance| instance.console) {
            self.voice.act(Action::Console(key.clone(), order));
        }
    }

    pub(super) fn root_ended(&mut self, key: &InstanceKey, status: ExitKind) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        if instance.ended.is_some() {
            return;
        }
        instance.ended = Some(Ended { status, told: false });
        if instance.is_starting() {
            // Its end comes after its beginning.
            return;
        }
        self.voice.act(Action::TellShell(key.clone(), status));
        self.report_end(key);
    }

    /// Says how the first process ended, once all that it wrote has been said.
    pub(super) fn report_end(&mut self, key: &InstanceKey) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        if instance.console {
            return self.voice.act(Action::Console(key.clone(), ConsoleOrder::Flush));
        }
        let spoilt = instance.paused.filter(|_| !instance.record.is_root);
        self.tell_end(key);
        if let Some(checkpoint) = spoilt {
            // Neither the process nor its end might be in the images.
            self.spoil(key, checkpoint, "a remote program has just ended".to_owned());
        }
    }

    fn tell_end(&mut self, key: &InstanceKey) {
        let ended = self.instances.get_mut(key).and_then(|instance| instance.ended.as_mut());
        if let Some(ended) = ended {
            ended.told = true;
            let status = ended.status;
            self.voice.report(key, InstanceEvent::RootEnded(status));
        }
    }

    /// No process is left. What the first one wrote must be out before that is said.
    pub(super) fn emptied(&mut self, key: &InstanceKey) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        instance.empty = true;
        if instance.lives() {
            for side in &instance.relays {
                self.voice.act(Action::Relay(key.clone(), side.clone(), RelayOrder::Deserted));
            }
        }
        self.tree_deserted(key);
        self.report_empty(key);
    }

    /// Of an instance nothing is left. It goes when the coordinator, which has that in its log then, says so:
    /// one that is lost before must not leave behind a successor that misses the instance.
    pub(super) fn report_empty(&mut self, key: &InstanceKey) {
        let welcome = self.is_welcome();
        let Some(instance) = self.instances.get_mut(key) else { return };
        // The root instance's end is the job's: the coordinator says when it goes.
        let waits = instance.ended.is_some_and(|ended| !ended.told);
        let told = instance.empty_told;
        if !welcome || !instance.empty || waits || told || instance.record.is_root {
            return;
        }
        // Relays may still carry what it wrote.
        if instance.relays.is_empty() && instance.lives() {
            instance.empty_told = true;
            self.voice.report(key, InstanceEvent::Empty);
        }
    }

    /// After a new connection: ends that the coordinator may have missed.
    pub(super) fn report_ends_again(&mut self) {
        for (key, instance) in &self.instances {
            if instance.rests == Some(true) {
                self.voice.report(key, InstanceReport::Rest { waits: true });
            }
        }
        let keys: Vec<_> = self.instances.keys().cloned().collect();
        for key in keys {
            let Some(instance) = self.instances.get_mut(&key) else { continue };
            instance.empty_told = false;
            if instance.ended.is_some_and(|ended| ended.told) {
                match instance.console {
                    // Its last words may be on their way again, and come first.
                    true => self.order_console(&key, ConsoleOrder::Flush),
                    false => self.tell_end(&key),
                }
            }
            self.report_empty(&key);
        }
    }

    /// Of instances that can only be rolled back. Said again over each new connection. What had to go over the relays of a
    /// job that has ended with success has gone over them.
    pub(super) fn report_lost_relays(&mut self) {
        let instances = &self.instances;
        let done = |job: &InstanceKey| {
            instances.iter().any(|(key, instance)| {
                let same = key.job == job.job && key.epoch == job.epoch;
                let success = instance.status() == Some(ExitKind::Exited(0));
                same && instance.record.is_root && success
            })
        };
        for (key, instance) in instances.iter().filter(|(_, instance)| instance.lives()) {
            if let Some(reason) = instance.relays_lost.clone().filter(|_| !done(key)) {
                self.voice.report(key, InstanceReport::RelaysLost { reason });
            }
        }
    }

    pub(super) fn console(&mut self, key: &InstanceKey, report: ConsoleReport) {
        if !self.instances.contains_key(key) {
            return;
        }
        match report {
            ConsoleReport::Piece { offset, stream, bytes } => {
                let message =
                    FromAgent::of(key.clone(), InstanceReport::Console { offset, stream });
                self.voice.tell_with(message, bytes);
            }
            ConsoleReport::Left { checkpoint, bytes, ended } => {
                let left = |ended| {
                    FromAgent::of(key.clone(), InstanceReport::InputLeft { checkpoint, ended })
                };
                let mut pieces = bytes.chunks(MOST_INPUT).peekable();
                if pieces.peek().is_none() {
                    self.voice.tell(left(ended));
                }
                while let Some(piece) = pieces.next() {
                    self.voice.tell_with(left(ended && pieces.peek().is_none()), piece.to_vec());
                }
            }
            ConsoleReport::Drained { checkpoint, offset } => {
                self.voice.report(key, InstanceReport::Drained { checkpoint, offset });
            }
            ConsoleReport::Flushed => {
                self.tell_end(key);
                self.report_empty(key);
            }
            ConsoleReport::Closed(end) => self.voice.act(Action::CloseEnd(key.clone(), end)),
        }
    }
}
