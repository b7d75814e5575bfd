//! Instances that are held, released, let go and killed: each call may wait, and none holds up the event loop.

use ckpt_node::{Event, Kill};
use protocol::cluster::InstanceKey;
use protocol::task;

use super::Driver;
use ckpt_engine::fault;

impl Driver {
    pub(super) fn go(&self, key: &InstanceKey) {
        fault::point("go");
        let reports = self.parts.reports.clone();
        self.with(key, |served| {
            let (instance, of) = (served.instance.clone(), key.clone());
            task::spawn_blocking(move || {
                let gone = instance.session().go().map_err(|error| error.to_string());
                reports.event(Event::Running(of, gone));
            });
        });
    }

    /// One after the other with [`Self::release`], however fast they follow: an agent that could not run for a while finds
    /// its lease over and hears of its renewal in the same moment, and the last word counts.
    pub(super) fn hold(&self, key: &InstanceKey) {
        self.with(key, |served| {
            let key = key.clone();
            served.instance.session().tell_hold(move |reason| {
                tracing::warn!(%key, "failed to hold the instance: {reason}");
            });
        });
    }

    pub(super) fn release(&self, key: &InstanceKey) {
        self.with(key, |served| {
            let key = key.clone();
            served.instance.session().tell_release(move |reason| {
                tracing::warn!(%key, "failed to release the instance: {reason}");
            });
        });
    }

    /// Holds those that do not stand, all at once, then kills each.
    pub(super) fn kill(&self, kills: Vec<Kill>) {
        let mut instances = Vec::new();
        for Kill { key, stands } in kills {
            self.with(&key, |served| {
                instances.push((key.clone(), served.instance.clone(), stands))
            });
        }
        let reports = self.parts.reports.clone();
        task::spawn_blocking(move || {
            std::thread::scope(|scope| {
                for (key, instance, _) in instances.iter().filter(|(_, _, stands)| !stands) {
                    scope.spawn(move || {
                        // An instance that can't be held is killed all the same.
                        if let Err(reason) = instance.session().hold() {
                            tracing::debug!(%key, "hold before the end: {reason}");
                        }
                    });
                }
            });
            for (key, instance, _) in instances {
                instance.session().kill();
                reports.event(Event::Killed(key));
            }
        });
    }

    pub(super) fn forget(&mut self, key: &InstanceKey) {
        self.parts.hub.forget(key);
        if let Some(served) = self.instances.remove(key) {
            served.remove_record();
            self.parts.keys.end(&key.job);
        }
    }
}
