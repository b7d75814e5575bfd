//! Instances that are killed.

use protocol::cluster::agent::FromAgent;
use protocol::cluster::{Epoch, InstanceKey};

use super::Node;
use super::instance::State;
use crate::daemon::event::Event;

impl Node {
    /// All of the job below that epoch: all are frozen before any is killed, so that none sees
    /// another's end.
    pub(super) fn kill_below(&mut self, job: String, below: Epoch) {
        let keys: Vec<_> = self
            .instances
            .keys()
            .filter(|key| key.job == job && key.epoch < below)
            .cloned()
            .collect();
        self.killing.insert((job, below));
        self.kill_instances(&keys);
        self.check_kills();
    }

    /// Kills these, frozen first.
    pub(super) fn kill_instances(&mut self, keys: &[InstanceKey]) {
        let mut hands = Vec::new();
        for key in keys {
            let Some(instance) = self.instances.get_mut(key) else { continue };
            match instance.state {
                State::Dying => {}
                // Nothing of it runs yet.
                State::Preparing | State::Prepared => {
                    self.instances.remove(key);
                    self.parts.hub.forget(key);
                }
                // It is killed as soon as it is there.
                State::Starting => instance.state = State::Dying,
                State::Complete | State::Running => {
                    let stands = instance.held || instance.state == State::Complete;
                    instance.state = State::Dying;
                    hands.push((key.clone(), instance.control.clone(), stands || instance.empty));
                }
            }
        }
        if hands.is_empty() {
            return;
        }
        let events = self.parts.events.clone();
        tokio::task::spawn_blocking(move || {
            std::thread::scope(|scope| {
                for (key, control, stands) in &hands {
                    if !stands {
                        scope.spawn(move || {
                            // One that can't be held is killed all the same.
                            if let Err(reason) = control.hold() {
                                tracing::debug!(%key, "hold before the end: {reason}");
                            }
                        });
                    }
                }
            });
            for (key, control, _) in hands {
                control.kill();
                events.tell(Event::Killed(key));
            }
        });
    }

    /// One that was ordered to be killed while it was being made.
    pub(super) fn finish_off(&mut self, key: &InstanceKey) {
        let Some(instance) = self.instances.get(key) else { return };
        let (control, events, key) =
            (instance.control.clone(), self.parts.events.clone(), key.clone());
        tokio::task::spawn_blocking(move || {
            control.kill();
            events.tell(Event::Killed(key));
        });
    }

    pub(super) fn killed(&mut self, key: &InstanceKey) {
        if let Some(instance) = self.instances.remove(key) {
            // Without them, no later agent takes the folder for that of one that lives.
            for name in [super::instance::RECORD, super::instance::SOCKET] {
                let _ = std::fs::remove_file(instance.folder.join(name));
            }
        }
        self.calls.forget(key);
        self.parts.hub.forget(key);
        self.check_kills();
    }

    /// Says so where nothing is left.
    pub(super) fn check_kills(&mut self) {
        let left = |job: &str, below: Epoch| {
            self.instances.keys().any(|key| key.job == job && key.epoch < below)
        };
        let done: Vec<_> =
            self.killing.iter().filter(|(job, below)| !left(job, *below)).cloned().collect();
        for (job, below) in done {
            self.killing.remove(&(job.clone(), below));
            self.tell(FromAgent::Killed { job, below });
        }
    }
}
