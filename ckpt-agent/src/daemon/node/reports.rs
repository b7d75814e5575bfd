//! What instances report.

use protocol::agent::{AgentEvent, ExitKind};
use protocol::cluster::InstanceKey;
use protocol::cluster::agent::FromAgent;

use super::Node;
use super::instance::State;
use crate::daemon::console::{ConsoleOrder, ConsoleReport};
use crate::daemon::event::RelayEvent;
use crate::daemon::relay::Order;

/// Bytes of input that are handed back in one message.
const MOST_INPUT: usize = 256 * 1024;

impl Node {
    pub(super) fn warn(&self, key: &InstanceKey, text: String) {
        let event = AgentEvent::Warning { text };
        self.tell(FromAgent::Instance { key: key.clone(), event });
    }

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
                self.look_at_efforts(key, checkpoint);
            }
            AgentEvent::Failed { checkpoint, .. } | AgentEvent::Abandoned { checkpoint } => {
                self.resume_relays(key);
                self.to_console(key, ConsoleOrder::Release);
                self.abandon_copies(key, checkpoint);
            }
            _ => {}
        }
        self.tell(FromAgent::Instance { key: key.clone(), event });
    }

    pub(super) fn root_ended(&mut self, key: &InstanceKey, status: ExitKind) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        if instance.ended.replace(status).is_some() {
            return;
        }
        instance.tell_shell();
        let spoilt = instance.paused.filter(|_| !instance.record.is_root);
        if let Some(console) = &instance.console {
            return console.order(ConsoleOrder::Flush);
        }
        instance.end_told = true;
        self.tell(FromAgent::RootEnded { key: key.clone(), status });
        if let Some(checkpoint) = spoilt {
            // Neither the process nor its end might be in the images.
            let reason = "a remote program has just ended".to_owned();
            self.relays_paused(key, checkpoint, Err(reason));
        }
    }

    /// No process is left. What the first one wrote must be out before that is said.
    pub(super) fn emptied(&mut self, key: &InstanceKey) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        instance.empty = true;
        self.tree_deserted(key);
        let Some(instance) = self.instances.get_mut(key) else { return };
        if !instance.lives() {
            return;
        }
        for relay in &instance.relays {
            relay.order(Order::Deserted);
        }
        self.release(key);
    }

    /// Of an instance nothing is left. It goes when the coordinator, which has that in its log then, says so:
    /// one that is lost before must not leave behind a successor that misses the instance.
    fn release(&mut self, key: &InstanceKey) {
        let connected = self.coordinator.as_ref().is_some_and(|known| known.welcome);
        let Some(instance) = self.instances.get_mut(key) else { return };
        // The root instance's end is the job's: the coordinator says when it goes.
        let waits = instance.ended.is_some() && !instance.end_told;
        let told = instance.empty_told;
        if !connected || !instance.empty || waits || told || instance.record.is_root {
            return;
        }
        // Relays may still carry what it wrote.
        if instance.relays.is_empty() && instance.state != State::Dying {
            instance.empty_told = true;
            self.tell(FromAgent::Empty { key: key.clone() });
        }
    }

    /// After a new connection: ends that the coordinator may have missed.
    pub(super) fn report_ends_again(&mut self) {
        for (key, instance) in &self.instances {
            if let Some(rest) = instance.rest.as_ref().filter(|rest| rest.waits) {
                self.tell(FromAgent::Rest { key: key.clone(), waits: rest.waits });
            }
        }
        let keys: Vec<_> = self.instances.keys().cloned().collect();
        for key in keys {
            let Some(instance) = self.instances.get_mut(&key) else { continue };
            instance.empty_told = false;
            if let (Some(status), true) = (instance.ended, instance.end_told) {
                match &instance.console {
                    // Its last words may be on their way again, and come first.
                    Some(console) => console.order(ConsoleOrder::Flush),
                    None => self.tell(FromAgent::RootEnded { key: key.clone(), status }),
                }
            }
            self.release(&key);
        }
    }

    /// Of instances that can only be rolled back. Said again over each new connection. What had to go over the relays of a
    /// job that has ended with success has gone over them.
    pub(super) fn report_lost_relays(&self) {
        let done = |job: &InstanceKey| {
            self.instances.iter().any(|(key, instance)| {
                let same = key.job == job.job && key.epoch == job.epoch;
                same && instance.record.is_root && instance.ended == Some(ExitKind::Exited(0))
            })
        };
        for (key, instance) in self.instances.iter().filter(|(_, instance)| instance.lives()) {
            if let Some(reason) = instance.relays_lost.clone().filter(|_| !done(key)) {
                self.tell(FromAgent::RelaysLost { key: key.clone(), reason });
            }
        }
    }

    pub(super) fn console(&mut self, key: &InstanceKey, report: ConsoleReport) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        match report {
            ConsoleReport::Piece { offset, stream, bytes } => {
                let message = FromAgent::Console { key: key.clone(), offset, stream };
                self.tell_with(message, bytes);
            }
            ConsoleReport::Left { checkpoint, bytes, ended } => {
                let mut pieces = bytes.chunks(MOST_INPUT).peekable();
                if pieces.peek().is_none() {
                    let message = FromAgent::InputLeft { key: key.clone(), checkpoint, ended };
                    self.tell(message);
                }
                while let Some(piece) = pieces.next() {
                    let ended = ended && pieces.peek().is_none();
                    let message = FromAgent::InputLeft { key: key.clone(), checkpoint, ended };
                    self.tell_with(message, piece.to_vec());
                }
            }
            ConsoleReport::Drained { checkpoint, offset } => {
                self.tell(FromAgent::Drained { key: key.clone(), checkpoint, offset });
            }
            ConsoleReport::Flushed => {
                instance.end_told = true;
                if let Some(status) = instance.ended {
                    self.tell(FromAgent::RootEnded { key: key.clone(), status });
                }
                self.release(key);
            }
            ConsoleReport::Closed(end) => instance.control.close_end(end),
        }
    }

    pub(super) fn relay(&mut self, key: &InstanceKey, event: RelayEvent) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        match event {
            RelayEvent::Closed(end) => instance.control.close_end(end),
            RelayEvent::OrphanEnded(side, status) => {
                if let Some(pid) = child_of_link(&side.relay) {
                    self.tell(FromAgent::OrphanEnded { key: key.clone(), pid, status });
                }
            }
            RelayEvent::Done(side) => {
                instance.relays.retain(|relay| relay.side != side);
                instance.open_gates();
                self.release(key);
            }
            RelayEvent::Lost(side, reason) => {
                let reason = format!("relay {}: {reason}", side.relay);
                instance.relays_lost = Some(reason);
                self.report_lost_relays();
            }
        }
    }
}

/// The process whose stand-ins a link is between, by its name.
fn child_of_link(relay: &str) -> Option<i32> {
    relay.rsplit_once("#link")?.1.parse().ok()
}
