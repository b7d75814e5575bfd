//! What all parts of the machine work with: the members, the clients, and what is to be done.

use super::decisions;
use super::entry::ClusterEntry;
use super::event::{ClientId, ClusterAction};
use super::logins::Logins;
use super::members::Members;
use super::noted_readings::NotedReadings;
use super::page_certificate::WatchedCertificate;
use super::secrets::SeededSecrets;
use super::settings::ClusterSettings;
use super::unproven_orders::UnprovenOrders;
use command_tree::Root;
use protocol::agent::{AgentCommand, CheckpointNumber};
use protocol::cluster::agent::{JobUser, ToAgent};
use protocol::cluster::audit::Order;
use protocol::cluster::client::Answer;
use protocol::cluster::powers::Powers;
use protocol::cluster::succession::Followed;
use protocol::cluster::{Epoch, InstanceKey, NodeName};
use protocol::room::Room;
use std::collections::{BTreeMap, BTreeSet};

/// A checkpoint whose beginning or commit is being written.
#[derive(Debug)]
pub(super) struct Hanging {
    pub(super) job: String,
    pub(super) epoch: Epoch,
    pub(super) checkpoint: CheckpointNumber,
    pub(super) entry: Box<ClusterEntry>,
}

/// A client that has said something.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) user: JobUser,
    /// The job whose output it gets.
    pub(super) job: Option<String>,
    /// Whether it has asked for anything by a login, with which it ends.
    pub(super) by_login: bool,
    /// Whether it was told that there is nothing more to come; its member has not said yet that it has gone.
    pub(super) closed: bool,
    /// By what it is known at the coordinator's page, as [`Order::page`] tells.
    pub(super) page: String,
    /// The order of which nothing is known yet but that it was given.
    pub(super) order: Option<Order>,
}

impl Client {
    /// A client that gets no job's output yet.
    pub(super) fn of(user: JobUser) -> Self {
        Self { user, job: None, by_login: false, closed: false, page: String::new(), order: None }
    }
}

/// See above.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: ClusterSettings,
    /// What agents know this coordinator by.
    pub(super) coordinator: Followed,
    /// Where coordinators were from which this one took over.
    pub(super) lost: Vec<String>,
    pub(super) secrets: SeededSecrets,
    pub(super) members: Members,
    /// What members may order; one that is not in it, nothing.
    pub(super) powers: BTreeMap<NodeName, Powers>,
    /// Members that alone get the cluster's key; none: see [`ClusterAction::NameStandby`].
    pub(super) standbys: BTreeSet<NodeName>,
    /// Users for whom only members speak that tokens have named for them.
    pub(super) named: BTreeSet<String>,
    /// On the disk of the coordinator's folder, once that was looked at.
    pub(super) own_room: Option<Room>,
    /// The page's certificate.
    pub(super) certificate: WatchedCertificate,
    /// Users' keys, and who has logged in by them.
    pub(super) logins: Logins,
    pub(super) clients: BTreeMap<ClientId, Client>,
    pub(super) noted_readings: NotedReadings,
    pub(super) unproven_orders: UnprovenOrders,
    /// Processes that count as load, by job and machine.
    pub(super) occupied: BTreeMap<String, BTreeMap<NodeName, u32>>,
    /// Operations of the command tree.
    pub(super) tree: Root,
    /// Whether the tree is to be cleared before it is used again.
    pub(super) tree_is_stale: bool,
    out: Vec<ClusterAction>,
    next_number: u64,
    hanging: BTreeMap<u64, Hanging>,
    /// Whether the last entry could not be written.
    broken: bool,
}

impl Shared {
    /// Processes that count as load, by machine; without those of one job.
    pub(super) fn busy(&self, without: Option<&str>) -> BTreeMap<NodeName, u32> {
        let mut busy: BTreeMap<NodeName, u32> = BTreeMap::new();
        let counted = self.occupied.iter().filter(|(job, _)| Some(job.as_str()) != without);
        for (node, count) in counted.flat_map(|(_, occupied)| occupied) {
            *busy.entry(node.clone()).or_default() += count;
        }
        busy
    }

    pub(super) fn new(settings: ClusterSettings, secrets: SeededSecrets) -> Self {
        let addresses = settings.addresses.clone();
        Self {
            coordinator: Followed { term: 1, addresses, ..Followed::default() },
            lost: Vec::new(),
            settings,
            secrets,
            members: Members::default(),
            powers: BTreeMap::new(),
            standbys: BTreeSet::new(),
            named: BTreeSet::new(),
            own_room: None,
            certificate: WatchedCertificate::default(),
            logins: Logins::default(),
            clients: BTreeMap::new(),
            noted_readings: NotedReadings::default(),
            unproven_orders: UnprovenOrders::default(),
            occupied: BTreeMap::new(),
            tree: Root::new(),
            tree_is_stale: false,
            out: Vec::new(),
            next_number: 1,
            hanging: BTreeMap::new(),
            broken: false,
        }
    }

    pub(super) fn take_actions(&mut self) -> Vec<ClusterAction> {
        std::mem::take(&mut self.out)
    }

    pub(super) fn act(&mut self, action: ClusterAction) {
        self.out.push(action);
    }

    /// Sends to a member, if it is connected.
    pub(super) fn send(&mut self, node: &NodeName, message: ToAgent) {
        self.send_with(node, message, Vec::new());
    }

    pub(super) fn send_with(&mut self, node: &NodeName, message: ToAgent, body: Vec<u8>) {
        if self.members.is_connected(node) {
            self.act(ClusterAction::Send { node: node.clone(), message, body });
        }
    }

    pub(super) fn command(&mut self, node: &NodeName, key: InstanceKey, command: AgentCommand) {
        self.send(node, ToAgent::Instance { key, command });
    }

    /// Sends to all members that are connected.
    pub(super) fn broadcast(&mut self, message: ToAgent) {
        self.act(ClusterAction::Broadcast { message, except: None });
    }

    pub(super) fn answer(&mut self, client: &ClientId, answer: Answer) {
        match &client.node {
            None => self.act(ClusterAction::Answer { client: client.clone(), answer }),
            Some(node) => match serde_json::to_string(&answer) {
                Ok(line) => self.tell_client(&node.clone(), client, Some(line)),
                // Nothing in an answer fails to be written; a client without one is let go.
                Err(_) => self.tell_client(&node.clone(), client, None),
            },
        }
    }

    /// The last answer of all.
    pub(super) fn answer_last(&mut self, client: &ClientId, answer: Answer) {
        if let Answer::Failed { reason, .. } = &answer {
            self.audit_failure(client, reason);
        }
        self.answer(client, answer);
        self.close(client);
    }

    pub(super) fn fail(&mut self, client: &ClientId, reason: impl Into<String>) {
        self.answer_last(client, Answer::Failed { reason: reason.into(), status: 125 });
    }

    pub(super) fn close(&mut self, client: &ClientId) {
        if let Some(known) = self.clients.get_mut(client) {
            known.closed = true;
        }
        match &client.node {
            None => self.act(ClusterAction::Close { client: client.clone() }),
            Some(node) => self.tell_client(&node.clone(), client, None),
        }
    }

    fn tell_client(&mut self, node: &NodeName, client: &ClientId, line: Option<String>) {
        if self.members.of_connection(node, client.connection).is_some() {
            self.send(node, ToAgent::Client { client: client.number, line });
        }
    }

    /// Writes an entry to the log. What follows is done only once it is durable, since actions
    /// are done in order.
    pub(super) fn append(&mut self, entry: ClusterEntry) {
        decisions::of_cluster(&entry);
        let number = self.number();
        self.act(ClusterAction::Append { number, entry });
    }

    /// Writes an entry of a checkpoint, which fails with it.
    pub(super) fn append_for_checkpoint(
        &mut self,
        entry: ClusterEntry,
        job: &str,
        epoch: Epoch,
        checkpoint: CheckpointNumber,
    ) {
        let number = self.number();
        let (job, kept) = (job.to_owned(), Box::new(entry.clone()));
        self.hanging.insert(number, Hanging { job, epoch, checkpoint, entry: kept });
        self.act(ClusterAction::Append { number, entry });
    }

    fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Whether the log could not be written the last time: nothing is written then that could as
    /// well be left out.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// An entry is durable. What hangs on it, if that is a checkpoint.
    pub(super) fn recorded(&mut self, number: u64) -> Option<Hanging> {
        self.broken = false;
        self.hanging.remove(&number)
    }

    /// An entry could not be written. What fails with it, if that is a checkpoint.
    pub(super) fn record_failed(&mut self, number: u64) -> Option<Hanging> {
        self.broken = true;
        self.hanging.remove(&number)
    }
}
