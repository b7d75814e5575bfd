//! Instances of a job that does without some of its daemons: relays that lead nowhere, output that comes
//! without a daemon, connections whose peers have departed, and whether all processes only wait.

use protocol::cluster::InstanceKey;
use protocol::cluster::agent::{Fallen, InstanceReport, RelaySide};

use super::Node;
use crate::{Action, RelayOrder};

impl Node {
    /// What becomes of relays whose other side has departed, before the instance runs.
    pub(super) fn fall_back(&mut self, key: &InstanceKey, fallen: Fallen) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        for side in fallen.silent.into_iter().filter(|side| instance.relays.contains(side)) {
            self.voice.act(Action::Relay(key.clone(), side, RelayOrder::Silence));
        }
        for link in fallen.outputs.into_iter().filter(|_| instance.console) {
            // It may be here from before.
            if instance.relays.insert(link.side.clone()) {
                instance.sinks.insert(link.side.clone());
                self.voice.act(Action::Sink(key.clone(), link));
            }
        }
        instance.rests = Some(false);
        self.voice.act(Action::WatchRest(key.clone()));
    }

    pub(super) fn sink_lost(&mut self, key: &InstanceKey, side: &RelaySide, reason: String) {
        if let Some(instance) = self.instances.get_mut(key) {
            instance.relays.remove(side);
            instance.sinks.remove(side);
            self.voice.warn(key, format!("output of a process is lost: {reason}"));
        }
    }

    pub(super) fn rests(&mut self, key: &InstanceKey, waits: bool) {
        let instance = self.instances.get_mut(key);
        if let Some(rests) = instance.and_then(|instance| instance.rests.as_mut()) {
            *rests = waits;
            self.voice.report(key, InstanceReport::Rest { waits });
        }
    }
}
