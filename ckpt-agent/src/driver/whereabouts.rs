//! Where the other machines are, and how long a connection with one is good.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use protocol::cluster::NodeName;
use protocol::cluster::agent::JobTraffic;
use protocol::transport::Fingerprint;
use tokio::sync::watch;

/// Where a member is reached, and how it is known there.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) address: SocketAddr,
    pub(super) key: Fingerprint,
    /// How it encrypts jobs' traffic, and where.
    pub(super) job_traffic: Option<JobTraffic>,
    pub(super) addresses: Vec<IpAddr>,
}

/// Where everybody is.
#[derive(Debug, Default)]
pub(super) struct Whereabouts {
    pub(super) peers: HashMap<NodeName, Place>,
    /// Nodes that were turned out, and not invited again.
    pub(super) expelled: HashSet<NodeName>,
    /// How often this machine's own address has changed.
    pub(super) own_moves: u64,
}

/// The way of a connection that this machine has made.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) address: SocketAddr,
    /// [`Whereabouts::own_moves`] when it was made.
    pub(super) own_moves: u64,
}

/// A connection with a member, for as long as it is one by the same key; of one that this machine has made, also
/// for as long as both addresses are those of their machines.
#[derive(Debug)]
pub struct Validity {
    pub(super) known: watch::Receiver<Whereabouts>,
    pub(super) node: NodeName,
    pub(super) key: Fingerprint,
    pub(super) way: Option<Way>,
}

impl Validity {
    /// The key by which the other one is a member.
    pub fn key(&self) -> &Fingerprint {
        &self.key
    }

    /// Until it is not: the member was turned out, or nothing comes over the connection any more, and nobody says so.
    pub async fn over(mut self) {
        let Self { known, node, key, way } = &mut self;
        let ended = |now: &Whereabouts| {
            let moved = way.as_ref().is_some_and(|way| now.own_moves != way.own_moves);
            // Gone is not moved: it may be there again, and the connection with it.
            let another = now.peers.get(node).is_some_and(|place| {
                let elsewhere = way.as_ref().is_some_and(|way| place.address != way.address);
                elsewhere || place.key != *key
            });
            moved || another || now.expelled.contains(node)
        };
        if known.wait_for(ended).await.is_err() {
            // Nobody learns of any more changes.
            std::future::pending().await
        }
    }
}
