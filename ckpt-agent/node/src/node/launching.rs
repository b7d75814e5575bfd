//! Instances that are started, and what is tied to their streams.

use std::fmt;

use protocol::cluster::InstanceKey;
use protocol::cluster::agent::{InstanceReport, LaunchOrder};
use protocol::cluster::baseline::Baseline;

use super::instance::{Instance, Origin, State, Unleased};
use super::{Node, Voice};
use crate::names::is_job_id;
use crate::{Action, Keeps, Lacking, Made, Record, Tie};

impl Node {
    pub(super) fn launch(&mut self, order: LaunchOrder) {
        let key = order.key.clone();
        if let Some(known) = self.instances.get(&key) {
            return tracing::warn!(%key, state = ?known.state, "the instance is here already");
        }
        let suits = self.holds(order.settings.cpu_baseline).and_then(|()| checked(&key));
        if let Err(unsuitable) = suits {
            let reason = unsuitable.to_string();
            return self.voice.report(&key, InstanceReport::NotMade { reason });
        }
        let state = State::Starting(Origin::Launched);
        let mut instance = Instance::new(Record::of_launch(&order), state);
        instance.unleased = Some(Unleased::Launch(Box::new(order)));
        self.instances.insert(key, instance);
        self.do_unleased();
    }

    /// Whether this machine has what the job's processes are promised.
    fn holds(&self, wanted: Option<Baseline>) -> Result<(), Unsuitable> {
        let lacking = wanted.and_then(|wanted| {
            wanted.lacking(&self.own.profile.features).map(|feature| (wanted, feature))
        });
        lacking.map_or(Ok(()), |(baseline, feature)| Err(Unsuitable::Lacks { feature, baseline }))
    }

    pub(super) fn made(&mut self, key: &InstanceKey, result: Result<Made, Lacking>) {
        let starting = self.instances.get_mut(key).and_then(|known| match known.state {
            State::Starting(origin) => Some((known, origin)),
            _ => None,
        });
        let Some((instance, origin)) = starting else { return self.out_of_turn(key, "made") };
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
        instance.tie(&mut self.voice, origin, made);
    }

    pub(super) fn tied(&mut self, key: &InstanceKey, result: Result<bool, String>) {
        let tying = self.instances.get_mut(key);
        let Some((instance, (origin, made))) =
            tying.and_then(|known| known.finish_tying().map(|tied| (known, tied)))
        else {
            return self.out_of_turn(key, "tied");
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
        let early = std::mem::take(&mut instance.links);
        instance.link(&mut self.voice, early);
        let (ended, empty) = (instance.ended, instance.empty);
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
        // What it has reported before it was complete here.
        if let Some(ended) = ended {
            self.voice.act(Action::TellShell(key.clone(), ended.status));
            if !ended.told {
                self.with(key, Instance::report_end);
            }
        }
        if empty {
            self.emptied(key);
        }
    }
}

impl Instance {
    /// The user who runs it has been looked up.
    pub fn run_by(&mut self, voice: &mut Voice, uid: u32) {
        self.record.uid = Some(uid);
        voice.act(Action::WriteRecord(Box::new(self.record.clone())));
    }

    /// Has its streams and relays tied to what carries them.
    pub fn tie(&mut self, voice: &mut Voice, origin: Origin, made: Made) {
        self.state = State::Tying(origin, Box::new(made));
        let keeps = match (self.record.is_root, origin) {
            (false, _) => Keeps::Nothing,
            (true, Origin::Launched | Origin::Restored) => Keeps::All,
            (true, Origin::Adopted) => Keeps::Continued,
        };
        // Of a launched one all relays lead to the shell; others are told of theirs.
        let shell = self.record.shell.clone().filter(|_| origin != Origin::Adopted);
        let shell = shell.map(|call| (call.caller, call.node));
        let (key, skipped) = (self.key().clone(), self.skipped.clone());
        voice.act(Action::Tie(Tie { key, keeps, shell, skipped }));
    }

    /// Goes on from being tied; None where it was not.
    fn finish_tying(&mut self) -> Option<(Origin, Box<Made>)> {
        let next = match &self.state {
            State::Tying(Origin::Restored, _) => State::Complete,
            State::Tying(Origin::Launched | Origin::Adopted, _) => State::Running,
            _ => return None,
        };
        match std::mem::replace(&mut self.state, next) {
            State::Tying(origin, made) => Some((origin, made)),
            _ => None,
        }
    }
}

/// Whether the key can be an instance's.
pub(super) fn checked(key: &InstanceKey) -> Result<(), Unsuitable> {
    is_job_id(&key.job).then_some(()).ok_or_else(|| Unsuitable::NoJob(key.job.clone()))
}

/// Why an instance is not begun here.
#[derive(Debug)]
pub(super) enum Unsuitable {
    /// What its job is called is no job's id.
    NoJob(String),
    /// The processor has not all that the job's processes are promised.
    Lacks { feature: String, baseline: Baseline },
}

impl fmt::Display for Unsuitable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoJob(job) => write!(f, "{job:?} is no job's id"),
            Self::Lacks { feature, baseline } => {
                write!(f, "its CPU lacks {feature}, which is part of {baseline} (--cpu-baseline)")
            }
        }
    }
}
