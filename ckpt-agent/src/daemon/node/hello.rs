//! The first words with a coordinator, and the lease.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::cluster::agent::{FromAgent, HeldInstance};
use protocol::cluster::succession::Followed;
use protocol::cluster::{Epoch, VERSION};

use super::Node;
use super::instance::State;
use crate::daemon::console::ConsoleOrder;
use crate::daemon::lease::boot_time;

/// Heartbeats are at least this far apart.
const SHORTEST_BEAT: Duration = Duration::from_millis(10);

impl Node {
    pub(super) fn say_hello(&mut self) {
        let instances = self
            .instances
            .values()
            .filter(|instance| instance.lives())
            .map(|instance| HeldInstance {
                key: instance.record.key.clone(),
                adopted: instance.adopted,
                held: instance.held,
                ended: instance.ended,
                // Where there is a console, its last bytes come first.
                flushes: instance.ended.is_some() && instance.console.is_some(),
            })
            .collect();
        let profile = self.parts.profile.clone();
        let holdings = self.parts.folders.holdings();
        let followed = self.parts.identity.followed();
        let (version, term) = (VERSION, followed.term);
        let followed = (term > 0).then_some(followed);
        let hello = FromAgent::Hello { version, term, followed, profile, instances, holdings };
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.hello_sent = boot_time();
            let _ = coordinator.queue.send((hello, Vec::new()));
        }
    }

    pub(super) fn welcome(
        &mut self,
        followed: &Followed,
        heartbeat: Duration,
        lease: Duration,
        epochs: &BTreeMap<String, Epoch>,
    ) {
        if !self.is_followed(followed) {
            return;
        }
        let Some(coordinator) = &mut self.coordinator else { return };
        coordinator.welcome = true;
        coordinator.term = Some(followed.term);
        coordinator.unanswered = 0;
        self.lease.welcome(lease, coordinator.hello_sent);
        self.beat.send_replace(heartbeat.max(SHORTEST_BEAT));
        let stale: Vec<_> = self
            .instances
            .keys()
            .filter(|key| epochs.get(&key.job).is_none_or(|epoch| key.epoch < *epoch))
            .cloned()
            .collect();
        self.kill_instances(&stale);
        self.renew();
        for instance in self.instances.values_mut() {
            instance.adopted = false;
            if let Some(console) = &instance.console {
                console.order(ConsoleOrder::SendAgain);
            }
        }
        for (key, instance) in &self.instances {
            if instance.lives() && !instance.listeners.is_empty() {
                let listeners = instance.listeners.clone();
                self.tell(FromAgent::Listens { key: key.clone(), listeners });
            }
        }
        self.announce_leaving();
        // Before anything that is lost can be missed.
        self.report_lost_relays();
        self.release_all();
        self.report_ends_again();
        self.calls.ask_again(&self.instances, |message| {
            if let Some(coordinator) = &self.coordinator {
                let _ = coordinator.queue.send((message, Vec::new()));
            }
        });
    }

    pub(super) fn heard(&mut self, sequence: u64) {
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.unanswered = 0;
        }
        if self.lease.heard(sequence) {
            self.renew();
            self.release_all();
        }
    }

    fn renew(&self) {
        let until = self.lease.until();
        for instance in self.instances.values().filter(|instance| instance.lives()) {
            instance.control.lease(until);
        }
    }

    /// The lease has run out: nothing may run that the coordinator may have started elsewhere by now.
    pub(super) fn hold_all(&mut self) {
        for (key, instance) in &mut self.instances {
            if instance.state == State::Running && !instance.held {
                instance.held = true;
                tracing::warn!(%key, "no word from the coordinator: the instance is held");
                let control = instance.control.clone();
                let key = key.clone();
                tokio::task::spawn_blocking(move || {
                    if let Err(reason) = control.hold() {
                        tracing::warn!(%key, "failed to hold the instance: {reason}");
                    }
                });
            }
        }
    }

    fn release_all(&mut self) {
        if self.lease.is_over(boot_time()) {
            return;
        }
        for (key, instance) in &mut self.instances {
            if instance.state == State::Running && std::mem::take(&mut instance.held) {
                let control = instance.control.clone();
                let key = key.clone();
                tokio::task::spawn_blocking(move || {
                    if let Err(reason) = control.release() {
                        tracing::warn!(%key, "failed to release the instance: {reason}");
                    }
                });
            }
        }
    }
}
