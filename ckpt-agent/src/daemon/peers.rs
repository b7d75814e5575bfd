//! Other agents: where they are, and connections to them.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use std::sync::{Arc, PoisonError, RwLock};

use protocol::cluster::agent::Peer;
use protocol::cluster::peer::PeerMessage;
use protocol::cluster::{NodeName, VERSION};
use tokio::sync::{mpsc, watch};

use super::link::{Dialer, Link, PeerLink};

/// All members, as the coordinator has named them last.
#[derive(Clone)]
pub struct Peers {
    dialer: Dialer,
    known: Arc<RwLock<HashMap<NodeName, SocketAddr>>>,
    /// How often this machine's own address has changed; told also when another's has.
    moves: Arc<watch::Sender<u64>>,
}

impl Peers {
    /// None yet.
    #[must_use]
    pub fn new(dialer: Dialer) -> Self {
        Self { dialer, known: Arc::default(), moves: Arc::new(watch::channel(0).0) }
    }

    /// None but these from now on.
    pub fn set(&self, peers: &[Peer]) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) =
            peers.iter().map(|peer| (peer.name.clone(), peer.address)).collect();
        self.moves.send_modify(|_| {});
    }

    /// This machine has another address: no connection that it had made by the one before carries anything any more.
    pub fn moved(&self) {
        self.moves.send_modify(|moves| *moves += 1);
    }

    /// Some have come or moved, others have gone: who is there now.
    pub fn change(&self, there: Vec<Peer>, gone: &[NodeName]) -> Vec<NodeName> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, _| !gone.contains(name));
        known.extend(there.into_iter().map(|peer| (peer.name, peer.address)));
        let names = known.keys().cloned().collect();
        drop(known);
        self.moves.send_modify(|_| {});
        names
    }

    /// Addresses of all machines.
    pub fn machines(&self) -> BTreeSet<IpAddr> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.values().map(|address| address.ip().to_canonical()).collect()
    }

    fn address(&self, node: &NodeName) -> Option<SocketAddr> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(node).copied()
    }

    /// A new connection to a node; the first message has been sent. It ends when either machine's address changes:
    /// nobody would ever tell otherwise.
    ///
    /// # Errors
    /// One line.
    pub async fn dial(&self, node: &NodeName) -> Result<PeerLink, String> {
        let mut moves = self.moves.subscribe();
        let before = *moves.borrow_and_update();
        let address = self.address(node).ok_or_else(|| format!("{node} is not there"))?;
        let link = self.dialer.peer(node.clone(), address).await?;
        let hello = (PeerMessage::Hello { version: VERSION }, Vec::new());
        link.to.send(hello).await.map_err(|_| format!("{node} has gone"))?;
        let Link { to, from: mut arriving } = link;
        let (forward, from) = mpsc::channel(1);
        let (peers, node) = (self.clone(), node.clone());
        tokio::spawn(async move {
            loop {
                let message = tokio::select! {
                    message = arriving.recv() => message,
                    () = forward.closed() => return,
                    changed = moves.changed() => {
                        let same = *moves.borrow_and_update() == before;
                        // One that has gone may have something left to say.
                        if changed.is_ok() && same && peers.address(&node).is_none_or(|now| now == address) {
                            continue;
                        }
                        return;
                    }
                };
                let Some(message) = message else { return };
                if forward.send(message).await.is_err() {
                    return;
                }
            }
        });
        Ok(Link { to, from })
    }
}
