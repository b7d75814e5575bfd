//! Instances that are killed.

use protocol::agent::{ExitKind, InstanceEvent};
use protocol::cluster::agent::FromAgent;
use protocol::cluster::{Epoch, InstanceKey};

use super::Node;
use super::instance::State;
use crate::{Action, Kill};

/// SIGKILL on every architecture of Linux (signal(7)).
const SIGKILL: i32 = 9;

impl Node {
    /// All of the job below that epoch.
    pub(super) fn kill_below(&mut self, job: String, below: Epoch) {
        let stale = |key: &&InstanceKey| key.job == job && key.epoch < below;
        let keys: Vec<_> = self.instances.keys().filter(stale).cloned().collect();
        self.killing.insert((job, below));
        self.kill_instances(&keys);
        self.check_kills();
    }

    /// Kills these.
    pub(super) fn kill_instances(&mut self, keys: &[InstanceKey]) {
        let mut kills = Vec::new();
        for key in keys {
            let Some(instance) = self.instances.get_mut(key) else { continue };
            match instance.state {
                State::Dying => {}
                // Nothing of it runs yet.
                State::Preparing(_) | State::Prepared(_) => self.forget(key),
                State::Starting(_) if instance.unleased.is_some() => self.forget(key),
                State::Starting(_) | State::Tying(..) => instance.doomed = true,
                State::Complete | State::Running => {
                    let stands = instance.held || instance.empty;
                    let stands = stands || instance.state == State::Complete;
                    instance.state = State::Dying;
                    kills.push(Kill { key: key.clone(), stands });
                }
            }
        }
        if !kills.is_empty() {
            self.voice.act(Action::Kill(kills));
        }
    }

    /// Kills an instance that was ordered to be killed while it was being made: none of its processes has run, or may
    /// be waited for.
    pub(super) fn finish_off(&mut self, key: &InstanceKey) {
        if let Some(instance) = self.instances.get_mut(key) {
            instance.state = State::Dying;
            self.voice.act(Action::Kill(vec![Kill { key: key.clone(), stands: true }]));
        }
    }

    pub(super) fn killed(&mut self, key: &InstanceKey) {
        self.report_killed(key);
        self.forget(key);
        self.check_kills();
    }

    /// A job that took no other signal to heart ends by this: its first process can't tell of its end any more. Of a job that
    /// begins anew nobody waits for that.
    fn report_killed(&mut self, key: &InstanceKey) {
        let begins_anew =
            self.killing.iter().any(|(job, below)| *job == key.job && key.epoch < *below);
        let Some(instance) = self.instances.get(key).filter(|_| !begins_anew) else { return };
        let is_told = instance.ended.is_some_and(|ended| ended.told);
        if instance.record.is_root && !is_told {
            let status = instance.status().unwrap_or(ExitKind::Signalled(SIGKILL));
            self.voice.report(key, InstanceEvent::RootEnded(status));
        }
    }

    /// Nothing is left of an instance.
    pub(super) fn forget(&mut self, key: &InstanceKey) {
        if self.instances.remove(key).is_some() {
            self.calls.forget(key, &mut self.voice);
            self.voice.act(Action::Forget(key.clone()));
        }
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
            self.voice.tell(FromAgent::Killed { job, below });
        }
    }
}
