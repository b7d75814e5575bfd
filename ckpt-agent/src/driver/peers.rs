//! Other agents: where they are, and connections to them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use protocol::cluster::agent::Peer;
use protocol::cluster::peer::PeerMessage;
use protocol::cluster::{NodeName, VERSION};
use tokio::sync::watch;

use super::link::{Dialer, PeerLink};
use super::whereabouts::{Validity, Whereabouts};

/// All members, as the coordinator has named them last.
#[derive(Clone)]
pub struct Peers {
    dialer: Dialer,
    known: Arc<watch::Sender<Whereabouts>>,
}

impl Peers {
    /// None yet.
    #[must_use]
    pub fn new(dialer: Dialer) -> Self {
        Self { dialer, known: Arc::new(watch::Sender::default()) }
    }

    /// None but these from now on.
    pub fn set(&self, peers: &[Peer]) {
        let peers = peers.iter().map(|peer| (peer.name.clone(), peer.address)).collect();
        self.known.send_modify(|known| known.peers = peers);
    }

    /// Some have come or moved, others have gone: who is there now.
    pub fn change(&self, there: Vec<Peer>, gone: &[NodeName]) -> Vec<NodeName> {
        let mut names = Vec::new();
        self.known.send_modify(|known| {
            known.peers.retain(|name, _| !gone.contains(name));
            known.peers.extend(there.into_iter().map(|peer| (peer.name, peer.address)));
            names = known.peers.keys().cloned().collect();
        });
        names
    }

    /// This machine has another address: connections over the one that it had are made again.
    pub fn own_address_changed(&self) {
        self.known.send_modify(|known| known.own_moves += 1);
    }

    /// Addresses of all machines.
    pub fn machines(&self) -> BTreeSet<IpAddr> {
        self.known.borrow().peers.values().map(|address| address.ip().to_canonical()).collect()
    }

    /// A new connection to a node; the first message has been sent.
    ///
    /// # Errors
    /// One line.
    pub async fn dial(&self, node: &NodeName) -> Result<PeerLink, String> {
        let (address, own_moves) = {
            let known = self.known.borrow();
            (known.peers.get(node).copied(), known.own_moves)
        };
        let address = address.ok_or_else(|| format!("{node} is not there"))?;
        let (known, name) = (self.known.subscribe(), node.clone());
        let validity = Validity { known, node: name, address, own_moves };
        let link = self.dialer.peer(node.clone(), address, validity).await?;
        let hello = (PeerMessage::Hello { version: VERSION }, Vec::new());
        link.to.send(hello).await.map_err(|_| format!("{node} has gone"))?;
        Ok(link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::link::{CoordinatorLink, Dial, Link, Promise, Refusal};
    use std::net::SocketAddr;
    use std::sync::Mutex;
    use tokio::time::{Duration, timeout};

    /// Keeps what it is given.
    #[derive(Default)]
    struct Kept(Mutex<Vec<(PeerLink, Validity)>>);

    impl Dial for Kept {
        fn coordinator(&self) -> Promise<'_, Result<(CoordinatorLink, IpAddr), Refusal>> {
            Box::pin(async { Err(Refusal::Passing("there is none".to_owned())) })
        }

        fn peer(
            &self,
            _: NodeName,
            _: SocketAddr,
            validity: Validity,
        ) -> Promise<'_, Result<PeerLink, String>> {
            let (near, far) = Link::pair();
            self.0.lock().unwrap().push((far, validity));
            Box::pin(async { Ok(near) })
        }
    }

    fn peer(name: &str, address: &str) -> Peer {
        Peer { name: name.parse().unwrap(), address: address.parse().unwrap() }
    }

    #[tokio::test]
    async fn a_connection_is_good_until_either_end_has_moved() {
        let kept = Arc::new(Kept::default());
        let peers = Peers::new(kept.clone());
        peers.set(&[peer("a", "10.0.0.1:7"), peer("b", "10.0.0.2:7")]);
        let mut validity = Vec::new();
        for name in ["a", "b", "a"] {
            drop(peers.dial(&name.parse().unwrap()).await.unwrap());
            validity.push(kept.0.lock().unwrap().pop().unwrap().1);
        }
        let [first, other, later] = <[Validity; 3]>::try_from(validity).unwrap();
        let soon = Duration::from_secs(10);
        // Gone is not moved: it may be there again, and the connection with it.
        peers.change(
            vec![peer("b", "10.0.0.2:7"), peer("c", "10.0.0.3:7")],
            &["a".parse().unwrap()],
        );
        let mut first = Box::pin(first.over());
        assert!(timeout(Duration::from_millis(20), &mut first).await.is_err());
        peers.change(vec![peer("a", "10.0.0.9:7")], &[]);
        timeout(soon, first).await.unwrap();
        timeout(soon, later.over()).await.unwrap();
        let mut other = Box::pin(other.over());
        assert!(timeout(Duration::from_millis(20), &mut other).await.is_err());
        peers.own_address_changed();
        timeout(soon, other).await.unwrap();
    }
}
