//! The cluster's nodes for the port for DMTCP's programs: its recorder, on a thread of its own, asks agents and waits.

use super::driver::Incoming;
use crate::dmtcp::machine::Command;
use crate::dmtcp::places::Member;
use crate::dmtcp::server::Order;
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::agent::ToAgent;
use protocol::cluster::dmtcp::{DmtcpFile, DmtcpImage, DmtcpOrder};
use protocol::compact::KeptImages;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How long agents may take: images are written, hashed and sent.
const LIMIT: Duration = Duration::from_secs(900);

/// What agents answer: the files that were taken in, or why not.
pub type Answered = Result<Vec<DmtcpFile>, String>;

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
#[derive(Debug, Clone)]
pub struct Cluster {
    calls: mpsc::Sender<Incoming>,
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
    /// One line.
    pub fn wait(self) -> Answered {
        let left = self.until.saturating_duration_since(Instant::now());
        // The loop drops what its node can't answer any more.
        let gone = || format!("{} has gone, or does not answer", self.node);
        self.answer.recv_timeout(left).unwrap_or_else(|_| Err(gone()))
    }
}

impl Cluster {
    pub(super) fn new(
        calls: mpsc::Sender<Incoming>,
        orders: mpsc::Sender<Order>,
        address: SocketAddr,
    ) -> Self {
        Self { calls, orders, address }
    }

    fn call(&self, call: Call) {
        // The coordinator ends: whoever waits for an answer hears that there is none.
        let _ = self.calls.blocking_send(Incoming::Dmtcp(call));
    }

    /// The members that are there.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        let (sender, members) = channel();
        self.call(Call::Members(sender));
        members.recv_timeout(LIMIT).unwrap_or_default()
    }

    fn order(&self, node: &NodeName, image: DmtcpImage, order: ToAgent) -> Awaited {
        let (sender, answer) = channel();
        let (node, until) = (node.clone(), Instant::now() + LIMIT);
        let order = Box::new(order);
        self.call(Call::Order { node: node.clone(), image, order, answer: sender });
        Awaited { node, answer, until }
    }

    /// Has a node take images into its store.
    #[must_use]
    pub fn take_in(&self, node: &NodeName, image: &DmtcpImage, files: Vec<String>) -> Awaited {
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
        self.call(Call::Tell { node: node.clone(), order });
    }

    /// Ends the processes that are left.
    pub fn kill(&self) {
        let _ = self.orders.blocking_send(Order::Command(Command::Kill));
    }
}
