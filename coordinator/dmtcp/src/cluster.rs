//! The cluster's nodes for the port for DMTCP's programs: its recorder, on a thread of its own, asks agents and waits.
//!
//! [`Cluster`] is the recorder's side, [`Calls`] that of the coordinator's event loop.

use crate::machine::Command;
use crate::places::Member;
use crate::server::Order;
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::agent::{FromAgent, NodeProfile, ToAgent};
use protocol::cluster::dmtcp::{DmtcpFile, DmtcpImage, DmtcpOrder, DmtcpPath, JOB_PREFIX};
use protocol::compact::KeptImages;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::sync::mpsc;

/// How long agents may take: images are written, hashed and sent.
const LIMIT: Duration = Duration::from_secs(900);

/// What agents answer: the files that were taken in, or why not.
pub type Answered = Result<Vec<DmtcpFile>, AnswerError>;

/// Why an agent did not do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// What it says itself.
    #[error("{0}")]
    Told(String),
    /// Its connection has ended, or its time is over.
    #[error("{0} has gone, or does not answer")]
    Gone(NodeName),
}

/// What is wanted of the loop.
#[derive(Debug)]
pub enum Call {
    /// Members that are there.
    Members(Sender<Vec<Member>>),
    /// An order for an agent, which it answers.
    Order {
        /// The node.
        node: NodeName,
        /// About which image.
        image: DmtcpImage,
        /// The order.
        order: Box<ToAgent>,
        /// Where its answer goes.
        answer: Sender<Answered>,
    },
    /// An order without an answer.
    Tell {
        /// The node.
        node: NodeName,
        /// The order.
        order: Box<ToAgent>,
    },
}

/// The nodes of a cluster. Its methods wait, and are not for the event loop's thread.
#[derive(Clone)]
pub struct Cluster {
    call: Arc<dyn Fn(Call) + Send + Sync>,
    orders: mpsc::Sender<Order>,
    address: SocketAddr,
}

/// An answer under way.
#[derive(Debug)]
pub struct Awaited {
    node: NodeName,
    answer: Receiver<Answered>,
    until: Instant,
}

impl Awaited {
    /// Waits for it.
    ///
    /// # Errors
    /// See [`AnswerError`].
    pub fn wait(self) -> Answered {
        let left = self.until.saturating_duration_since(Instant::now());
        // The loop drops what its node can't answer any more.
        self.answer.recv_timeout(left).unwrap_or(Err(AnswerError::Gone(self.node)))
    }
}

impl Cluster {
    /// Nodes whose loop gets calls by `call`; the port takes `orders`, and is reached at `address`.
    pub fn new(
        call: impl Fn(Call) + Send + Sync + 'static,
        orders: mpsc::Sender<Order>,
        address: SocketAddr,
    ) -> Self {
        Self { call: Arc::new(call), orders, address }
    }

    /// The members that are there.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        let (sender, members) = channel();
        (self.call)(Call::Members(sender));
        members.recv_timeout(LIMIT).unwrap_or_default()
    }

    fn order(&self, node: &NodeName, image: DmtcpImage, order: ToAgent) -> Awaited {
        let (sender, answer) = channel();
        let (node, until) = (node.clone(), Instant::now() + LIMIT);
        let order = Box::new(order);
        (self.call)(Call::Order { node: node.clone(), image, order, answer: sender });
        Awaited { node, answer, until }
    }

    /// Has a node take images into its store.
    #[must_use]
    pub fn take_in(&self, node: &NodeName, image: &DmtcpImage, files: Vec<DmtcpPath>) -> Awaited {
        let order = DmtcpOrder::TakeIn { image: image.clone(), files };
        self.order(node, image.clone(), ToAgent::Dmtcp(order))
    }

    /// Has a node get a copy.
    #[must_use]
    pub fn copy(&self, node: &NodeName, image: &DmtcpImage, holders: Vec<NodeName>) -> Awaited {
        let DmtcpImage { job, instance, checkpoint } = image.clone();
        let digest = String::new();
        self.order(
            node,
            image.clone(),
            ToAgent::Copy { job, instance, checkpoint, holders, digest },
        )
    }

    /// Has a node restart the processes of an image.
    #[must_use]
    pub fn restart(&self, node: &NodeName, image: &DmtcpImage, holders: Vec<NodeName>) -> Awaited {
        let (host, port) = (self.address.ip(), self.address.port());
        let order = DmtcpOrder::Restart { image: image.clone(), holders, host, port };
        self.order(node, image.clone(), ToAgent::Dmtcp(order))
    }

    /// Has a node keep these checkpoints of a job and no older ones.
    pub fn keep(&self, node: &NodeName, job: String, kept: &[(u32, Vec<CheckpointNumber>)]) {
        let kept = kept.iter().map(|(instance, numbers)| (InstanceId(*instance), numbers.clone()));
        let images: KeptImages = kept.collect::<BTreeMap<_, _>>().into();
        let order = Box::new(ToAgent::Keep { job, images });
        (self.call)(Call::Tell { node: node.clone(), order });
    }

    /// Ends the processes that are left.
    pub fn kill(&self) {
        let _ = self.orders.blocking_send(Order::Command(Command::Kill));
    }
}

/// Orders under way, and where nodes are.
#[derive(Debug, Default)]
pub struct Calls {
    asked: Vec<Asked>,
    addresses: BTreeMap<NodeName, Vec<IpAddr>>,
    /// Nodes that were declared gone: their connections are closed a moment later.
    lost: BTreeSet<NodeName>,
    /// The port's, where it is served.
    port: Option<mpsc::Sender<Order>>,
}

#[derive(Debug)]
struct Asked {
    node: NodeName,
    image: DmtcpImage,
    answer: Sender<Answered>,
}

impl Calls {
    /// Has the port told of nodes that are lost.
    pub fn serve(&mut self, port: mpsc::Sender<Order>) {
        self.port = Some(port);
    }

    /// The connection to a node is gone: it answers nothing more.
    pub fn gone(&mut self, node: &NodeName) {
        self.asked.retain(|asked| asked.node != *node);
    }

    /// A node was declared gone.
    pub fn lost(&mut self, node: &NodeName) {
        self.gone(node);
        self.lost.insert(node.clone());
        if let (Some(port), Some(addresses)) = (&self.port, self.addresses.get(node)) {
            // Where so much waits that there is no room, its processes' connections end some time later.
            let _ = port.try_send(Order::HostLost(addresses.clone()));
        }
    }

    fn hello(&mut self, node: &NodeName, profile: &NodeProfile) {
        let mut addresses = profile.addresses.clone();
        addresses.push(profile.address.ip());
        addresses.sort();
        addresses.dedup();
        self.addresses.insert(node.clone(), addresses);
        self.lost.remove(node);
    }

    fn answer(&mut self, node: &NodeName, image: &DmtcpImage, answered: Answered) {
        let is_it = |asked: &Asked| asked.node == *node && asked.image == *image;
        if let Some(index) = self.asked.iter().position(is_it) {
            // Whoever asked may have lost patience.
            let _ = self.asked.swap_remove(index).answer.send(answered);
        }
    }

    /// Takes what an agent says; whether it is about DMTCP's images alone.
    pub fn says(&mut self, node: &NodeName, message: &FromAgent) -> bool {
        match message {
            FromAgent::Hello { profile, .. } => {
                self.hello(node, profile);
                false
            }
            FromAgent::Dmtcp(report) => {
                let files = || report.files.clone();
                let answered = report
                    .failure
                    .clone()
                    .map_or_else(|| Ok(files()), |reason| Err(AnswerError::Told(reason)));
                self.answer(node, &report.image, answered);
                true
            }
            FromAgent::Copied { job, instance, checkpoint, failure }
                if job.starts_with(JOB_PREFIX) =>
            {
                let image =
                    DmtcpImage { job: job.clone(), instance: *instance, checkpoint: *checkpoint };
                let answered =
                    failure.clone().map_or(Ok(Vec::new()), |reason| Err(AnswerError::Told(reason)));
                self.answer(node, &image, answered);
                true
            }
            _ => false,
        }
    }

    /// Takes a call: what is to be sent, and to which node. `there` are the nodes that take messages, and whether they are on
    /// this machine.
    pub fn take<'a>(
        &mut self,
        call: Call,
        there: impl IntoIterator<Item = (&'a NodeName, bool)>,
    ) -> Option<(NodeName, Box<ToAgent>)> {
        let mut there = there.into_iter().filter(|(node, _)| !self.lost.contains(*node));
        match call {
            Call::Members(answer) => {
                let member = |(node, is_here): (&NodeName, bool)| Member {
                    name: node.clone(),
                    addresses: self.addresses.get(node).cloned().unwrap_or_default(),
                    is_here,
                };
                // Whoever asked may have lost patience.
                let _ = answer.send(there.map(member).collect());
                None
            }
            Call::Order { node, image, order, answer } => {
                there.find(|(known, _)| **known == node)?;
                self.asked.push(Asked { node: node.clone(), image, answer });
                Some((node, order))
            }
            Call::Tell { node, order } => Some((node, order)),
        }
    }
}
