//! Other agents: where they are, and connections to them.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use std::sync::{Arc, PoisonError, RwLock};

use protocol::cluster::agent::Peer;
use protocol::cluster::peer::PeerMessage;
use protocol::cluster::{NodeName, VERSION};

use super::link::{Dialer, PeerLink};

/// All members, as the coordinator has named them last.
#[derive(Clone)]
pub struct Peers {
    dialer: Dialer,
    known: Arc<RwLock<HashMap<NodeName, SocketAddr>>>,
}

impl Peers {
    /// None yet.
    #[must_use]
    pub fn new(dialer: Dialer) -> Self {
        Self { dialer, known: Arc::default() }
    }

    /// None but these from now on.
    pub fn set(&self, peers: &[Peer]) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) =
            peers.iter().map(|peer| (peer.name.clone(), peer.address)).collect();
    }

    /// Some have come or moved, others have gone: who is there now.
    pub fn change(&self, there: Vec<Peer>, gone: &[NodeName]) -> Vec<NodeName> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, _| !gone.contains(name));
        known.extend(there.into_iter().map(|peer| (peer.name, peer.address)));
        known.keys().cloned().collect()
    }

    /// Addresses of all machines.
    pub fn machines(&self) -> BTreeSet<IpAddr> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.values().map(|address| address.ip().to_canonical()).collect()
    }

    /// A new connection to a node; the first message has been sent.
    ///
    /// # Errors
    /// One line.
    pub async fn dial(&self, node: &NodeName) -> Result<PeerLink, String> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).get(node).copied();
        let address = known.ok_or_else(|| format!("{node} is not there"))?;
        let link = self.dialer.peer(node.clone(), address).await?;
        let hello = (PeerMessage::Hello { version: VERSION }, Vec::new());
        link.to.send(hello).await.map_err(|_| format!("{node} has gone"))?;
        Ok(link)
    }
}
