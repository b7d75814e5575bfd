//! What instances report.

use protocol::agent::{AgentEvent, ExitKind, InstanceEvent};
use protocol::cluster::InstanceKey;
use protocol::cluster::agent::{FromAgent, InstanceReport};

use super::instance::{Ended, Instance};
use super::{Node, Voice};
use crate::{Action, ConsoleOrder, ConsoleReport, RelayOrder};

/// Bytes of input that are handed back in one message.
const MOST_INPUT: usize = 256 * 1024;

impl Node {
    pub(super) fn agent_event(&mut self, key: &InstanceKey, event: AgentEvent) {
        match event {
            AgentEvent::Written { checkpoint, summary } => {
                let own = self.own.name.clone();
                self.with(key, |instance, voice| instance.copy(voice, &own, checkpoint, summary));
                return;
            }
            AgentEvent::Committed { checkpoint } => {
                self.with(key, |instance, voice| instance.committed_here(voice, checkpoint));
                return;
            }
            AgentEvent::Ended { status } => {
                self.with(key, |instance, voice| instance.root_ended(voice, status));
                return self.emptied(key);
            }
            AgentEvent::Resumed { checkpoint, .. } => {
                self.with(key, |instance, voice| {
                    instance.resume_relays(voice);
                    instance.read_efforts(voice, checkpoint);
                });
            }
            AgentEvent::Failed { checkpoint, .. } | AgentEvent::Abandoned { checkpoint } => {
                self.with(key, |instance, voice| {
                    instance.resume_relays(voice);
                    instance.order_console(voice, ConsoleOrder::Release);
                    instance.abandon_copies(voice, checkpoint);
                });
            }
            _ => {}
        }
        self.voice.report(key, event);
    }

    pub(super) fn order_console(&mut self, key: &InstanceKey, order: ConsoleOrder) {
        self.with(key, |instance, voice| instance.order_console(voice, order));
    }

    /// No process is left. What the first one wrote must be out before that is said.
    pub(super) fn emptied(&mut self, key: &InstanceKey) {
        if self.with(key, Instance::desert).is_some() {
            self.tree_deserted(key);
            self.with(key, Instance::report_empty);
        }
    }

    /// After a new connection: ends that the coordinator may have missed.
    pub(super) fn report_ends_again(&mut self) {
        for (key, instance) in &self.instances {
            if instance.rests == Some(true) {
                self.voice.report(key, InstanceReport::Rest { waits: true });
            }
        }
        for instance in self.instances.values_mut() {
            instance.empty_told = false;
            if instance.ended.is_some_and(|ended| ended.told) {
                match instance.console {
                    // Its last words may be on their way again, and come first.
                    true => instance.order_console(&mut self.voice, ConsoleOrder::Flush),
                    false => instance.tell_end(&mut self.voice),
                }
            }
            instance.report_empty(&mut self.voice);
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
                self.with(key, |instance, voice| {
                    instance.tell_end(voice);
                    instance.report_empty(voice);
                });
            }
            ConsoleReport::Closed(end) => self.voice.act(Action::CloseEnd(key.clone(), end)),
        }
    }
}

impl Instance {
    pub fn order_console(&self, voice: &mut Voice, order: ConsoleOrder) {
        if self.console {
            voice.act(Action::Console(self.key().clone(), order));
        }
    }

    pub fn root_ended(&mut self, voice: &mut Voice, status: ExitKind) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(Ended { status, told: false });
        if self.is_starting() {
            // Its end comes after its beginning.
            return;
        }
        voice.act(Action::TellShell(self.key().clone(), status));
        self.report_end(voice);
    }

    /// Says how the first process ended, once all that it wrote has been said.
    pub fn report_end(&mut self, voice: &mut Voice) {
        if self.console {
            return self.order_console(voice, ConsoleOrder::Flush);
        }
        let spoilt = self.paused.filter(|_| !self.record.is_root);
        self.tell_end(voice);
        if let Some(checkpoint) = spoilt {
            // Neither the process nor its end might be in the images.
            self.spoil(voice, checkpoint, "a remote program has just ended".to_owned());
        }
    }

    fn tell_end(&mut self, voice: &mut Voice) {
        if let Some(ended) = &mut self.ended {
            ended.told = true;
            let status = ended.status;
            voice.report(self.key(), InstanceEvent::RootEnded(status));
        }
    }

    /// No process is left in it.
    fn desert(&mut self, voice: &mut Voice) {
        self.empty = true;
        if self.lives() {
            for side in &self.relays {
                let key = self.key().clone();
                voice.act(Action::Relay(key, side.clone(), RelayOrder::Deserted));
            }
        }
    }

    /// Of an instance nothing is left. It goes when the coordinator, which has that in its log then, says so:
    /// one that is lost before must not leave behind a successor that misses the instance.
    pub fn report_empty(&mut self, voice: &mut Voice) {
        // The root instance's end is the job's: the coordinator says when it goes.
        let waits = self.ended.is_some_and(|ended| !ended.told);
        let told = self.empty_told;
        if !voice.is_heard() || !self.empty || waits || told || self.record.is_root {
            return;
        }
        // Relays may still carry what it wrote.
        if self.relays.is_empty() && self.lives() {
            self.empty_told = true;
            voice.report(self.key(), InstanceEvent::Empty);
        }
    }
}
