//! What agents do about images of DMTCP's processes: orders of the port's recorder go out, answers come back.

use super::{Driver, Link};
use crate::dmtcp::places::Member;
use crate::dmtcp::server::Order;
use crate::server::dmtcp_cluster::{Answered, Call};
use protocol::cluster::NodeName;
use protocol::cluster::agent::{FromAgent, NodeProfile};
use protocol::cluster::dmtcp::{DmtcpImage, JOB_PREFIX};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::mpsc::Sender;
use tokio::sync::mpsc;

/// Orders under way, and where nodes are.
#[derive(Debug, Default)]
pub struct Calls {
    awaited: Vec<Awaited>,
    addresses: BTreeMap<NodeName, Vec<IpAddr>>,
    /// Nodes that were declared gone: their connections are closed a moment later.
    lost: BTreeSet<NodeName>,
    /// The port's, where it is served.
    port: Option<mpsc::Sender<Order>>,
}

#[derive(Debug)]
struct Awaited {
    node: NodeName,
    image: DmtcpImage,
    answer: Sender<Answered>,
}

impl Calls {
    /// The connection to a node is gone: it answers nothing more.
    pub fn gone(&mut self, node: &NodeName) {
        self.awaited.retain(|awaited| awaited.node != *node);
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
        let is_it = |awaited: &Awaited| awaited.node == *node && awaited.image == *image;
        if let Some(index) = self.awaited.iter().position(is_it) {
            // Whoever asked may have lost patience.
            let _ = self.awaited.swap_remove(index).answer.send(answered);
        }
    }
}

impl Driver {
    /// Has the port told of nodes that are lost.
    pub fn serve_dmtcp(&mut self, port: mpsc::Sender<Order>) {
        self.dmtcp.port = Some(port);
    }

    /// Takes what an agent says; whether it is about DMTCP's images alone.
    pub(super) fn dmtcp_says(&mut self, node: &NodeName, message: &FromAgent) -> bool {
        match message {
            FromAgent::Hello { profile, .. } => {
                self.dmtcp.hello(node, profile);
                false
            }
            FromAgent::Dmtcp(report) => {
                let answered = match &report.failure {
                    None => Ok(report.files.clone()),
                    Some(reason) => Err(reason.clone()),
                };
                self.dmtcp.answer(node, &report.image, answered);
                true
            }
            FromAgent::Copied { job, instance, checkpoint, failure }
                if job.starts_with(JOB_PREFIX) =>
            {
                let image =
                    DmtcpImage { job: job.clone(), instance: *instance, checkpoint: *checkpoint };
                let answered = failure.clone().map_or(Ok(Vec::new()), Err);
                self.dmtcp.answer(node, &image, answered);
                true
            }
            _ => false,
        }
    }

    pub(super) fn dmtcp_call(&mut self, call: Call) {
        match call {
            Call::Members(answer) => {
                let there = |(name, link): (&NodeName, &Link)| {
                    let there = link.welcome && !self.dmtcp.lost.contains(name);
                    there.then(|| Member {
                        name: name.clone(),
                        addresses: self.dmtcp.addresses.get(name).cloned().unwrap_or_default(),
                        is_here: link.is_here,
                    })
                };
                let _ = answer.send(self.links.iter().filter_map(there).collect());
            }
            Call::Order { node, image, order, answer } => {
                let there = !self.dmtcp.lost.contains(&node);
                if there && self.links.get(&node).is_some_and(|link| link.welcome) {
                    self.dmtcp.awaited.push(Awaited { node: node.clone(), image, answer });
                    self.send(&node, &order, &[]);
                }
            }
            Call::Tell { node, order } => self.send(&node, &order, &[]),
        }
    }
}
