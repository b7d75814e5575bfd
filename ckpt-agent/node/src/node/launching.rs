//! Instances that are started, and what is tied to their streams.

use protocol::cluster::InstanceKey;
use protocol::cluster::agent::{InstanceReport, LaunchOrder};
use protocol::cluster::baseline::Baseline;

use super::Node;
use super::instance::{Instance, Origin, State, Unleased};
use crate::names::is_job_id;
use crate::{Action, Keeps, Lacking, Made, Record, RelayOrder, Tie};

impl Node {
    pub(super) fn launch(&mut self, order: LaunchOrder) {
        let key = order.key.clone();
        if let Some(known) = self.instances.get(&key) {
            return tracing::warn!(%key, state = ?known.state, "the instance is here already");
        }
        let suits = self.holds(order.settings.cpu_baseline).and_then(|()| checked(&key));
        if let Err(reason) = suits {
            return self.voice.report(&key, InstanceReport::NotMade { reason });
        }
        let state = State::Starting(Origin::Launched);
        let mut instance = Instance::new(Record::of_launch(&order), state);
        instance.unleased = Some(Unleased::Launch(Box::new(order)));
        self.instances.insert(key, instance);
        self.do_unleased();
    }

    /// Whether this machine has what the job's processes are promised.
    fn holds(&self, wanted: Option<Baseline>) -> Result<(), String> {
        let lacking = wanted.and_then(|wanted| {
            wanted.lacking(&self.own.profile.features).map(|feature| (wanted, feature))
        });
        lacking.map_or(Ok(()), |(wanted, feature)| {
            Err(format!("its CPU lacks {feature}, which is part of {wanted} (--cpu-baseline)"))
        })
    }

    /// The user who runs an instance has been looked up.
    pub(super) fn run_by(&mut self, key: &InstanceKey, uid: u32) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        instance.record.uid = Some(uid);
        self.voice.act(Action::WriteRecord(Box::new(instance.record.clone())));
    }

    pub(super) fn made(&mut self, key: &InstanceKey, result: Result<Made, Lacking>) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        let State::Starting(origin) = instance.state else {
            return tracing::error!(%key, state = ?instance.state, "it was made out of turn");
        };
        let doomed = instance.doomed;
        let made = match result {
            Ok(made) => made,
            Err(lacking) => {
                self.forget(key);
                if !doomed {
                    self.not_made(key, lacking);
                }
                return self.check_kills();
            }
        };
        instance.init = made.init;
        instance.listeners.clone_from(&made.listeners);
        if doomed {
            return self.finish_off(key);
        }
        self.voice.act(Action::Lease(key.clone(), self.lease.until()));
        self.tie(key, origin, made);
    }

    /// Has an instance's streams and relays tied to what carries them.
    pub(super) fn tie(&mut self, key: &InstanceKey, origin: Origin, made: Made) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        instance.state = State::Tying(origin, Box::new(made));
        let keeps = match (instance.record.is_root, origin) {
            (false, _) => Keeps::Nothing,
            (true, Origin::Launched | Origin::Restored) => Keeps::All,
            (true, Origin::Adopted) => Keeps::Continued,
        };
        // Of a launched one all relays lead to the shell; others are told of theirs.
        let shell = instance.record.shell.clone().filter(|_| origin != Origin::Adopted);
        let shell = shell.map(|call| (call.caller, call.node));
        let skipped = instance.skipped.clone();
        self.voice.act(Action::Tie(Tie { key: key.clone(), keeps, shell, skipped }));
    }

    pub(super) fn tied(&mut self, key: &InstanceKey, result: Result<bool, String>) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        let next = match &instance.state {
            State::Tying(Origin::Restored, _) => State::Complete,
            State::Tying(Origin::Launched | Origin::Adopted, _) => State::Running,
            state => return tracing::error!(%key, ?state, "it was tied out of turn"),
        };
        let State::Tying(origin, made) = std::mem::replace(&mut instance.state, next) else {
            unreachable!("it has just been looked at");
        };
        let doomed = instance.doomed;
        let console = match result {
            Ok(console) => console,
            Err(reason) => {
                match origin {
                    Origin::Adopted => tracing::warn!(%key, "{reason}"),
                    Origin::Launched | Origin::Restored if doomed => {}
                    Origin::Launched | Origin::Restored => {
                        self.voice.report(key, InstanceReport::NotMade { reason });
                    }
                }
                return self.kill_instances(std::slice::from_ref(key));
            }
        };
        if doomed {
            return self.kill_instances(std::slice::from_ref(key));
        }
        instance.console = console;
        let Made { root, relays, outputs, sinks, listeners, warnings, .. } = *made;
        instance.relays.extend(relays.iter().chain(&sinks).cloned());
        instance.sinks.extend(sinks.iter().cloned());
        for link in std::mem::take(&mut instance.links) {
            if instance.relays.contains(&link.side) {
                let side = link.side.clone();
                self.voice.act(Action::Relay(key.clone(), side, RelayOrder::Link(link)));
            } else {
                instance.links.push(link);
            }
        }
        match origin {
            Origin::Launched => {
                let root = root.unwrap_or_default();
                self.voice.report(key, InstanceReport::Launched { root });
                warnings.into_iter().for_each(|text| self.voice.warn(key, text));
            }
            Origin::Restored => {
                let relays = relays.into_iter().chain(sinks).collect();
                let key = key.clone();
                self.voice.report(
                    &key,
                    InstanceReport::Restored { relays, outputs, listeners, warnings },
                );
            }
            Origin::Adopted => {}
        }
        self.catch_up(key);
    }

    /// What an instance has reported before it was complete here.
    fn catch_up(&mut self, key: &InstanceKey) {
        let Some(instance) = self.instances.get(key) else { return };
        let (ended, empty) = (instance.ended, instance.empty);
        if let Some(ended) = ended {
            self.voice.act(Action::TellShell(key.clone(), ended.status));
            if !ended.told {
                self.report_end(key);
            }
        }
        if empty {
            self.emptied(key);
        }
    }
}

/// Whether the key can be an instance's.
pub(super) fn checked(key: &InstanceKey) -> Result<(), String> {
    is_job_id(&key.job).then_some(()).ok_or_else(|| format!("{:?} is no job's id", key.job))
}
