//! Does what the node decides, with real processes, files and connections. Everything that waits is a task of its own,
//! which reports through a channel.

mod adopting;
mod copying;
mod dmtcp;
mod failure;
mod giving;
mod instances;
mod keeping;
mod killing;
mod launching;
mod lines;
mod looking;
mod rehearsing;
mod relays;
mod restoring;
mod served;
mod shell_calls;
mod shell_end;
mod succession;
mod traffic;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ckpt_node::{Action, Adopted, BatteryGuard, BootTime, Ending, Event, Made, Node, Own};
use command_tree::Line;
use protocol::cluster::agent::{FromAgent, HeldInstance, NodeProfile, ToAgent};
use protocol::cluster::succession::{Followed, ToSuccessor};
use protocol::cluster::{InstanceKey, NodeName, VERSIONS};
use protocol::task;
use protocol::transport::{Identity, Members};
use tokio::sync::mpsc::{Sender, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};

use self::served::Served;
use self::shell_calls::Callers;
use super::busy::Busy;
use super::clients::{Clients, NOT_TOLD_APART, is_told_apart};
use super::clock::boot_time;
use super::folders::Folders;
use super::host::{Battery, Gauge, addresses, has_address, vitals};
use super::instance::Started;
use super::keys::Keys;
use super::line_queue::Queue;
use super::link::Message;
use super::peers::Peers;
use super::relay::Hub;
use super::replica::Replica;
use super::report::Found;
use super::report::{Report, Reports};
use super::tree::Lines;
use crate::driver::traffic::{Traffic, TrafficError};
use crate::port::Port;
use crate::rewire::Wires;
use ckpt_engine::fault;
use ckpt_engine::session;

/// What an agent works with.
pub struct Parts {
    /// Its node's name.
    pub name: NodeName,
    /// Where things are kept.
    pub folders: Folders,
    /// What it offers; addresses without their host.
    pub profile: NodeProfile,
    /// How fast it is.
    pub gauge: Gauge,
    /// Its battery.
    pub battery: Battery,
    /// Where other machines reach it.
    pub port: Port,
    /// Other agents.
    pub peers: Peers,
    /// Its certificate, and the coordinator that it follows.
    pub identity: Arc<Identity>,
    /// Its copy of the coordinator's folder.
    pub replica: Replica,
    /// Nodes whose agents may connect.
    pub members: Members,
    /// Relays.
    pub hub: Hub,
    /// What makes connections of jobs.
    pub wires: Arc<Wires>,
    /// Images that are being copied or fetched.
    pub busy: Busy,
    /// Keys of images.
    pub keys: Keys,
    /// Where lines of the command tree are made.
    pub lines: Lines,
    /// What encrypts jobs' traffic; None: nothing does.
    pub traffic: Option<Traffic>,
    /// The way back to the driver.
    pub reports: Reports,
    /// Closes connections over which nothing is heard.
    pub give_up: watch::Sender<u64>,
}

/// The connection to the coordinator.
struct Coordinator {
    number: u64,
    /// This machine's address on it.
    local: IpAddr,
    /// Where others reach it.
    address: SocketAddr,
    queue: UnboundedSender<Message<FromAgent>>,
}

/// The node, and all that it works with.
pub struct Driver {
    parts: Parts,
    node: Node,
    /// What actions have reported at once.
    events: VecDeque<Event>,
    coordinator: Option<Coordinator>,
    beat: watch::Sender<Duration>,
    instances: BTreeMap<InstanceKey, Served>,
    clients: Clients,
    /// Local commands for which images are being read: whether they have gone.
    readers: HashMap<u64, Arc<AtomicBool>>,
    callers: Callers,
    lines: BTreeMap<Line, (u64, Queue)>,
    /// Successors that wait for an answer.
    askers: HashMap<u64, oneshot::Sender<ToSuccessor>>,
    next_asker: u64,
    traffic_failure: Option<TrafficError>,
}

impl Driver {
    /// A node that has just begun, and leaves when `guard` says that the battery is too low. The receiver says how
    /// often [`Report::Tick`] is to come.
    #[must_use]
    pub fn new(parts: Parts, guard: BatteryGuard) -> (Self, watch::Receiver<Duration>) {
        let (beat, beats) = watch::channel(Node::first_beat());
        let node = Node::new(Own {
            name: parts.name.clone(),
            profile: parts.profile.clone(),
            battery: guard,
            followed: parts.identity.followed(),
        });
        let driver = Self {
            parts,
            node,
            events: VecDeque::new(),
            coordinator: None,
            beat,
            instances: BTreeMap::new(),
            clients: Clients::default(),
            readers: HashMap::new(),
            callers: Callers::default(),
            lines: BTreeMap::new(),
            askers: HashMap::new(),
            next_asker: 0,
            traffic_failure: None,
        };
        (driver, beats)
    }

    /// Takes a report. Some: the agent ends.
    pub fn handle(&mut self, report: Report) -> Option<Ending> {
        self.take(report);
        let mut ending = None;
        while let Some(event) = self.events.pop_front() {
            for action in self.node.step(boot_time(), event) {
                if let Action::End(how) = action {
                    ending = Some(how);
                } else {
                    self.perform(action);
                }
            }
        }
        ending
    }

    /// Makes events of a report.
    fn take(&mut self, report: Report) {
        let event = match report {
            Report::Node(event) => event,
            Report::Connected { connection, to, local } => {
                match self.connected(connection, to, local) {
                    Some(event) => event,
                    None => return,
                }
            }
            Report::Coordinator { message: ToAgent::Granted { grants, now_ms, keys }, .. } => {
                self.parts.keys.learn(keys);
                return self.parts.peers.grants().keep(grants, now_ms);
            }
            Report::Coordinator { connection, message, body } => {
                if matches!(message, ToAgent::Kill { .. }) {
                    fault::point("kill");
                }
                Event::Coordinator { connection, message, body }
            }
            Report::Disconnected(connection) => {
                self.coordinator.take_if(|known| known.number == connection);
                Event::Disconnected { connection }
            }
            Report::Tick => {
                let lost = |known: &Coordinator| !has_address(known.local);
                let address_lost = self.coordinator.as_ref().is_some_and(lost);
                Event::Tick { address_lost, charge: self.parts.battery.charge() }
            }
            Report::Started(key, result) => {
                let made = result.map(|started| self.started(&key, started));
                Event::Made(key, made)
            }
            Report::Found(found) => self.found(*found),
            Report::Relay(key, event) => {
                if let ckpt_node::RelayEvent::Done(side) = &event {
                    if let Some(served) = self.instances.get_mut(&key) {
                        served.relays.retain(|relay| relay.side != *side);
                        served.sinks.remove(side);
                    }
                }
                Event::Relay(key, event)
            }
            Report::OtherInits(key, answer) => {
                // Whoever asked may have gone with its instance.
                let _ = answer.send(self.node.other_inits(&key));
                return;
            }
            Report::ClientOpened { client, user, answers } => {
                self.clients.add(client, answers);
                if !is_told_apart(&user) {
                    self.clients.refuse(client, NOT_TOLD_APART);
                    return;
                }
                Event::ClientOpened { client, user }
            }
            Report::ClientClosed(client) => {
                self.clients.remove(client);
                Event::ClientClosed { client }
            }
            Report::Shell(caller) => return self.called(*caller),
            Report::StateAsked(answer) => self.state_asked(answer),
            Report::FollowAsked(followed, answer) => self.follow_asked(followed, answer),
            Report::LineAccepted { node, number, queue } => self.line_accepted(node, number, queue),
            Report::LineHeard { line, number, message } => {
                return self.line_heard(line, number, message);
            }
            Report::LineBroken { line, number } => return self.line_broken(line, number),
        };
        self.events.push_back(event);
    }

    /// One arm for each action, in a table without steps of its own.
    fn perform(&mut self, action: Action) {
        match action {
            Action::Tell(message, body) => self.say(*message, body),
            Action::Hello { followed, profile, instances } => {
                self.say_hello(followed, *profile, instances);
            }
            Action::Beat { sequence, answered, inits, charge } => {
                let vitals = vitals(self.parts.gauge.read(inits), charge);
                self.say(FromAgent::Heartbeat { sequence, answered, vitals }, Vec::new());
            }
            Action::BeatEvery(period) => drop(self.beat.send_replace(period)),
            Action::GiveUp(number) => self.give_up(number),
            Action::SetPeers { peers, expelled } => {
                self.parts.members.set(self.parts.peers.set(&peers, expelled));
                self.update_traffic();
            }
            Action::ChangePeers { there, gone, expelled } => {
                self.parts.members.set(self.parts.peers.change(there, &gone, expelled));
                self.update_traffic();
            }
            Action::OwnAddressChanged => {
                self.parts.peers.own_address_changed();
                self.update_traffic();
            }
            Action::NoteFollowed { followed, asker } => {
                self.note_followed(followed, asker);
                self.update_traffic();
            }
            Action::AnswerSuccessor(asker, answer) => self.answer_successor(asker, answer),
            Action::End(_) => unreachable!("whoever performs actions has seen to the end"),

            Action::Launch(launch) => self.launch(*launch),
            Action::Prepare(order) => self.prepare(*order),
            Action::Restore(restore) => self.restore(*restore),
            Action::Tie(tie) => self.tie(tie),
            Action::Go(key) => self.go(&key),
            Action::Hold(key) => self.hold(&key),
            Action::Release(key) => self.release(&key),
            Action::Lease(key, until) => {
                self.with(&key, |served| served.instance.session().lease(until))
            }
            Action::Kill(kills) => self.kill(kills),
            Action::Forget(key) => self.forget(&key),
            Action::WriteRecord(record) => self.write_record(&record),
            Action::Command(key, command) => self.command(&key, command),
            Action::Addresses(key, addresses) => {
                self.with(&key, |served| served.instance.session().addresses(addresses))
            }
            Action::CloseEnd(key, end) => self.with(&key, |served| served.instance.close_end(end)),
            Action::RelayStates(key, states) => {
                self.with(&key, |served| served.instance.relay_states(states));
            }

            Action::Console(key, order) => self.console(&key, order),
            Action::Relay(key, side, order) => self.relay(&key, &side, order),
            Action::PauseRelays(key, checkpoint) => self.pause_relays(&key, checkpoint),
            Action::Sink(key, link) => self.sink(&key, link),
            Action::WatchRest(key) => self.watch_rest(&key),

            Action::ReadEfforts(key) => self.read_efforts(&key),
            Action::CopyImage(copy) => self.copy_image(*copy),
            Action::StopCopying(key) => self.stop_copying(&key),
            Action::MarkCopies { key, record, holders } => self.mark_copies(key, *record, holders),
            Action::Mark { job, instance, record } => self.mark(&job, instance, *record),
            Action::Keep(kept) => self.keep(*kept),
            Action::FetchCopy { job, instance, checkpoint, holders, digest } => {
                self.fetch_copy(job, instance, checkpoint, holders, digest);
            }
            Action::Dmtcp(order) => self.dmtcp(order),

            Action::Rehearse(order) => self.rehearse(*order),
            Action::Look { client, job, images, look } => self.look(client, job, images, look),
            Action::Give { client, job, image, holder } => self.give(client, job, image, holder),
            Action::Adopt(order) => self.adopt(*order),
            Action::StopLook(client) => self.stop_look(client),
            Action::Answer(client, line) => self.clients.answer(client, line),
            Action::RefuseClient(client, reason) => self.clients.refuse(client, reason),
            Action::CloseClients => self.clients.close_all(),

            Action::CallAgain(number) => self.call_again(number),
            Action::FailCall(number, reason) => self.callers.fail(number, reason),
            Action::DropCall(number) => self.callers.forget(number),
            Action::TieCaller { number, key, peer, node } => {
                self.tie_caller(number, &key, peer, node);
            }
            Action::TellShell(key, status) => self.tell_shell(&key, status),

            Action::OpenLine(node) => self.open_line(node),
            Action::SendLine(line, message) => self.send_line(&line, message),
            Action::ClearLine(line) => self.clear_line(&line),
            Action::CloseLine(line) => drop(self.lines.remove(&line)),
            Action::Clock(at) => self.set_clock(at),

            Action::Replica(order, body) => self.parts.replica.order(order, body),
            Action::AwaitReplica => self.parts.replica.wait_until_done(),
        }
    }

    fn connected(
        &mut self,
        connection: u64,
        to: Sender<Message<FromAgent>>,
        local: IpAddr,
    ) -> Option<Event> {
        let address = match self.parts.port.open_at(local) {
            Ok(address) => address,
            Err(error) => {
                // As a member it would be trusted with images that it can't give to anybody.
                tracing::error!("can't be a member of the cluster meanwhile: failed to {error}");
                self.give_up(Some(connection));
                return None;
            }
        };
        let (queue, mut waiting) = unbounded_channel::<Message<FromAgent>>();
        task::spawn(async move {
            while let Some(message) = waiting.recv().await {
                if to.send(message).await.is_err() {
                    return;
                }
            }
        });
        self.coordinator = Some(Coordinator { number: connection, local, address, queue });
        self.update_traffic();
        Some(Event::Connected { connection, address, addresses: addresses(address.ip()) })
    }

    fn say(&self, message: FromAgent, body: Vec<u8>) {
        if let Some(coordinator) = &self.coordinator {
            // A connection that has ended is reported by itself.
            let _ = coordinator.queue.send((message, body));
        }
    }

    fn say_hello(&self, followed: Followed, profile: NodeProfile, instances: Vec<HeldInstance>) {
        let holdings = self.parts.folders.holdings();
        let (version, term) = (VERSIONS, followed.term);
        let followed = (term > 0).then_some(followed);
        let hello = FromAgent::Hello { version, term, followed, profile, instances, holdings };
        self.say(hello, Vec::new());
    }

    /// A clock that was set for another instant comes, too, and finds nothing to do.
    fn set_clock(&self, at: BootTime) {
        let wait = Duration::from_nanos(at.saturating_sub(boot_time()));
        let reports = self.parts.reports.clone();
        task::spawn(async move {
            tokio::time::sleep(wait).await;
            reports.event(Event::Clock);
        });
    }

    fn give_up(&mut self, number: Option<u64>) {
        match number {
            Some(number) => {
                self.coordinator.take_if(|known| known.number == number);
                self.parts.give_up.send_replace(number);
            }
            None => self.parts.give_up.send_modify(|_| {}),
        }
    }

    /// Does something with what serves an instance. The node names only instances that it has not told to forget.
    fn with(&self, key: &InstanceKey, act: impl FnOnce(&Served)) {
        match self.instances.get(key) {
            Some(served) => act(served),
            None => tracing::error!(%key, "nothing serves this instance"),
        }
    }

    fn with_mut(&mut self, key: &InstanceKey, act: impl FnOnce(&mut Served)) {
        match self.instances.get_mut(key) {
            Some(served) => act(served),
            None => tracing::error!(%key, "nothing serves this instance"),
        }
    }

    /// Keeps what was started until it is tied.
    fn started(&mut self, key: &InstanceKey, started: Started) -> Made {
        let made = Made {
            init: started.native.init,
            root: started.native.root,
            relays: started.relays.iter().map(|end| end.side.clone()).collect(),
            outputs: started.outputs.clone(),
            sinks: started.sinks.iter().map(|(side, _)| side.clone()).collect(),
            listeners: started.native.moved.clone(),
            warnings: started.native.warnings.clone(),
        };
        self.with_mut(key, |served| {
            served.init = made.init;
            served.untied = Some(started);
        });
        made
    }

    fn found(&mut self, found: Found) -> Event {
        let Found { instance, record, started, adopted } = found;
        let key = record.key.clone();
        let folder = self.parts.folders.instance(&key.job, key.instance);
        self.instances.insert(key.clone(), Served::new(instance, folder));
        let session::TakenOver { held, lease_until_ns: lease_until, ended, empty, touched, .. } =
            adopted;
        let made = self.started(&key, started);
        Event::Found(Box::new(record), Adopted { made, held, lease_until, ended, empty, touched })
    }
}
