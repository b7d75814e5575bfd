//! The event loop around the cluster's state machine: it does what that says.
//!
//! - `order`: in which order, and what waits until an entry is in the log and in a copy of it.
//! - `disk`: makes the log durable.
//! - `room`: how full the disk is.
//! - `shortening`: when the log is made shorter.
//! - `clients`: commands on the coordinator's own socket.

mod clients;
mod disk;
mod order;
mod room;
mod shortening;

use super::admission::SharedAdmission;
use super::audit_log::AuditLog;
use super::clock::Clock;
use super::job_logs::JobLogs;
use super::needed::needed_key;
use super::replication::Replication;
use super::sealing::OrderSealer;
use crate::cluster::entry::ClusterEntry;
use crate::cluster::{ClusterAction, ClusterEvent, ClusterMachine, PageCertificate};
use crate::journal::Journal;
use ckpt_dmtcp::cluster::{Call, Calls};
use disk::Disk;
use protocol::cluster::agent::{FromAgent, JobUser, ToAgent};
use protocol::cluster::audit::AuditEvent;
use protocol::cluster::succession::Followed;
use protocol::cluster::{NodeName, Term};
use protocol::service::Service;
use protocol::task;
use protocol::transport::{AnswerQueue, Fingerprint, Outbox, OutboxError, Written};
use room::RoomWatch;
use shortening::Shortening;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The longest sleep, so that the clock notices when the process was stopped.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// What the server's tasks report.
#[derive(Debug)]
pub enum Incoming {
    /// A node has joined with a token.
    Joined {
        /// The node.
        node: NodeName,
    },
    /// A member's agent has connected; its first message follows.
    Connected {
        /// The node.
        node: NodeName,
        /// By which key.
        key: Fingerprint,
        /// Number of the connection.
        connection: u64,
        /// The way to it.
        outbox: Outbox<ToAgent>,
        /// Dropped: the connection is closed.
        closer: mpsc::Sender<()>,
        /// Its address.
        remote: SocketAddr,
        /// Whether it is on this machine.
        is_here: bool,
    },
    /// An agent's message.
    Message {
        /// The node.
        node: NodeName,
        /// Number of the connection.
        connection: u64,
        /// The message.
        message: Box<FromAgent>,
        /// Its body.
        body: Vec<u8>,
    },
    /// An agent's connection is gone.
    Disconnected {
        /// The node.
        node: NodeName,
        /// Number of the connection.
        connection: u64,
    },
    /// Another coordinator has taken over.
    Superseded(Followed),
    /// A client of the own socket.
    ClientOpened {
        /// Its number.
        number: u64,
        /// Its user.
        user: JobUser,
        /// The way to it.
        answers: AnswerQueue,
    },
    /// The port for DMTCP's programs wants something of agents.
    Dmtcp(Call),
    /// Its line.
    ClientLine {
        /// Its number.
        number: u64,
        /// The line.
        line: String,
    },
    /// It has gone.
    ClientClosed {
        /// Its number.
        number: u64,
    },
}

#[derive(Debug)]
struct Link {
    connection: u64,
    outbox: Outbox<ToAgent>,
    /// Whether it is on this machine: what it has is lost with the coordinator.
    is_here: bool,
    /// Whether it has been told that it is welcome, before which it takes nothing.
    welcome: bool,
    _closer: mpsc::Sender<()>,
}

#[derive(Debug)]
struct Client {
    user: JobUser,
    answers: AnswerQueue,
    /// Whether it has said hello.
    greeted: bool,
}

/// Who may do what only the coordinator's own machine can.
#[derive(Debug)]
pub struct Operator {
    /// The coordinator's own user.
    pub uid: u32,
    /// Where agents reach the coordinator, for tokens.
    pub addresses: Vec<String>,
}

/// Why the loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// A vital entry could not be written: nothing may be done any more.
    Unrecorded(String),
    /// Another coordinator has taken over.
    Superseded {
        /// Its term.
        term: Term,
        /// Where it is, or who follows it.
        by: String,
    },
}

/// The loop's state.
#[derive(Debug)]
pub struct Driver {
    machine: ClusterMachine,
    journal: Journal<ClusterEntry>,
    logs: JobLogs,
    audit: AuditLog,
    admission: SharedAdmission,
    operator: Operator,
    clock: Clock,
    /// None: nothing goes by the command tree.
    sealer: Option<OrderSealer>,
    links: BTreeMap<NodeName, Link>,
    /// Those of the own socket; a node's are the machine's business.
    clients: BTreeMap<u64, Client>,
    /// What is to be handed to the machine next.
    pending: VecDeque<ClusterEvent>,
    /// What is to be done, in this order.
    queue: VecDeque<order::Queued>,
    replication: Replication,
    /// What is told to agents once a copy has their output.
    kept: VecDeque<order::Kept>,
    /// Whether other nodes may have to keep copies than before.
    log_holders_changed: bool,
    /// Members that may not have heard of this coordinator.
    absent: watch::Sender<Vec<(NodeName, SocketAddr)>>,
    ending: Option<Ending>,
    /// What agents do about images of DMTCP's processes.
    pub dmtcp: Calls,
    disk: Disk<order::Written>,
    room: RoomWatch,
    /// The page's certificate; None: there is no page.
    page: Option<watch::Receiver<Option<PageCertificate>>>,
    shortening: Shortening,
}

impl Driver {
    /// A loop around that machine, whose log `journal` is.
    ///
    /// # Errors
    /// No threads left.
    #[allow(clippy::too_many_arguments)] // What it is made of.
    pub fn new(
        machine: ClusterMachine,
        journal: Journal<ClusterEntry>,
        logs: JobLogs,
        audit: AuditLog,
        admission: SharedAdmission,
        operator: Operator,
        clock: Clock,
        replication: Replication,
        absent: watch::Sender<Vec<(NodeName, SocketAddr)>>,
    ) -> io::Result<Self> {
        let room = RoomWatch::of(logs.folder().to_owned());
        Ok(Self {
            room,
            machine,
            journal,
            logs,
            audit,
            admission,
            operator,
            clock,
            sealer: None,
            links: BTreeMap::new(),
            clients: BTreeMap::new(),
            pending: VecDeque::new(),
            queue: VecDeque::new(),
            replication,
            kept: VecDeque::new(),
            log_holders_changed: true,
            absent,
            ending: None,
            dmtcp: Calls::default(),
            disk: Disk::start()?,
            page: None,
            shortening: Shortening::default(),
        })
    }

    /// One whose log is made shorter whenever it is longer than that.
    pub fn shortening_above(self, bytes: u64) -> Self {
        Self { shortening: Shortening::above(bytes), ..self }
    }

    /// One that hears of the page's certificate.
    pub fn hearing(self, page: watch::Receiver<Option<PageCertificate>>) -> Self {
        Self { page: Some(page), ..self }
    }

    /// One that seals what agents show to each other.
    pub fn sealing(self, sealer: OrderSealer) -> Self {
        Self { sealer: Some(sealer), ..self }
    }

    /// Does what the machine says, until it can't, or must not, go on: why.
    pub async fn run(
        mut self,
        mut incoming: mpsc::Receiver<Incoming>,
        service: &mut Service,
    ) -> Option<Ending> {
        let longest_sleep = service.longest_sleep().unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        self.audit(AuditEvent::Began { term: self.machine.coordinator().term, version });
        self.tell_members();
        self.tell_named();
        self.tell_standbys();
        self.feed(ClusterEvent::Clock);
        self.perform_all();
        loop {
            if self.ending.is_some() {
                return self.ending;
            }
            let deadlines = [self.machine.deadline(), self.patience()];
            let wait = deadlines.into_iter().flatten().min().map_or(longest_sleep, |deadline| {
                let nanos = deadline.saturating_sub(self.clock.now().nanos);
                Duration::from_nanos(nanos).min(longest_sleep)
            });
            service.alive();
            let came = tokio::select! {
                came = tokio::time::timeout(wait, incoming.recv()) => Some(came),
                () = self.disk.ready() => None,
            };
            self.clock.round(wait);
            if let Some(room) = self.room.look(self.clock.now().nanos).await {
                self.feed(ClusterEvent::OwnRoom { room });
            }
            if let Some(certificate) = self.new_certificate() {
                self.feed(ClusterEvent::Page { certificate });
            }
            self.shorten_log().await;
            match came {
                Some(Ok(Some(event))) => {
                    self.take(event);
                    self.perform_all();
                    // All that has come is heard before anybody is found silent.
                    while let Ok(event) = incoming.try_recv() {
                        self.take(event);
                        self.perform_all();
                    }
                }
                Some(Ok(None)) => return None,
                Some(Err(_)) | None => {}
            }
            if self.machine.deadline().is_some_and(|due| due <= self.clock.now().nanos) {
                self.feed(ClusterEvent::Clock);
            }
            self.perform_all();
        }
    }

    /// The page's certificate, if it is another than before.
    fn new_certificate(&mut self) -> Option<Option<PageCertificate>> {
        let page = self.page.as_mut()?;
        // Without a page nobody tells of one.
        page.has_changed().unwrap_or(false).then(|| *page.borrow_and_update())
    }

    fn take(&mut self, event: Incoming) {
        match event {
            Incoming::Connected { node, key, connection, outbox, closer, remote, is_here } => {
                // It may have been turned out since it was let in.
                let newest = self.links.get(&node).is_none_or(|link| link.connection < connection);
                if newest && self.admission().is_member(&node, &key) {
                    tracing::info!("{node} is connected from {remote}");
                    self.replication.gone(&node);
                    self.log_holders_changed = true;
                    let welcome = false;
                    let link = Link { connection, outbox, is_here, welcome, _closer: closer };
                    self.links.insert(node.clone(), link);
                    // A register of before knew the hash of its certificate.
                    self.tell_member(&node);
                }
            }
            Incoming::Joined { node } => {
                self.feed(ClusterEvent::Invited { node: node.clone() });
                if let Some(key) = self.tell_member(&node) {
                    self.audit(AuditEvent::Joined { node, key: key.to_string() });
                }
            }
            Incoming::Message { node, connection, message, body } => {
                if !self.is_current(&node, connection) {
                    return;
                }
                if let FromAgent::Replica(report) = *message {
                    self.replica_report(&node, report);
                } else if !self.dmtcp.says(&node, &message) {
                    self.feed(ClusterEvent::Agent { node, connection, message: *message, body });
                }
            }
            Incoming::Disconnected { node, connection } => self.disconnected(node, connection),
            Incoming::Superseded(Followed { term, addresses, .. }) => {
                self.end_for(term, addresses.join(", "));
            }
            Incoming::ClientOpened { number, user, answers } => {
                self.clients.insert(number, Client { user, answers, greeted: false });
            }
            Incoming::Dmtcp(call) => {
                let links = self.links.iter().filter(|(_, link)| link.welcome);
                let there = links.map(|(node, link)| (node, link.is_here));
                if let Some((node, order)) = self.dmtcp.take(call, there) {
                    self.send_order(&node, *order, &[]);
                }
            }
            Incoming::ClientLine { number, line } => self.line(number, &line),
            Incoming::ClientClosed { number } => self.gone(number),
        }
    }

    fn is_current(&self, node: &NodeName, connection: u64) -> bool {
        self.links.get(node).is_some_and(|link| link.connection == connection)
    }

    fn disconnected(&mut self, node: NodeName, connection: u64) {
        if self.is_current(&node, connection) {
            tracing::info!("{node} is disconnected");
            self.links.remove(&node);
            self.dmtcp.gone(&node);
            self.replication.gone(&node);
            self.log_holders_changed = true;
            self.feed(ClusterEvent::Disconnected { node, connection });
        }
    }

    fn admission(&self) -> MutexGuard<'_, super::admission::Admission> {
        self.admission.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands the machine an event, after those that wait already.
    fn feed(&mut self, event: ClusterEvent) {
        self.pending.push_back(event);
    }

    /// Does what the machine says, until nothing is left to be done.
    fn perform_all(&mut self) {
        while self.ending.is_none() {
            if let Some((written, done)) = self.disk.take() {
                self.is_done(written, done);
            }
            if let Some(event) = self.pending.pop_front() {
                let actions = self.machine.step(self.clock.now(), event);
                self.put(actions);
            }
            self.go_on();
            if self.pending.is_empty() {
                break;
            }
        }
        self.replicate();
    }

    fn act(&mut self, action: ClusterAction) {
        match action {
            ClusterAction::Send { node, message: ToAgent::ConsoleKept { key, offset }, .. } => {
                self.console_kept(node, key, offset);
            }
            ClusterAction::Send { node, message, body } => self.send_order(&node, message, &body),
            ClusterAction::Broadcast { message, except } => {
                self.broadcast(&message, except.as_ref());
            }
            ClusterAction::Superseded { term, by } => {
                self.end_for(term, format!("{by} follows it"));
            }
            ClusterAction::Disconnect { node } => self.disconnect(&node),
            ClusterAction::Revoke { node } => {
                tracing::info!("{node} is turned out");
                if let Err(error) = self.admission().revoke(&node) {
                    tracing::error!("failed to {error}");
                }
                self.tell_standbys();
            }
            ClusterAction::NameStandby { node, on } => {
                if let Err(error) = self.admission().name_standby(&node, on) {
                    tracing::error!("failed to {error}");
                }
                self.tell_standbys();
            }
            ClusterAction::Answer { client, answer } => self.answer(&client, &answer),
            ClusterAction::Replay { client, job, pieces, times } => {
                self.replay(&client, &job, &pieces, times);
            }
            ClusterAction::LogSince { client, job, at_ms, epoch } => {
                self.tell_log_since(&client, &job, at_ms, epoch);
            }
            ClusterAction::Close { client } => self.close(&client),
            ClusterAction::Log { job, bytes, written } => {
                let now_ms = self.clock.now().unix_ms;
                let done = self.logs.append(&job, &bytes, (written, now_ms));
                complain("write to the log of", &job, done);
            }
            ClusterAction::CutLog { job, length, checkpoint } => {
                let done = self.logs.cut(&job, length, checkpoint);
                complain("put back the log of", &job, done);
                self.kept.retain(|kept| !kept.is_of(&job));
                self.copies(|replication, send| replication.cut(&job, length, send));
            }
            ClusterAction::Audit { event } => self.audit(event),
            ClusterAction::ShowAudit { client, from } => self.show_audit(&client, from),
            ClusterAction::RemoveJob { job } => {
                let done = self.logs.remove(&job);
                complain("remove the folder of", &job, done);
                self.copies(|replication, send| replication.forget(&job, send));
            }
            // Done in `order`, together with its neighbours.
            ClusterAction::Append { .. } => {}
        }
    }

    /// Sends an order, and before it what its execution takes.
    fn send_order(&mut self, node: &NodeName, mut order: ToAgent, body: &[u8]) {
        let now_ms = self.clock.now().unix_ms;
        let keys = needed_key(&order).map(|job| self.machine.image_keys(job));
        let sealed = match &mut self.sealer {
            Some(sealer) => {
                sealer.seal(&mut order).and_then(|()| sealer.granted(&order, node, now_ms, keys))
            }
            None => Ok(None),
        };
        match sealed {
            Ok(granted) => {
                // Whoever is not welcome yet expects nothing else.
                let welcomes = matches!(order, ToAgent::Welcome { .. });
                if let Some(granted) = granted.as_ref().filter(|_| !welcomes) {
                    self.send(node, granted, &[]);
                }
                self.send(node, &order, body);
                if let Some(granted) = granted.filter(|_| welcomes) {
                    self.send(node, &granted, &[]);
                }
            }
            // It can't be executed, then: its limit runs out.
            Err(error) => tracing::error!("failed to seal an order for {node}: {error}"),
        }
    }

    /// Sends the same to everybody: neither an order that bears a seal, nor one that needs a grant.
    fn broadcast(&mut self, message: &ToAgent, except: Option<&NodeName>) {
        let written = match Written::of(message, &[]) {
            Ok(written) => written,
            Err(error) => return tracing::error!("failed to send to all members: {error}"),
        };
        let welcome =
            self.links.iter().filter(|(node, link)| link.welcome && Some(*node) != except);
        let sent = welcome.map(|(node, link)| (node, link.outbox.send_written(&written)));
        let failed: Vec<(NodeName, OutboxError)> =
            sent.filter_map(|(node, sent)| Some((node.clone(), sent.err()?))).collect();
        for (node, error) in failed {
            self.not_sent(&node, &error);
        }
    }

    fn send(&mut self, node: &NodeName, message: &ToAgent, body: &[u8]) {
        // The machine hears of the connection's end when its turn comes, and says again what has to arrive.
        let Some(link) = self.links.get_mut(node) else { return };
        if matches!(message, ToAgent::Welcome { .. }) {
            link.welcome = true;
            self.log_holders_changed = true;
        }
        if let Err(error) = link.outbox.send(message, body) {
            self.not_sent(node, &error);
        }
    }

    fn not_sent(&mut self, node: &NodeName, error: &OutboxError) {
        // Of one that is closed, the other side of the connection tells.
        if matches!(error, OutboxError::Closed) {
            return;
        }
        let Some(link) = self.links.remove(node) else { return };
        tracing::warn!("failed to send to {node}: {error}");
        self.replication.gone(node);
        let (node, connection) = (node.clone(), link.connection);
        self.feed(ClusterEvent::Disconnected { node, connection });
    }

    /// Closes a connection; what is queued is still sent.
    fn disconnect(&mut self, node: &NodeName) {
        if let Some(link) = self.links.remove(node) {
            tracing::info!("{node} is let go");
            self.replication.gone(node);
            let connection = link.connection;
            // What is queued goes out first: the reader's side is kept until then.
            task::spawn(async move {
                let Link { outbox, _closer, .. } = link;
                drop(outbox);
                tokio::time::sleep(Duration::from_secs(1)).await;
            });
            let node = node.clone();
            self.feed(ClusterEvent::Disconnected { node, connection });
        }
    }
}

fn complain(what: &str, job: &str, done: std::io::Result<()>) {
    if let Err(error) = done {
        tracing::error!("failed to {what} {job}: {error}");
    }
}
