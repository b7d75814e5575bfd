//! The first words with a coordinator, and the lease.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::agent::InstanceEvent;
use protocol::cluster::agent::HeldInstance;
use protocol::cluster::succession::Followed;
use protocol::cluster::{Epoch, InstanceKey};

use super::Node;
use super::instance::Unleased;
use crate::{Action, ConsoleOrder, Launch};

/// Heartbeats are at least this far apart.
const SHORTEST_BEAT: Duration = Duration::from_millis(10);

impl Node {
    pub(super) fn say_hello(&mut self) {
        // It is said once there is a connection.
        let Some(coordinator) = &mut self.coordinator else { return };
        coordinator.hello_sent = self.now;
        let instances = self
            .instances
            .values()
            .filter(|instance| instance.lives())
            .map(|instance| HeldInstance {
                key: instance.key().clone(),
                adopted: instance.adopted,
                held: instance.held,
                ended: instance.status(),
                // Where there is a console, its last bytes come first.
                flushes: instance.ended.is_some() && instance.console,
            })
            .collect();
        self.voice.act(Action::Hello {
            followed: self.own.followed.clone(),
            profile: Box::new(self.own.profile.clone()),
            instances,
        });
    }

    /// The coordinator takes this node: what it may not have heard is told again.
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
        let Some(coordinator) = &mut self.coordinator else {
            return tracing::error!("a welcome came over no connection");
        };
        coordinator.term = Some(followed.term);
        coordinator.unanswered = 0;
        self.voice.unmute();
        self.lease.welcome(lease, coordinator.hello_sent);
        self.beat = heartbeat.max(SHORTEST_BEAT);
        self.voice.act(Action::BeatEvery(self.beat));
        let is_stale =
            |key: &&InstanceKey| epochs.get(&key.job).is_none_or(|epoch| key.epoch < *epoch);
        let stale: Vec<_> = self.instances.keys().filter(is_stale).cloned().collect();
        self.kill_instances(&stale);
        self.renew();
        for (key, instance) in &mut self.instances {
            instance.adopted = false;
            if instance.console {
                self.voice.act(Action::Console(key.clone(), ConsoleOrder::SendAgain));
            }
        }
        for (key, instance) in &self.instances {
            if instance.lives() && !instance.listeners.is_empty() {
                let listeners = instance.listeners.clone();
                self.voice.report(key, InstanceEvent::Listens(listeners));
            }
        }
        self.announce_leaving();
        // Before anything that is lost can be missed.
        self.report_lost_relays();
        self.release_held();
        self.report_ends_again();
        self.ask_again();
    }

    pub(super) fn heard(&mut self, sequence: u64) {
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.unanswered = 0;
        }
        if self.lease.heard(sequence) {
            self.renew();
            self.release_held();
        }
    }

    fn renew(&mut self) {
        let until = self.lease.until();
        for (key, _) in self.instances.iter().filter(|(_, instance)| instance.lives()) {
            self.voice.act(Action::Lease(key.clone(), until));
        }
    }

    /// Once the lease has run out, nothing may run that the coordinator may have started elsewhere.
    pub(super) fn keep_lease(&mut self) {
        for (key, instance) in &mut self.instances {
            if instance.runs() && self.now >= instance.leased_until(&self.lease) {
                instance.held = true;
                tracing::warn!(%key, "no word from the coordinator: the instance is held");
                self.voice.act(Action::Hold(key.clone()));
            }
        }
    }

    /// What was held runs again, if the lease is good.
    fn release_held(&mut self) {
        if self.lease.is_over(self.now) {
            return;
        }
        for (key, instance) in &mut self.instances {
            let alone = instance.may_run() && instance.unleased.is_none();
            if alone && std::mem::take(&mut instance.held) {
                self.voice.act(Action::Release(key.clone()));
            }
        }
        self.do_unleased();
    }

    /// Starts instances, and lets them go, if the lease is good.
    pub(super) fn do_unleased(&mut self) {
        if self.lease.is_over(self.now) {
            return;
        }
        let lease_until = self.lease.until();
        for (key, instance) in &mut self.instances {
            match instance.unleased.take() {
                Some(Unleased::Launch(order)) => {
                    let launch = Launch { order: *order, lease_until };
                    self.voice.act(Action::Launch(Box::new(launch)));
                }
                Some(Unleased::Go) => {
                    instance.held = false;
                    self.voice.act(Action::Go(key.clone()));
                }
                None => {}
            }
        }
    }
}
