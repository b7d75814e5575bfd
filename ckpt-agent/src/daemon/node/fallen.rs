//! Instances of a job that does without some of its daemons: relays that lead nowhere, output that comes
//! without a daemon, connections whose peers have departed, and whether everybody only waits.

use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use protocol::cluster::InstanceKey;
use protocol::cluster::agent::{Fallen, FromAgent, RelayLink, RelaySide};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Node;
use crate::daemon::absent::{Absent, LocalDaemon};
use crate::daemon::console::ConsoleOrder;
use crate::daemon::control::{RelayEnd, RelayEndKind, RelayState};
use crate::daemon::event::Event;
use crate::daemon::relay::Order;
use crate::daemon::rest::{self, Watch};

/// How long a relay may take to stop writing.
const WITHHOLD_LIMIT: Duration = Duration::from_secs(1);

/// The watch over an instance. Dropped, it ends.
#[derive(Debug)]
pub struct Resting {
    /// What was told last.
    pub waits: bool,
    task: JoinHandle<()>,
}

impl Drop for Resting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Node {
    /// What becomes of relays whose other side has departed, before the instance runs.
    pub(super) fn fall_back(&mut self, key: &InstanceKey, fallen: Fallen) {
        let Some(instance) = self.instances.get(key) else { return };
        for relay in instance.relays.iter().filter(|relay| fallen.silent.contains(&relay.side)) {
            relay.order(Order::Silence);
        }
        for link in fallen.outputs {
            let side = link.side.clone();
            // It may be here from before.
            let known = self
                .instances
                .get(key)
                .is_some_and(|instance| instance.relays.iter().any(|relay| relay.side == side));
            if !known {
                if let Err(error) = self.sink(key, side, RelayState::default(), Some(link)) {
                    self.warn(key, format!("output of a process is lost: {error}"));
                }
            }
        }
        self.watch_rest(key);
    }

    /// Brings output that comes over a relay to the job's console.
    pub(super) fn sink(
        &mut self,
        key: &InstanceKey,
        side: RelaySide,
        prefix: RelayState,
        link: Option<RelayLink>,
    ) -> std::io::Result<()> {
        let Some(instance) = self.instances.get(key) else { return Ok(()) };
        let Some(console) = &instance.console else { return Ok(()) };
        let (from, to) = pipe2(OFlag::O_CLOEXEC)?;
        instance.control.output(side.clone(), to.try_clone()?);
        console.order(ConsoleOrder::Source(side.clone(), from));
        let kind = RelayEndKind::PipeWrite;
        let end = RelayEnd { side, kind, native: to, shared: false, gated: false, prefix };
        let handle = self.carry(key, end, link)?;
        if let Some(instance) = self.instances.get_mut(key) {
            instance.sinks.insert(handle.side.clone());
            instance.relays.push(handle);
        }
        Ok(())
    }

    /// Keeps relays from adding to the console while it is emptied: what they hold then belongs to the
    /// checkpoint. None: there are none.
    pub(super) fn withhold_outputs(
        &mut self,
        key: &InstanceKey,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let instance = self.instances.get_mut(key)?;
        let (relays, sides) = (&instance.relays, &instance.sinks);
        let sinks = relays.iter().filter(|relay| sides.contains(&relay.side));
        let told: Vec<_> = sinks.filter_map(|relay| relay.withhold()).collect();
        if told.is_empty() {
            return None;
        }
        instance.withheld = true;
        Some(async move {
            for one in told {
                // One that has carried everything writes nothing.
                let _ = timeout(WITHHOLD_LIMIT, one).await;
            }
        })
    }

    /// Holds the other ends of connections open whose peers have departed.
    pub(super) fn hold_absent(
        &self,
        key: &InstanceKey,
        ends: Vec<(u32, OwnedFd)>,
    ) -> std::io::Result<Absent> {
        let mut absent = Absent::default();
        let Some(instance) = self.instances.get(key) else { return Ok(absent) };
        for (file, far) in ends {
            let skipped = instance.skipped.iter().find(|skipped| skipped.file == file);
            let name = skipped.and_then(|skipped| skipped.daemon.clone());
            let (events, of) = (self.parts.events.clone(), key.clone());
            let daemon = name.map(|name| LocalDaemon {
                name,
                loopback: skipped.is_some_and(|skipped| skipped.loopback),
                ask: Box::new(move |answer| events.tell(Event::OtherInits(of.clone(), answer))),
            });
            absent.hold(far, daemon)?;
        }
        Ok(absent)
    }

    /// Inits of the job's other instances on this machine.
    pub(super) fn other_inits(&self, key: &InstanceKey) -> Vec<i32> {
        let same =
            |other: &InstanceKey| other != key && other.job == key.job && other.epoch == key.epoch;
        let others = self.instances.iter().filter(|(other, _)| same(other));
        let alive = others.filter(|(_, instance)| instance.lives() && instance.init != 0);
        alive.map(|(_, instance)| instance.init).collect()
    }

    fn watch_rest(&mut self, key: &InstanceKey) {
        let Some(instance) = self.instances.get_mut(key) else { return };
        let (init, events, of) = (instance.init, self.parts.events.clone(), key.clone());
        let mut watch = Watch::new(instance.absent.parents, instance.absent.spoken.clone());
        let task = tokio::spawn(async move {
            let mut ticks = interval(rest::LOOK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut told = false;
            loop {
                ticks.tick().await;
                let look = spawn_blocking(move || rest::look(init)).await;
                let waits = match look {
                    Ok(Ok(look)) => watch.see(std::time::Instant::now(), look),
                    // It is ending.
                    _ => false,
                };
                if waits != told {
                    told = waits;
                    events.tell(Event::Rest(of.clone(), waits));
                }
            }
        });
        instance.rest = Some(Resting { waits: false, task });
    }

    pub(super) fn rests(&mut self, key: &InstanceKey, waits: bool) {
        let Some(rest) = self.instances.get_mut(key).and_then(|known| known.rest.as_mut()) else {
            return;
        };
        rest.waits = waits;
        self.tell(FromAgent::Rest { key: key.clone(), waits });
    }
}
