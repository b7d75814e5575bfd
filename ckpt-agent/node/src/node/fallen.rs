//! Instances of a job that does without some of its daemons: relays that lead nowhere, output that comes
//! without a daemon, connections whose peers have departed, and whether all processes only wait.

use protocol::cluster::agent::{Fallen, InstanceReport, RelaySide};

use super::Voice;
use super::instance::Instance;
use crate::{Action, RelayOrder};

impl Instance {
    /// What becomes of relays whose other side has departed, before the instance runs.
    pub fn fall_back(&mut self, voice: &mut Voice, fallen: Fallen) {
        let key = self.key().clone();
        for side in fallen.silent.into_iter().filter(|side| self.relays.contains(side)) {
            voice.act(Action::Relay(key.clone(), side, RelayOrder::Silence));
        }
        for link in fallen.outputs.into_iter().filter(|_| self.console) {
            // It may be here from before.
            if self.relays.insert(link.side.clone()) {
                self.sinks.insert(link.side.clone());
                voice.act(Action::Sink(key.clone(), link));
            }
        }
        self.rests = Some(false);
        voice.act(Action::WatchRest(key));
    }

    pub fn sink_lost(&mut self, voice: &mut Voice, side: &RelaySide, reason: String) {
        self.relays.remove(side);
        self.sinks.remove(side);
        voice.warn(self.key(), format!("output of a process is lost: {reason}"));
    }

    /// Whether all its processes only wait. Nobody looks at one of a job that has all its daemons.
    pub fn rests(&mut self, voice: &mut Voice, waits: bool) {
        if let Some(rests) = &mut self.rests {
            *rests = waits;
            voice.report(self.key(), InstanceReport::Rest { waits });
        }
    }
}
