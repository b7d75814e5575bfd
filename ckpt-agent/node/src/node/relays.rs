//! Relays of instances: where they lead, when they stand still, what they report.

use protocol::agent::{AgentCommand, AgentEvent, CheckpointNumber, Step};
use protocol::cluster::InstanceKey;
use protocol::cluster::agent::{InstanceReport, RelayLink, RelaySide, stream_relay};

use super::Node;
use super::instance::Instance;
use crate::{Action, RelayEvent, RelayOrder, RelayState};

impl Node {
    pub(super) fn links(&mut self, key: &InstanceKey, links: Vec<RelayLink>) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        for link in links {
            if instance.relays.contains(&link.side) {
                let side = link.side.clone();
                self.voice.act(Action::Relay(key.clone(), side, RelayOrder::Link(link)));
            } else {
                instance.links.push(link);
            }
        }
    }

    /// The job stands still: what relays have read arrives on the other side before the engine looks.
    pub(super) fn pause_relays(&mut self, key: &InstanceKey, checkpoint: CheckpointNumber) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        instance.paused = Some(checkpoint);
        self.voice.act(match instance.relays.is_empty() {
            true => Action::Command(key.clone(), AgentCommand::Quiesce { checkpoint }),
            false => Action::PauseRelays(key.clone(), checkpoint),
        });
    }

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
            Err(reason) => self.spoil(key, checkpoint, reason),
        }
    }

    /// Gives a checkpoint up that can't be right any more.
    pub(super) fn spoil(
        &mut self,
        key: &InstanceKey,
        checkpoint: CheckpointNumber,
        reason: String,
    ) {
        let abandon = AgentCommand::Abandon { checkpoint };
        self.voice.act(Action::Command(key.clone(), abandon));
        self.resume_relays(key);
        let event = AgentEvent::Failed { checkpoint, step: Step::Quiesce, reason, passing: true };
        self.voice.report(key, event);
    }

    pub(super) fn resume_relays(&mut self, key: &InstanceKey) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        let withheld = std::mem::take(&mut instance.withheld);
        if instance.paused.take().is_some() || withheld {
            for side in &instance.relays {
                self.voice.act(Action::Relay(key.clone(), side.clone(), RelayOrder::Resume));
            }
        }
    }

    pub(super) fn relay(&mut self, key: &InstanceKey, event: RelayEvent) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        match event {
            RelayEvent::Closed(end) => self.voice.act(Action::CloseEnd(key.clone(), end)),
            RelayEvent::OrphanEnded(side, status) => {
                if let Some(pid) = child_of_link(&side.relay) {
                    self.voice.report(key, InstanceReport::OrphanEnded { pid, status });
                }
            }
            RelayEvent::Done(side) => {
                instance.relays.remove(&side);
                instance.sinks.remove(&side);
                for side in open_gates(instance) {
                    self.voice.act(Action::Relay(key.clone(), side, RelayOrder::Open));
                }
                self.report_empty(key);
            }
            RelayEvent::Lost(side, reason) => {
                let reason = format!("relay {}: {reason}", side.relay);
                instance.relays_lost = Some(reason);
                self.report_lost_relays();
            }
        }
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
