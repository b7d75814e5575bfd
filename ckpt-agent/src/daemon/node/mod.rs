//! The state of this node, and what it does about each event.

mod checkpoints;
mod dmtcp;
mod ending;
mod fallen;
mod following;
mod hello;
mod instance;
mod launching;
mod looking;
mod orders;
mod rehearsing;
mod reports;
mod restoring;
mod shell_calls;
mod tree;

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use protocol::cluster::agent::{FromAgent, NodeProfile};
use protocol::cluster::client::NO_COORDINATOR;
use protocol::cluster::{Epoch, InstanceKey, NodeName, Term};
use protocol::transport::{Identity, Members};
use tokio::sync::mpsc::{Sender, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use self::instance::{Instance, State};
use self::looking::Reader;
use self::shell_calls::ShellCalls;

pub use self::instance::Record;

use super::busy::Busy;
use super::clients::{ClientEvent, Clients};
use super::control::StartControl;
use super::event::{Event, Events};
use super::folders::Folders;
use super::lease::{BootTime, Lease, boot_time};
use super::link::Message;
use super::machine::{Battery, BatteryGuard, Gauge};
use super::peers::Peers;
use super::relay::Hub;
use super::replica::Replica;
use super::tree::{Tree, TreeEvent};
use crate::rewire::WirePort;

/// Heartbeats that may be unanswered before the connection is taken for dead.
const UNANSWERED: u32 = 5;
/// How often the node looks at its lease before any coordinator has said how often to beat.
const FIRST_BEAT: Duration = Duration::from_millis(500);

/// What a node is made of.
pub struct Parts {
    /// Its name.
    pub name: NodeName,
    /// Where things are kept.
    pub folders: Folders,
    /// What it offers; addresses without their host.
    pub profile: NodeProfile,
    /// How fast it is.
    pub gauge: Gauge,
    /// Its battery, and when that is too low.
    pub battery: (Battery, BatteryGuard),
    /// Where other agents reach it, if the user said so.
    pub host: Option<IpAddr>,
    /// Makes hands on instances.
    pub start_control: StartControl,
    /// Other agents.
    pub peers: Peers,
    /// Its certificate, and whom it follows.
    pub identity: Arc<Identity>,
    /// Its copy of the coordinator's folder.
    pub replica: Replica,
    /// Who may connect as another agent.
    pub members: Members,
    /// Relays.
    pub hub: Hub,
    /// Where connections of jobs arrive.
    pub wire: Arc<WirePort>,
    /// Images that are being copied or fetched.
    pub busy: Busy,
    /// This node's part of the command tree.
    pub tree: Tree,
    /// The way back to the node's own task.
    pub events: Events,
    /// Closes connections over which nothing is heard.
    pub give_up: watch::Sender<u64>,
}

/// The connection to the coordinator.
struct Coordinator {
    number: u64,
    /// This machine's address on it.
    local: IpAddr,
    queue: UnboundedSender<Message<FromAgent>>,
    hello_sent: BootTime,
    welcome: bool,
    /// Its term, once it has said it.
    term: Option<Term>,
    /// When it last said anything.
    heard: BootTime,
    unanswered: u32,
}

/// This node.
pub struct Node {
    parts: Parts,
    coordinator: Option<Coordinator>,
    lease: Lease,
    beat: watch::Sender<Duration>,
    instances: BTreeMap<InstanceKey, Instance>,
    clients: Clients,
    /// Local users for whom images are being read.
    readers: Vec<Reader>,
    /// Whether a restart is being rehearsed here.
    rehearses: bool,
    calls: ShellCalls,
    /// Kills that wait until nothing is left.
    killing: HashSet<(String, Epoch)>,
    /// Whether all instances are known that outlived the agent before.
    looked_for: bool,
    leaving: Leaving,
    /// Whether the agent was told to end.
    told_to_end: bool,
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

/// Whether the agent goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    GoOn,
    /// It ends; everything is in order.
    End,
    /// The coordinator does not want it.
    Refused(String),
}

impl Node {
    /// One that has just begun. `beat` says how often [`Event::Tick`] is to come.
    #[must_use]
    pub fn new(parts: Parts) -> (Self, watch::Receiver<Duration>) {
        let (beat, beats) = watch::channel(FIRST_BEAT);
        let calls = ShellCalls::default();
        let node = Self {
            parts,
            coordinator: None,
            lease: Lease::default(),
            beat,
            instances: BTreeMap::new(),
            clients: Clients::default(),
            readers: Vec::new(),
            rehearses: false,
            calls,
            killing: HashSet::new(),
            looked_for: false,
            leaving: Leaving::No,
            told_to_end: false,
        };
        (node, beats)
    }

    /// Takes an event.
    pub fn handle(&mut self, event: Event) -> Verdict {
        match event {
            Event::Connected { connection, to, local } => self.connected(connection, to, local),
            Event::Disconnected { connection } => self.disconnected(connection),
            Event::Refused(reason) => return Verdict::Refused(reason),
            Event::Coordinator { connection, message, body } => {
                let known = self.coordinator.as_mut();
                if let Some(known) = known.filter(|known| known.number == connection) {
                    known.heard = boot_time();
                    return self.obey(message, body);
                }
            }
            Event::Tick => self.tick(),
            Event::Terminate => return self.terminate(),
            // As if it were killed: everything stays where it is.
            Event::HandOver => return Verdict::End,
            Event::Instance(key, event) => self.instance_event(&key, event),
            Event::RunBy(key, uid) => self.run_by(&key, uid),
            Event::Made(key, result) => {
                self.made(&key, result);
                self.hear_early_calls();
            }
            Event::Prepared(key, result) => self.prepared(&key, result),
            Event::Running(key, result) => self.running(&key, result),
            Event::Killed(key) => self.killed(&key),
            Event::Found(control, record, adopted) => self.found(control, *record, *adopted),
            Event::AllFound => self.all_found(),
            Event::Console(key, report) => self.console(&key, report),
            Event::Relay(key, event) => self.relay(&key, event),
            Event::OtherInits(key, answer) => {
                // Whoever asked may have gone with its instance.
                let _ = answer.send(self.other_inits(&key));
            }
            Event::Rest(key, waits) => self.rests(&key, waits),
            Event::RelaysPaused(key, number, result) => self.relays_paused(&key, number, result),
            Event::Tree(event) => self.tree(*event),
            Event::Replica(report) => self.tell(FromAgent::Replica(report)),
            Event::Successor(question) => self.successor(question),
            Event::Client(event) => self.client(event),
            Event::Shell(caller) => self.called(*caller),
            Event::ShellSignal(key, signal) => self.shell_signal(&key, signal),
            Event::Copied(copied) => self.copied(*copied),
            Event::Fetched(job, instance, checkpoint, result) => {
                let failure = result.err();
                self.tell(FromAgent::Copied { job, instance, checkpoint, failure });
            }
            Event::Marked(key, number, result) => self.marked(&key, number, result),
            Event::Dmtcp(image, result) => self.dmtcp_done(image, result),
            Event::Rehearsed(number, instance) => self.rehearsed(number, instance),
            Event::Looked(client, found) => self.looked(client, found),
        }
        Verdict::GoOn
    }

    /// Tells the coordinator; without one nobody: what it must know is said again in the next hello.
    fn tell(&self, message: FromAgent) {
        if let FromAgent::Instance { key, event } = &message {
            if self.parts.tree.works.awaits(key, event) {
                let answered = TreeEvent::Answered(key.clone(), event.clone());
                return self.parts.events.tell(Event::Tree(Box::new(answered)));
            }
            if let Some(operation) = self.parts.tree.works.goes_on(key, event) {
                let progressed = TreeEvent::Progressed(operation);
                self.parts.events.tell(Event::Tree(Box::new(progressed)));
            }
        }
        self.tell_with(message, Vec::new());
    }

    fn tell_with(&self, message: FromAgent, body: Vec<u8>) {
        if let Some(coordinator) = self.coordinator.as_ref().filter(|known| known.welcome) {
            // A connection that has ended is reported by itself.
            let _ = coordinator.queue.send((message, body));
        }
    }

    fn connected(&mut self, number: u64, to: Sender<Message<FromAgent>>, local: IpAddr) {
        let (queue, mut waiting) = unbounded_channel::<Message<FromAgent>>();
        tokio::spawn(async move {
            while let Some(message) = waiting.recv().await {
                if to.send(message).await.is_err() {
                    return;
                }
            }
        });
        let host = self.parts.host.unwrap_or(local);
        let before = self.parts.profile.address.ip().to_canonical();
        if !before.is_unspecified() && before != host.to_canonical() {
            tracing::info!(%before, now = %host, "this machine's address has changed");
            self.parts.peers.own_address_changed();
        }
        self.parts.profile.address = SocketAddr::new(host, self.parts.profile.address.port());
        self.parts.profile.wire = SocketAddr::new(host, self.parts.profile.wire.port());
        self.parts.profile.addresses = super::machine::addresses(host);
        let coordinator = Coordinator {
            number,
            local,
            queue,
            hello_sent: 0,
            welcome: false,
            term: None,
            heard: 0,
            unanswered: 0,
        };
        self.coordinator = Some(coordinator);
        if self.looked_for {
            self.say_hello();
        }
    }

    fn disconnected(&mut self, connection: u64) {
        if self.coordinator.as_ref().is_some_and(|known| known.number == connection) {
            self.coordinator = None;
            self.clients.close_all();
            self.readers_gone(|_| true);
        }
    }

    fn tick(&mut self) {
        let now = boot_time();
        if let Some(coordinator) = self.coordinator.as_mut().filter(|known| known.welcome) {
            let sequence = self.lease.beat(now);
            let running = self.instances.values().filter(|known| known.state == State::Running);
            let inits = running.map(|known| known.init).filter(|init| *init > 0).collect();
            let charge = self.parts.battery.0.charge();
            let vitals = super::machine::vitals(self.parts.gauge.read(inits), charge);
            let _ = coordinator.queue.send((FromAgent::Heartbeat { sequence, vitals }, Vec::new()));
            coordinator.unanswered += 1;
            if coordinator.unanswered > UNANSWERED {
                // Packets are lost, or the coordinator's machine is gone without a word.
                self.parts.give_up.send_replace(coordinator.number);
            }
        }
        let local = self.coordinator.as_ref().map(|known| known.local);
        if local.is_some_and(|local| !super::machine::has_address(local)) {
            // Nothing comes over the connection any more, and nobody would say so.
            self.leave_coordinator();
        }
        if self.lease.is_over(now) {
            self.hold_all();
        }
        self.look_at_battery();
    }

    /// Leaves the cluster where the battery is too low, and is asked again where the cluster could not do without this node.
    fn look_at_battery(&mut self) {
        let connected = self.coordinator.as_ref().is_some_and(|known| known.welcome);
        if !connected || matches!(self.leaving, Leaving::Announced(_)) {
            return;
        }
        let (battery, guard) = &mut self.parts.battery;
        if let Some(reason) = guard.look(battery.charge()) {
            tracing::warn!("leaving the cluster: {reason}");
            self.leaving = Leaving::Announced(reason);
            self.announce_leaving();
        }
    }

    fn client(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Opened { client, user, answers } => {
                if self.coordinator.as_ref().is_some_and(|known| known.welcome) {
                    self.clients.add(client, user.uid, answers);
                    self.tell(FromAgent::ClientOpened { client, user });
                } else {
                    answers.refuse(NO_COORDINATOR);
                }
            }
            ClientEvent::Line { client, line } => {
                self.tell(FromAgent::ClientLine { client, line });
            }
            ClientEvent::Closed { client } => {
                self.readers_gone(|reader| reader == client);
                if self.clients.remove(client) {
                    self.tell(FromAgent::ClientClosed { client });
                }
            }
        }
    }

    fn terminate(&mut self) -> Verdict {
        let connected = self.coordinator.as_ref().is_some_and(|known| known.welcome);
        if std::mem::replace(&mut self.told_to_end, true) || !connected {
            return Verdict::End;
        }
        if matches!(self.leaving, Leaving::Announced(_)) {
            return Verdict::GoOn;
        }
        self.leaving = Leaving::Announced("the agent was told to end".to_owned());
        self.announce_leaving();
        Verdict::GoOn
    }

    /// Says that this node goes, if that was announced.
    fn announce_leaving(&self) {
        if let Leaving::Announced(reason) = &self.leaving {
            self.tell(FromAgent::Leaving { reason: reason.clone() });
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
