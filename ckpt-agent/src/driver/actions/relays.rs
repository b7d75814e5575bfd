//! Streams, relays and departed peers of instances, tied to what carries them.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ckpt_node::{ConsoleOrder, Event, RelayOrder, RelayState, Tie};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use protocol::agent::CheckpointNumber;
use protocol::cluster::InstanceKey;
use protocol::cluster::agent::{RelayLink, RelaySide, Skipped};
use protocol::task;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Driver;
use super::failure::Failure;
use super::served::{Served, Watch};
use crate::driver::absent::{Absent, LocalDaemon};
use crate::driver::console;
use crate::driver::instance::{RelayEnd, RelayEndKind, Started};
use crate::driver::relay::{self, Carried, RelayHandle};
use crate::driver::report::Report;
use crate::driver::rest;

/// How long relays may take to stand still.
const PAUSE_LIMIT: Duration = Duration::from_secs(2);
/// How long a relay may take to stop writing.
const WITHHOLD_LIMIT: Duration = Duration::from_secs(1);

impl Driver {
    /// Ties an instance's streams and relays to what carries them.
    pub(super) fn tie(&mut self, tie: Tie) {
        let key = tie.key.clone();
        let untied = self.instances.get_mut(&key).and_then(|served| served.untied.take());
        let result = match untied {
            Some(started) => self
                .tie_started(tie, started)
                .map_err(Failure::system(format!("carry the streams of {key}"))),
            None => Err(Failure::NotMade(key.clone())),
        };
        let result = result.map_err(|failure| failure.to_string());
        self.events.push_back(Event::Tied(key, result));
    }

    /// Whether the instance has the job's console.
    fn tie_started(&mut self, tie: Tie, started: Started) -> io::Result<bool> {
        let Tie { key, keeps, shell, skipped } = tie;
        let (reports, of) = (self.parts.reports.clone(), key.clone());
        let report = move |report| reports.event(Event::Console(of.clone(), report));
        let console = console::start(started.native.console, keeps, report)?;
        let mut relays = Vec::new();
        for end in started.relays {
            let link = shell.as_ref().map(|(peer, node)| RelayLink {
                side: end.side.clone(),
                peer: peer.clone(),
                node: node.clone(),
            });
            relays.push(self.carry(&key, end, link)?);
        }
        let absent = self.hold_absent(&key, started.absent, &skipped)?;
        let shell = started.shell_link.map(|link| self.serve_shell(&key, link)).transpose()?;
        let has_console = console.is_some();
        self.with_mut(&key, |served| {
            served.shell = shell;
            served.absent = absent;
            served.relays.extend(relays);
            served.console = console;
        });
        for (side, prefix) in started.sinks {
            self.add_sink(&key, side, prefix, None)?;
        }
        Ok(has_console)
    }

    pub(super) fn carry(
        &self,
        key: &InstanceKey,
        end: RelayEnd,
        link: Option<RelayLink>,
    ) -> io::Result<RelayHandle> {
        let RelayEnd { side, kind, native, shared, gated, prefix } = end;
        let carried = Carried { key: key.clone(), side, kind, prefix, link, gated };
        relay::start(&self.parts.hub, carried, native, shared, self.reporter(key))
    }

    pub(super) fn relay(&self, key: &InstanceKey, side: &RelaySide, order: RelayOrder) {
        self.with(key, |served| {
            // One that has just carried everything is over.
            if let Some(relay) = served.relays.iter().find(|relay| relay.side == *side) {
                relay.order(order);
            }
        });
    }

    pub(super) fn pause_relays(&mut self, key: &InstanceKey, checkpoint: CheckpointNumber) {
        let Some(served) = self.instances.get(key) else {
            return tracing::error!(%key, "nothing serves this instance");
        };
        let waiting: Vec<_> = served
            .relays
            .iter()
            .filter_map(|relay| Some((relay.side.clone(), relay.pause(checkpoint)?)))
            .collect();
        if waiting.is_empty() {
            let none = Event::RelaysPaused(key.clone(), checkpoint, Ok(Vec::new()));
            return self.events.push_back(none);
        }
        let (reports, key) = (self.parts.reports.clone(), key.clone());
        task::spawn(async move {
            let all = async {
                let mut states = Vec::new();
                for (side, answer) in waiting {
                    // One that has just carried its last byte has nothing to tell.
                    if let Ok(state) = answer.await {
                        states.push((side, state));
                    }
                }
                states
            };
            let result = timeout(PAUSE_LIMIT, all).await;
            let result = result.map_err(|_| "a relay's other side did not stand still".to_owned());
            reports.event(Event::RelaysPaused(key, checkpoint, result));
        });
    }

    pub(super) fn console(&self, key: &InstanceKey, order: ConsoleOrder) {
        self.with(key, |served| {
            let Some(console) = &served.console else {
                return tracing::error!(%key, "the job's console is not here");
            };
            match (&order, withhold(served)) {
                (ConsoleOrder::Drain { .. }, Some(withheld)) => {
                    console.order_after(withheld, order);
                }
                _ => console.order(order),
            }
        });
    }

    pub(super) fn sink(&mut self, key: &InstanceKey, link: RelayLink) {
        let side = link.side.clone();
        if let Err(error) = self.add_sink(key, side.clone(), RelayState::default(), Some(link)) {
            self.events.push_back(Event::SinkLost(key.clone(), side, error.to_string()));
        }
    }

    /// Brings output that comes over a relay to the job's console.
    fn add_sink(
        &mut self,
        key: &InstanceKey,
        side: RelaySide,
        prefix: RelayState,
        link: Option<RelayLink>,
    ) -> io::Result<()> {
        // An instance that is gone writes nothing more, and one without the job's console shows nothing.
        let Some(served) = self.instances.get(key) else { return Ok(()) };
        let Some(console) = &served.console else { return Ok(()) };
        let (from, to) = pipe2(OFlag::O_CLOEXEC)?;
        served.instance.output(side.clone(), to.try_clone()?);
        console.source(side.clone(), from);
        let kind = RelayEndKind::PipeWrite;
        let end = RelayEnd { side, kind, native: to, shared: false, gated: false, prefix };
        let handle = self.carry(key, end, link)?;
        self.with_mut(key, |served| {
            served.sinks.insert(handle.side.clone());
            served.relays.push(handle);
        });
        Ok(())
    }

    /// Holds the other ends of connections open whose peers have departed.
    fn hold_absent(
        &self,
        key: &InstanceKey,
        ends: Vec<(u32, OwnedFd)>,
        skipped: &[Skipped],
    ) -> io::Result<Absent> {
        let mut absent = Absent::default();
        for (file, far) in ends {
            let skipped = skipped.iter().find(|skipped| skipped.file == file);
            let name = skipped.and_then(|skipped| skipped.daemon.clone());
            let (reports, of) = (self.parts.reports.clone(), key.clone());
            let daemon = name.map(|name| LocalDaemon {
                name,
                loopback: skipped.is_some_and(|skipped| skipped.loopback),
                ask: Box::new(move |answer| reports.tell(Report::OtherInits(of.clone(), answer))),
            });
            absent.hold(far, daemon)?;
        }
        Ok(absent)
    }

    pub(super) fn watch_rest(&mut self, key: &InstanceKey) {
        let (reports, of) = (self.parts.reports.clone(), key.clone());
        self.with_mut(key, |served| {
            let init = served.init;
            let mut watch = rest::Watch::new(served.absent.parents, served.absent.spoken.clone());
            let task = task::spawn(async move {
                let mut ticks = interval(rest::LOOK);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let mut told = false;
                loop {
                    ticks.tick().await;
                    let waits = match task::spawn_blocking(move || rest::look(init)).await {
                        Ok(Ok(look)) => watch.see(Instant::now(), look),
                        // It is ending.
                        _ => false,
                    };
                    if waits != told {
                        told = waits;
                        reports.event(Event::Rest(of.clone(), waits));
                    }
                }
            });
            served.rest = Some(Watch(task));
        });
    }
}

/// Keeps relays from adding to the console while it is emptied: what they hold then belongs to the
/// checkpoint. None: there are none.
fn withhold(served: &Served) -> Option<impl Future<Output = ()> + Send + use<>> {
    let sinks = served.relays.iter().filter(|relay| served.sinks.contains(&relay.side));
    let told: Vec<_> = sinks.filter_map(|relay| relay.withhold()).collect();
    (!told.is_empty()).then_some(async move {
        for one in told {
            // One that has carried everything writes nothing.
            let _ = timeout(WITHHOLD_LIMIT, one).await;
        }
    })
}
