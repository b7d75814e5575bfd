//! Where the other machines are, and how long a connection to one is good.

use std::collections::HashMap;
use std::net::SocketAddr;

use protocol::cluster::NodeName;
use tokio::sync::watch;

/// Where everybody is.
#[derive(Debug, Default)]
pub(super) struct Whereabouts {
    pub(super) peers: HashMap<NodeName, SocketAddr>,
    /// How often this machine's own address has changed.
    pub(super) own_moves: u64,
}

/// A connection between two addresses, for as long as both are those of their machines.
#[derive(Debug)]
pub struct Validity {
    pub(super) known: watch::Receiver<Whereabouts>,
    pub(super) node: NodeName,
    pub(super) address: SocketAddr,
    pub(super) own_moves: u64,
}

impl Validity {
    /// Until one of them is not: nothing comes over the connection any more, and nobody says so.
    pub async fn over(mut self) {
        let Self { known, node, address, own_moves } = &mut self;
        let moved = |now: &Whereabouts| {
            now.own_moves != *own_moves || now.peers.get(node).is_some_and(|at| at != address)
        };
        if known.wait_for(moved).await.is_err() {
            // Nobody learns of any more changes.
            std::future::pending().await
        }
    }
}
