//! The state of a node, and what it does about each event.

mod checkpoints;
mod clients;
mod dmtcp;
mod ending;
mod fallen;
mod following;
mod hello;
mod instance;
mod launching;
mod orders;
mod rehearsing;
mod relays;
mod reports;
mod restoring;
mod shell_calls;
mod tree;
mod voice;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use protocol::cluster::agent::{FromAgent, NodeProfile};
use protocol::cluster::succession::Followed;
use protocol::cluster::{Epoch, InstanceKey, NodeName, Term};

use self::clients::Clients;
use self::instance::{Instance, State};
use self::shell_calls::ShellCalls;
use self::tree::Tree;
use self::voice::Voice;
use crate::{Action, BatteryGuard, BootTime, Charge, Ending, Event, InstanceEvent, Lease};

/// Heartbeats that may be unanswered before the connection is taken for dead.
const UNANSWERED: u32 = 5;
/// How often the node looks at its lease before any coordinator has said how often to beat.
const FIRST_BEAT: Duration = Duration::from_millis(500);

/// What a node is from its beginning on.
#[derive(Debug)]
pub struct Own {
    /// The name by which the cluster's certificates and log know it.
    pub name: NodeName,
    /// What it offers; addresses without their host.
    pub profile: NodeProfile,
    /// When its battery is too low.
    pub battery: BatteryGuard,
    /// The coordinator that it followed when it ended last.
    pub followed: Followed,
}

/// The connection to the coordinator.
#[derive(Debug)]
struct Coordinator {
    number: u64,
    hello_sent: BootTime,
    /// Its term, once it has said it.
    term: Option<Term>,
    /// When it last said anything.
    heard: BootTime,
    unanswered: u32,
}

/// A node of a cluster.
#[derive(Debug)]
pub struct Node {
    own: Own,
    /// When the event in hand happened.
    now: BootTime,
    coordinator: Option<Coordinator>,
    lease: Lease,
    /// For when a clock has been set.
    clock: Option<BootTime>,
    beat: Duration,
    members: BTreeSet<NodeName>,
    instances: BTreeMap<InstanceKey, Instance>,
    clients: Clients,
    /// Whether a restart is being rehearsed here.
    rehearses: bool,
    calls: ShellCalls,
    /// Kills that wait until nothing is left.
    killing: BTreeSet<(String, Epoch)>,
    /// Whether all instances are known that outlived the agent before.
    looked_for: bool,
    leaving: Leaving,
    /// Whether the agent was told to end.
    told_to_end: bool,
    tree: Tree,
    voice: Voice,
}

/// Whether this node is on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Leaving {
    No,
    /// For which reason.
    Announced(String),
    /// The cluster can't do without this node.
    Refused,
}

impl Node {
    /// A node that has just begun. It says hello once [`Event::AllFound`] has come.
    #[must_use]
    pub fn new(own: Own) -> Self {
        Self {
            now: 0,
            coordinator: None,
            lease: Lease::default(),
            clock: None,
            beat: FIRST_BEAT,
            members: BTreeSet::new(),
            instances: BTreeMap::new(),
            clients: Clients::default(),
            rehearses: false,
            calls: ShellCalls::default(),
            killing: BTreeSet::new(),
            looked_for: false,
            leaving: Leaving::No,
            told_to_end: false,
            tree: Tree::new(own.name.clone()),
            voice: Voice::default(),
            own,
        }
    }

    /// How often [`Event::Tick`] is to come at first.
    #[must_use]
    pub fn first_beat() -> Duration {
        FIRST_BEAT
    }

    /// Takes an event that happened at `now`, on a clock that goes on while the machine sleeps; what is to be done
    /// about it, in this order.
    pub fn step(&mut self, now: BootTime, event: Event) -> Vec<Action> {
        self.now = now;
        self.take(event);
        self.finish_tree();
        self.set_clock();
        self.voice.take_actions()
    }

    /// One arm for each event, in a table without steps of its own.
    fn take(&mut self, event: Event) {
        match event {
            Event::Connected { connection, address, addresses } => {
                self.connected(connection, address, addresses);
            }
            Event::Disconnected { connection } => self.disconnected(connection),
            Event::Refused(reason) => self.voice.act(Action::End(Ending::Refused(reason))),
            Event::Coordinator { connection, message, body } => {
                let known = self.coordinator.as_mut();
                // What comes over a connection that was given up does not count.
                if let Some(known) = known.filter(|known| known.number == connection) {
                    known.heard = self.now;
                    self.obey(message, body);
                }
            }
            Event::Tick { address_lost, charge } => self.tick(address_lost, charge),
            Event::Terminate => self.terminate(),
            // As if it were killed: everything stays where it is.
            Event::HandOver => self.voice.act(Action::End(Ending::InOrder)),
            Event::Instance(key, event) => self.instance_event(&key, event),
            Event::RunBy(key, uid) => {
                self.with(&key, |instance, voice| instance.run_by(voice, uid));
            }
            Event::Made(key, result) => {
                self.made(&key, result);
                self.hear_early_calls();
            }
            Event::Tied(key, result) => self.tied(&key, result),
            Event::Prepared(key, result) => self.prepared(&key, result),
            Event::Running(key, result) => self.running(&key, result),
            Event::Killed(key) => self.killed(&key),
            Event::Found(record, adopted) => self.found(*record, adopted),
            Event::AllFound => self.all_found(),
            Event::Console(key, report) => self.console(&key, report),
            Event::Relay(key, event) => self.relay(&key, event),
            Event::RelaysPaused(key, number, result) => self.relays_paused(&key, number, result),
            Event::SinkLost(key, side, reason) => {
                self.with(&key, |instance, voice| instance.sink_lost(voice, &side, reason));
            }
            Event::Line(event) => self.line(event),
            Event::Clock => self.clock_strikes(),
            Event::Rest(key, waits) => {
                self.with(&key, |instance, voice| instance.rests(voice, waits));
            }
            Event::Replica(report) => self.voice.tell(FromAgent::Replica(report)),
            Event::Successor { asker, question } => self.successor(asker, question),
            Event::FollowedNoted { followed, asker, failure } => {
                self.followed_noted(followed, asker, failure);
            }
            Event::ClientOpened { client, user } => self.client_opened(client, user),
            Event::ClientLine { client, line } => {
                self.voice.tell(FromAgent::ClientLine { client, line });
            }
            Event::ClientClosed { client } => self.client_closed(client),
            Event::Called(call) => self.called(*call),
            Event::CallerTied(key, sides) => self.caller_tied(&key, sides),
            Event::ShellSignal(key, signal) => self.shell_signal(&key, signal),
            Event::Copied(copied) => {
                self.with(&copied.key.clone(), |instance, voice| instance.copied(voice, *copied));
            }
            Event::Fetched(job, instance, checkpoint, result) => {
                let failure = result.err();
                self.voice.tell(FromAgent::Copied { job, instance, checkpoint, failure });
            }
            Event::Marked(key, number, result) => {
                if let Err(reason) = result {
                    // What a partner lacks it gets once it is asked for the image: the coordinator's log is the truth.
                    self.voice.warn(&key, reason);
                }
                self.with(&key, |instance, voice| instance.committed_here(voice, number));
            }
            Event::Dmtcp(image, result) => self.dmtcp_done(image, result),
            Event::Rehearsed(number, instance) => self.rehearsed(number, instance),
            Event::Looked(client, found) => self.looked(client, found),
            Event::Adopted(client, job, result) => self.adopted(client, job, result),
        }
    }

    /// Does what is reported of an instance, or wanted of it. One that is not here has been killed, or was given up by the
    /// coordinator: nothing that is still said of it counts.
    fn with<T>(
        &mut self,
        key: &InstanceKey,
        act: impl FnOnce(&mut Instance, &mut Voice) -> T,
    ) -> Option<T> {
        self.instances.get_mut(key).map(|instance| act(instance, &mut self.voice))
    }

    /// Something has been done with an instance that was not asked for.
    fn out_of_turn(&self, key: &InstanceKey, done: &str) {
        let state = self.instances.get(key).map(|known| &known.state);
        tracing::error!(%key, ?state, "it was {done} out of turn");
    }

    fn instance_event(&mut self, key: &InstanceKey, event: InstanceEvent) {
        match event {
            InstanceEvent::Agent(event) => self.agent_event(key, event),
            InstanceEvent::RootEnded(status) => {
                self.with(key, |instance, voice| instance.root_ended(voice, status));
            }
            InstanceEvent::Empty => self.emptied(key),
            InstanceEvent::Listens(listeners) => {
                self.with(key, |instance, voice| {
                    instance.listeners.clone_from(&listeners);
                    voice.report(key, InstanceEvent::Listens(listeners));
                });
            }
        }
    }

    /// Inits of the other instances of a job on this machine, for a process that has something to say to its departed
    /// daemon.
    #[must_use]
    pub fn other_inits(&self, key: &InstanceKey) -> Vec<i32> {
        let same =
            |other: &InstanceKey| other != key && other.job == key.job && other.epoch == key.epoch;
        let others = self.instances.iter().filter(|(other, _)| same(other));
        let alive = others.filter(|(_, instance)| instance.lives() && instance.init != 0);
        alive.map(|(_, instance)| instance.init).collect()
    }

    /// Whether the coordinator has bid this node welcome over the connection that there is.
    fn is_welcome(&self) -> bool {
        self.voice.is_heard()
    }

    fn connected(&mut self, number: u64, address: SocketAddr, addresses: Vec<IpAddr>) {
        let profile = &mut self.own.profile;
        let before = profile.address.ip().to_canonical();
        let now = address.ip().to_canonical();
        if !before.is_unspecified() && before != now {
            tracing::info!(%before, %now, "this machine's address has changed");
            self.voice.act(Action::OwnAddressChanged);
        }
        profile.address = address;
        profile.addresses = addresses;
        let (hello_sent, heard) = (0, 0);
        self.coordinator =
            Some(Coordinator { number, hello_sent, term: None, heard, unanswered: 0 });
        self.voice.mute();
        if self.looked_for {
            self.say_hello();
        }
    }

    fn disconnected(&mut self, connection: u64) {
        if self.coordinator.as_ref().is_some_and(|known| known.number == connection) {
            self.coordinator = None;
            self.voice.mute();
            self.clients.close_all(&mut self.voice);
        }
    }

    fn tick(&mut self, address_lost: bool, charge: Option<Charge>) {
        let welcome = self.is_welcome();
        if let Some(coordinator) = self.coordinator.as_mut().filter(|_| welcome) {
            let sequence = self.lease.beat(self.now);
            let answered = self.lease.answered();
            let running = self.instances.values().filter(|known| known.state == State::Running);
            let inits = running.map(|known| known.init).filter(|init| *init > 0).collect();
            self.voice.act(Action::Beat { sequence, answered, inits, charge });
            coordinator.unanswered += 1;
            if coordinator.unanswered > UNANSWERED {
                // Packets are lost, or the coordinator's machine is gone without a word.
                self.voice.act(Action::GiveUp(Some(coordinator.number)));
            }
        }
        if address_lost && self.coordinator.is_some() {
            // Nothing comes over the connection any more, and nobody would say so.
            self.leave_coordinator();
        }
        self.keep_lease();
        self.look_at_battery(charge);
    }

    fn clock_strikes(&mut self) {
        if self.clock.is_some_and(|at| at <= self.now) {
            self.clock = None;
        }
        self.keep_lease();
        self.tree_clock();
    }

    /// Sees to it that the end of the lease, and that of the tree's next limit, are not missed by a heartbeat's time.
    fn set_clock(&mut self) {
        let running = self.instances.values().filter(|instance| instance.runs());
        let lease = running.map(|instance| instance.leased_until(&self.lease));
        let lease = lease.filter(|until| *until > 0);
        let wanted = lease.min().into_iter().chain(self.tree.deadline()).min();
        if let Some(wanted) = wanted.filter(|at| self.clock.is_none_or(|set| *at < set)) {
            self.clock = Some(wanted);
            self.voice.act(Action::Clock(wanted));
        }
    }

    /// Leaves the cluster where the battery is too low, and asks again where the cluster could not do without this node.
    fn look_at_battery(&mut self, charge: Option<Charge>) {
        if !self.is_welcome() || matches!(self.leaving, Leaving::Announced(_)) {
            return;
        }
        if let Some(reason) = self.own.battery.look(charge) {
            tracing::warn!("leaving the cluster: {reason}");
            self.leaving = Leaving::Announced(reason);
            self.announce_leaving();
        }
    }

    fn terminate(&mut self) {
        if std::mem::replace(&mut self.told_to_end, true) || !self.is_welcome() {
            return self.voice.act(Action::End(Ending::InOrder));
        }
        if !matches!(self.leaving, Leaving::Announced(_)) {
            self.leaving = Leaving::Announced("the agent was told to end".to_owned());
            self.announce_leaving();
        }
    }

    /// Says that this node goes, if that was announced.
    fn announce_leaving(&mut self) {
        if let Leaving::Announced(reason) = &self.leaving {
            self.voice.tell(FromAgent::Leaving { reason: reason.clone() });
        }
    }

    /// The cluster can't do without this node, or not any more.
    fn stay(&mut self, reason: &str) {
        if matches!(self.leaving, Leaving::Announced(_)) {
            self.leaving = Leaving::Refused;
            let then = if self.told_to_end {
                "told once more, the agent ends, and what runs here stands still until one is back"
            } else {
                "it stays, and asks again"
            };
            tracing::error!("failed to leave the cluster: {reason}; {then}");
        }
    }
}
