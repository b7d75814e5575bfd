//! The event loop around the cluster's state machine: it does what that says.

use super::admission::{MAX_USES, MAX_VALID_S};
use super::clock::Clock;
use super::gate::SharedAdmission;
use super::job_logs::{JobLogs, line_of};
use super::local::LineQueue;
use super::sealing::TreeSealer;
use crate::cluster::entry::ClusterEntry;
use crate::cluster::{ClientId, ClusterAction, ClusterEvent, ClusterMachine};
use crate::journal::Journal;
use protocol::cluster::agent::{FromAgent, JobUser, ToAgent};
use protocol::cluster::client::{Answer, Ask, MAX_ASK};
use protocol::cluster::{NodeName, VERSION};
use protocol::frame;
use protocol::transport::{Outbox, OutboxError};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// The longest sleep, so that the clock notices when the process was stopped.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// What the server's tasks report.
#[derive(Debug)]
pub enum Incoming {
    /// A member's agent has connected; its first message follows.
    Connected {
        /// The node.
        node: NodeName,
        /// Number of the connection.
        connection: u64,
        /// The way to it.
        outbox: Outbox<ToAgent>,
        /// Dropped: the connection is closed.
        closer: mpsc::Sender<()>,
        /// Its address.
        remote: SocketAddr,
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
    /// A client of the own socket.
    ClientOpened {
        /// Its number.
        number: u64,
        /// Its user.
        user: JobUser,
        /// The way to it.
        queue: LineQueue,
    },
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
    _closer: mpsc::Sender<()>,
}

#[derive(Debug)]
struct Client {
    user: JobUser,
    queue: LineQueue,
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

/// Entries that are in the log, but not durable yet.
#[derive(Debug, Default)]
struct Written {
    numbers: Vec<u64>,
    vital: bool,
}

/// The loop's state.
#[derive(Debug)]
pub struct Driver {
    machine: ClusterMachine,
    journal: Journal<ClusterEntry>,
    logs: JobLogs,
    admission: SharedAdmission,
    operator: Operator,
    clock: Clock,
    /// None: nothing goes by the command tree.
    sealer: Option<TreeSealer>,
    links: BTreeMap<NodeName, Link>,
    /// Those of the own socket; a node's are the machine's business.
    clients: BTreeMap<u64, Client>,
    /// What is to be handed to the machine next.
    pending: VecDeque<ClusterEvent>,
    /// Why a vital entry could not be written: nothing may be done any more.
    broken: Option<String>,
}

impl Driver {
    /// A loop around that machine, whose log `journal` is.
    pub fn new(
        machine: ClusterMachine,
        journal: Journal<ClusterEntry>,
        logs: JobLogs,
        admission: SharedAdmission,
        operator: Operator,
        clock: Clock,
    ) -> Self {
        Self {
            machine,
            journal,
            logs,
            admission,
            operator,
            clock,
            sealer: None,
            links: BTreeMap::new(),
            clients: BTreeMap::new(),
            pending: VecDeque::new(),
            broken: None,
        }
    }

    /// One that seals what goes by the command tree.
    pub fn sealing(self, sealer: TreeSealer) -> Self {
        Self { sealer: Some(sealer), ..self }
    }

    /// Does what the machine says, until a vital entry of the log can't be written: why.
    pub async fn run(mut self, mut incoming: mpsc::Receiver<Incoming>) -> Option<String> {
        self.feed(ClusterEvent::Clock);
        self.settle();
        loop {
            if self.broken.is_some() {
                return self.broken;
            }
            let wait = self.machine.deadline().map_or(LONGEST_SLEEP, |deadline| {
                let nanos = deadline.saturating_sub(self.clock.now().nanos);
                Duration::from_nanos(nanos).min(LONGEST_SLEEP)
            });
            let came = tokio::time::timeout(wait, incoming.recv()).await;
            self.clock.round(wait);
            match came {
                Ok(Some(event)) => {
                    self.take(event);
                    self.settle();
                    // All that has come is heard before anybody is found silent.
                    while let Ok(event) = incoming.try_recv() {
                        self.take(event);
                        self.settle();
                    }
                }
                Ok(None) => return None,
                Err(_) => {}
            }
            if self.machine.deadline().is_some_and(|due| due <= self.clock.now().nanos) {
                self.feed(ClusterEvent::Clock);
            }
            self.settle();
        }
    }

    fn take(&mut self, event: Incoming) {
        match event {
            Incoming::Connected { node, connection, outbox, closer, remote } => {
                // It may have been turned out since it was let in.
                let newest = self.links.get(&node).is_none_or(|link| link.connection < connection);
                if newest && self.admission().is_member(&node) {
                    tracing::info!("{node} is connected from {remote}");
                    self.links.insert(node, Link { connection, outbox, _closer: closer });
                }
            }
            Incoming::Message { node, connection, message, body } => {
                if self.is_current(&node, connection) {
                    self.feed(ClusterEvent::Agent { node, connection, message: *message, body });
                }
            }
            Incoming::Disconnected { node, connection } => self.disconnected(node, connection),
            Incoming::ClientOpened { number, user, queue } => {
                self.clients.insert(number, Client { user, queue, greeted: false });
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
            self.feed(ClusterEvent::Disconnected { node, connection });
        }
    }

    fn gone(&mut self, number: u64) {
        if self.clients.remove(&number).is_some_and(|gone| gone.greeted) {
            self.feed(ClusterEvent::ClientGone { client: own(number) });
        }
    }

    fn line(&mut self, number: u64, line: &str) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let ask = match frame::decode::<Ask>(line, MAX_ASK) {
            Ok(ask) => ask,
            Err(error) => return self.reject(number, format!("read the request: {error}")),
        };
        match (ask, client.greeted) {
            (Ask::Hello { version }, false) if version == VERSION => client.greeted = true,
            (Ask::Hello { version }, _) => {
                let reason = format!(
                    "talk to the cluster: this ckptd speaks version {version}, its coordinator \
                     {VERSION}: use the same ckptd everywhere"
                );
                self.reject(number, reason);
            }
            (_, false) => {
                self.reject(number, "talk to the cluster: no hello came first".to_owned())
            }
            (Ask::Token { uses, valid_s }, true) => self.token(number, uses, valid_s),
            (ask, true) => {
                let user = client.user.clone();
                self.feed(ClusterEvent::Asked { client: own(number), user, ask });
            }
        }
    }

    fn reject(&mut self, number: u64, reason: String) {
        self.answer(&own(number), &Answer::Failed { reason, status: 2 });
        self.gone(number);
    }

    fn token(&mut self, number: u64, uses: u32, valid_s: u64) {
        let Some(client) = self.clients.get(&number) else { return };
        let refuse = |reason: &str, status| Answer::Failed {
            reason: format!("make a join token: {reason}"),
            status,
        };
        let answer = if client.user.uid != 0 && client.user.uid != self.operator.uid {
            refuse("only root and the coordinator's own user may do that", 125)
        } else if !(1..=MAX_USES).contains(&uses) {
            refuse(&format!("it can be good for 1 to {MAX_USES} uses"), 2)
        } else if !(1..=MAX_VALID_S).contains(&valid_s) {
            refuse(&format!("it can be good for 1 to {MAX_VALID_S} seconds"), 2)
        } else {
            let addresses = self.operator.addresses.clone();
            let issued = self.admission().issue(addresses, uses, valid_s, super::wall_ms());
            match issued {
                Ok(token) => Answer::Token { token: token.to_string() },
                Err(error) => refuse(&error.to_string(), 125),
            }
        };
        self.answer(&own(number), &answer);
        self.gone(number);
    }

    fn admission(&self) -> MutexGuard<'_, super::admission::Admission> {
        self.admission.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands the machine an event, after those that wait already.
    fn feed(&mut self, event: ClusterEvent) {
        self.pending.push_back(event);
    }

    /// Does what the machine says, until nothing is left to be done.
    fn settle(&mut self) {
        while self.broken.is_none() {
            let Some(event) = self.pending.pop_front() else { return };
            let actions = self.machine.step(self.clock.now(), event);
            self.perform(actions);
        }
    }

    fn perform(&mut self, actions: Vec<ClusterAction>) {
        // Entries that follow each other become durable together.
        let mut written = Written::default();
        for action in actions {
            if let ClusterAction::Append { number, entry } = action {
                written.numbers.push(number);
                written.vital |= entry.is_vital();
                if let Err(error) = self.journal.write(&entry) {
                    self.not_recorded(std::mem::take(&mut written), &error.to_string());
                }
            } else {
                self.record(std::mem::take(&mut written));
                if self.broken.is_none() {
                    self.act(action);
                }
            }
            if self.broken.is_some() {
                return;
            }
        }
        self.record(written);
    }

    /// Makes durable what was written.
    fn record(&mut self, written: Written) {
        if written.numbers.is_empty() {
            return;
        }
        // A record may speak of what is in a job's log.
        self.logs.sync();
        match self.journal.sync() {
            Ok(()) => {
                let numbers = written.numbers.into_iter();
                self.pending.extend(numbers.map(|number| ClusterEvent::Recorded { number }));
            }
            Err(error) => self.not_recorded(written, &error.to_string()),
        }
    }

    fn not_recorded(&mut self, written: Written, reason: &str) {
        tracing::error!("failed to {reason}");
        if written.vital {
            self.broken = Some(reason.to_owned());
            return;
        }
        let numbers = written.numbers.into_iter();
        let failed = |number| ClusterEvent::RecordFailed { number, reason: reason.to_owned() };
        self.pending.extend(numbers.map(failed));
    }

    fn act(&mut self, action: ClusterAction) {
        match action {
            ClusterAction::Send { node, mut message, body } => {
                if self.sealer.as_mut().is_some_and(|sealer| sealer.seal(&mut message).is_err()) {
                    // It can't go by the tree, then: its limit runs out.
                    return tracing::error!("failed to seal an order for {node}");
                }
                self.send(&node, &message, &body);
            }
            ClusterAction::Disconnect { node } => self.disconnect(&node),
            ClusterAction::Revoke { node } => {
                tracing::info!("{node} is turned out");
                if let Err(error) = self.admission().revoke(&node) {
                    tracing::error!("failed to {error}");
                }
            }
            ClusterAction::Answer { client, answer } => self.answer(&client, &answer),
            ClusterAction::Close { client } => self.close(&client),
            ClusterAction::Log { job, bytes } => {
                let done = self.logs.append(&job, &bytes);
                complain("write to the log of", &job, done);
            }
            ClusterAction::CutLog { job, length, checkpoint } => {
                let done = self.logs.cut(&job, length, checkpoint);
                complain("put back the log of", &job, done);
            }
            ClusterAction::RemoveJob { job } => {
                let done = self.logs.remove(&job);
                complain("remove the folder of", &job, done);
            }
            // Done by the caller, together with its neighbours.
            ClusterAction::Append { .. } => {}
        }
    }

    fn send(&mut self, node: &NodeName, message: &ToAgent, body: &[u8]) {
        let Some(link) = self.links.get(node) else { return };
        let connection = link.connection;
        match link.outbox.send(message, body) {
            Ok(()) => {}
            // The other side of the connection tells.
            Err(OutboxError::Closed) => {}
            Err(error) => {
                tracing::warn!("failed to send to {node}: {error}");
                self.links.remove(node);
                let node = node.clone();
                self.feed(ClusterEvent::Disconnected { node, connection });
            }
        }
    }

    /// Closes a connection; what is queued is still sent.
    fn disconnect(&mut self, node: &NodeName) {
        if let Some(link) = self.links.remove(node) {
            tracing::info!("{node} is let go");
            let connection = link.connection;
            // What is queued goes out first: the reader's side is kept until then.
            tokio::spawn(async move {
                let Link { outbox, _closer, .. } = link;
                drop(outbox);
                tokio::time::sleep(Duration::from_secs(1)).await;
            });
            let node = node.clone();
            self.feed(ClusterEvent::Disconnected { node, connection });
        }
    }

    fn answer(&mut self, id: &ClientId, answer: &Answer) {
        let Some(client) = self.clients.get(&id.number) else { return };
        if !client.queue.put(line_of(answer)) {
            self.gone(id.number);
        }
    }

    /// Closes a client's connection after what was answered.
    fn close(&mut self, id: &ClientId) {
        self.clients.remove(&id.number);
    }
}

/// A client of the own socket.
fn own(number: u64) -> ClientId {
    ClientId { node: None, connection: 0, number }
}

fn complain(what: &str, job: &str, done: std::io::Result<()>) {
    if let Err(error) = done {
        tracing::error!("failed to {what} {job}: {error}");
    }
}
