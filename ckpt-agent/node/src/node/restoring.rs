//! Instances that are brought back, and those that outlived an agent.

use protocol::cluster::InstanceKey;
use protocol::cluster::agent::{InstanceReport, OuterSocket, PrepareOrder, Rewire, Skipped};

use super::instance::{Ended, Instance, Origin, State, Unleased};
use super::launching::checked;
use super::{Node, Voice};
use crate::{Action, Adopted, Lacking, Record, Restore};

impl Node {
    pub(super) fn prepare(&mut self, order: PrepareOrder) {
        let key = order.key.clone();
        if self.instances.contains_key(&key) {
            return tracing::warn!(%key, "the instance is here already");
        }
        if let Err(unsuitable) = checked(&key) {
            let reason = unsuitable.to_string();
            return self.voice.report(&key, InstanceReport::NotMade { reason });
        }
        let order = Box::new(order);
        let state = State::Preparing(order.clone());
        self.instances.insert(key, Instance::new(Record::of_prepare(&order), state));
        self.voice.act(Action::Prepare(order));
    }

    /// An instance could not be made: nothing is left of it.
    pub(super) fn not_made(&mut self, key: &InstanceKey, lacking: Lacking) {
        let Lacking { reason, damaged: copies } = lacking;
        let report = match copies.is_empty() {
            true => InstanceReport::NotMade { reason },
            false => InstanceReport::Damaged { copies, reason },
        };
        self.voice.report(key, report);
    }

    pub(super) fn prepared(
        &mut self,
        key: &InstanceKey,
        result: Result<Vec<OuterSocket>, Lacking>,
    ) {
        // It may have been killed meanwhile.
        let Some(instance) = self.instances.get_mut(key) else { return };
        let State::Preparing(order) = &instance.state else {
            return tracing::error!(%key, state = ?instance.state, "it was prepared out of turn");
        };
        match result {
            Ok(sockets) => {
                instance.state = State::Prepared(order.clone());
                self.voice.report(key, InstanceReport::Prepared { sockets });
            }
            Err(lacking) => {
                self.forget(key);
                self.not_made(key, lacking);
                self.check_kills();
            }
        }
    }

    pub(super) fn restore(
        &mut self,
        key: &InstanceKey,
        connections: Vec<Rewire>,
        skipped: Vec<Skipped>,
    ) {
        let node = self.instances.get(key).map(|instance| &instance.record.logical_node);
        let crowded = self.instances.iter().any(|(other, instance)| {
            other.job == key.job && other != key && Some(&instance.record.logical_node) == node
        });
        let Some(instance) = self.instances.get_mut(key) else {
            let reason = "it was not prepared here".to_owned();
            return self.voice.report(key, InstanceReport::NotMade { reason });
        };
        let State::Prepared(order) = &instance.state else {
            return tracing::warn!(%key, state = ?instance.state, "it can't be restored now");
        };
        let order = PrepareOrder::clone(order);
        instance.state = State::Starting(Origin::Restored);
        instance.skipped.clone_from(&skipped);
        let lease_until = self.lease.until();
        let restore = Restore { order, lease_until, connections, skipped, crowded };
        self.voice.act(Action::Restore(Box::new(restore)));
    }

    pub(super) fn go(&mut self, key: &InstanceKey) {
        if self.with(key, Instance::go) == Some(true) {
            self.do_unleased();
        }
    }

    pub(super) fn running(&mut self, key: &InstanceKey, result: Result<(), String>) {
        match result {
            Ok(()) => {
                self.with(key, |instance, voice| {
                    if instance.state == State::Complete {
                        instance.state = State::Running;
                    }
                    voice.report(key, InstanceReport::Running);
                });
            }
            Err(reason) => {
                self.with(key, |_, voice| voice.report(key, InstanceReport::NotMade { reason }));
                self.kill_instances(std::slice::from_ref(key));
            }
        }
    }

    pub(super) fn found(&mut self, record: Record, adopted: Adopted) {
        let key = record.key.clone();
        tracing::info!(%key, held = adopted.held, "took over an instance that outlived its agent");
        let mut instance = Instance::new(record, State::Running);
        instance.adopted = true;
        instance.init = adopted.made.init;
        instance.held = adopted.held;
        instance.lease_until = adopted.lease_until;
        instance.ended = adopted.ended.map(|status| Ended { status, told: true });
        instance.empty = adopted.empty;
        instance.listeners.clone_from(&adopted.made.listeners);
        instance.relays_lost = lost_with_agent(&instance.record, &adopted);
        if adopted.touched {
            // Bytes or registers are lost with the agent before: it can only be rolled back.
            tracing::warn!(%key, "it cannot go on: the agent before died in the middle of a step");
            self.instances.insert(key.clone(), instance);
            return self.kill_instances(&[key]);
        }
        instance.tie(&mut self.voice, Origin::Adopted, adopted.made);
        self.instances.insert(key, instance);
    }

    pub(super) fn all_found(&mut self) {
        self.looked_for = true;
        self.say_hello();
    }
}

impl Instance {
    /// It may run, as far as the coordinator is concerned. False where there is nothing to be done for that.
    fn go(&mut self, voice: &mut Voice) -> bool {
        if self.state == State::Running && !self.held {
            voice.report(self.key(), InstanceReport::Running);
            return false;
        }
        if self.state != State::Complete && !self.held {
            tracing::warn!(key = %self.key(), state = ?self.state, "it can't be let go now");
            return false;
        }
        self.unleased = Some(Unleased::Go);
        true
    }
}

/// Whether bytes may have been in the agent that died: what it had read and not passed on yet.
fn lost_with_agent(record: &Record, adopted: &Adopted) -> Option<String> {
    // The link of a remote shell ends in the agent: without it, nobody learns how the program ends.
    let linked = record.shell.is_some() && !record.is_root && adopted.ended.is_none();
    let lost = linked || !adopted.made.relays.is_empty();
    lost.then(|| "the agent that carried bytes between nodes was started again".to_owned())
}
