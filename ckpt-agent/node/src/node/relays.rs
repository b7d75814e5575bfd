//! Relays of instances: where they lead, when they stand still, what they report.

use protocol::agent::{AgentCommand, AgentEvent, CheckpointNumber, Step};
use protocol::cluster::InstanceKey;
use protocol::cluster::agent::{InstanceReport, RelayLink, RelaySide, stream_relay};

use super::instance::Instance;
use super::{Node, Voice};
use crate::{Action, RelayEvent, RelayOrder, RelayState};

impl Node {
    pub(super) fn relays_paused(
        &mut self,
        key: &InstanceKey,
        checkpoint: CheckpointNumber,
        result: Result<Vec<(RelaySide, RelayState)>, String>,
    ) {
        // The checkpoint may have been given up meanwhile.
        let paused = self.instances.get(key).and_then(|instance| instance.paused);
        if paused != Some(checkpoint) {
            return;
        }
        match result {
            Ok(states) => {
                self.voice.act(Action::RelayStates(key.clone(), states));
                let quiesce = AgentCommand::Quiesce { checkpoint };
                self.voice.act(Action::Command(key.clone(), quiesce));
            }
            Err(reason) => {
                self.with(key, |instance, voice| instance.spoil(voice, checkpoint, reason));
            }
        }
    }

    pub(super) fn relay(&mut self, key: &InstanceKey, event: RelayEvent) {
        let lost = self.with(key, |instance, voice| instance.relay(voice, event));
        if lost == Some(true) {
            self.report_lost_relays();
        }
    }
}

impl Instance {
    /// Links relays to their other sides, or keeps the links until the relays are here.
    pub fn link(&mut self, voice: &mut Voice, links: Vec<RelayLink>) {
        for link in links {
            if self.relays.contains(&link.side) {
                let (key, side) = (self.key().clone(), link.side.clone());
                voice.act(Action::Relay(key, side, RelayOrder::Link(link)));
            } else {
                self.links.push(link);
            }
        }
    }

    /// The job stands still: what relays have read arrives on the other side before the engine looks.
    pub fn pause_relays(&mut self, voice: &mut Voice, checkpoint: CheckpointNumber) {
        self.paused = Some(checkpoint);
        let key = self.key().clone();
        voice.act(match self.relays.is_empty() {
            true => Action::Command(key, AgentCommand::Quiesce { checkpoint }),
            false => Action::PauseRelays(key, checkpoint),
        });
    }

    /// Gives a checkpoint up that can't be right any more.
    pub fn spoil(&mut self, voice: &mut Voice, checkpoint: CheckpointNumber, reason: String) {
        let abandon = AgentCommand::Abandon { checkpoint };
        voice.act(Action::Command(self.key().clone(), abandon));
        self.resume_relays(voice);
        let event = AgentEvent::Failed { checkpoint, step: Step::Quiesce, reason, passing: true };
        voice.report(self.key(), event);
    }

    pub fn resume_relays(&mut self, voice: &mut Voice) {
        let withheld = std::mem::take(&mut self.withheld);
        if self.paused.take().is_some() || withheld {
            for side in &self.relays {
                let key = self.key().clone();
                voice.act(Action::Relay(key, side.clone(), RelayOrder::Resume));
            }
        }
    }

    /// Something has happened to one of its relays. True where the instance can only be rolled back.
    fn relay(&mut self, voice: &mut Voice, event: RelayEvent) -> bool {
        match event {
            RelayEvent::Closed(end) => voice.act(Action::CloseEnd(self.key().clone(), end)),
            RelayEvent::OrphanEnded(side, status) => {
                if let Some(pid) = child_of_link(&side.relay) {
                    voice.report(self.key(), InstanceReport::OrphanEnded { pid, status });
                }
            }
            RelayEvent::Done(side) => {
                self.relays.remove(&side);
                self.sinks.remove(&side);
                for side in open_gates(self) {
                    voice.act(Action::Relay(self.key().clone(), side, RelayOrder::Open));
                }
                self.report_empty(voice);
            }
            RelayEvent::Lost(side, reason) => {
                self.relays_lost = Some(format!("relay {}: {reason}", side.relay));
                return true;
            }
        }
        false
    }
}

/// Links over which the end of a remote program may be passed on to its shell: all of its output has been.
fn open_gates(instance: &Instance) -> Vec<RelaySide> {
    let carries = |relay: &str, stream: i32| {
        let relay = stream_relay(relay, stream);
        instance.relays.contains(&RelaySide { relay, side: 0 })
    };
    let callers = instance.relays.iter().filter(|side| side.side == 0);
    callers.filter(|side| !carries(&side.relay, 1) && !carries(&side.relay, 2)).cloned().collect()
}

/// The process whose stand-ins a link is between, by its name.
fn child_of_link(relay: &str) -> Option<i32> {
    relay.rsplit_once("#link")?.1.parse().ok()
}
