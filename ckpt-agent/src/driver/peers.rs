//! Other agents: where they are, and connections to them.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use protocol::cluster::agent::Peer;
use protocol::cluster::peer::PeerMessage;
use protocol::cluster::{NodeName, VERSIONS};
use protocol::compact::Pieces;
use protocol::transport::{Fingerprint, Precedence};
use tokio::sync::watch;

use super::grants::Grants;
use super::link::{DialError, Dialer, PeerLink};
use super::whereabouts::{Place, Validity, Way, Whereabouts};

/// All members, as the coordinator has named them last.
#[derive(Clone)]
pub struct Peers {
    dialer: Dialer,
    grants: Grants,
    known: Arc<watch::Sender<Whereabouts>>,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers").finish_non_exhaustive()
    }
}

impl Peers {
    /// None yet.
    #[must_use]
    pub fn new(dialer: Dialer, grants: Grants) -> Self {
        Self { dialer, grants, known: Arc::new(watch::Sender::default()) }
    }

    /// What may be asked of them.
    #[must_use]
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// None but these from now on, of whom some who are not there were turned out: who is let in.
    pub fn set(
        &self,
        peers: &Pieces<Peer>,
        expelled: Vec<NodeName>,
    ) -> Vec<(NodeName, Fingerprint)> {
        self.known.send_modify(|known| {
            known.peers = peers.iter().cloned().map(place).collect();
            known.expelled = expelled.into_iter().collect();
        });
        self.admitted()
    }

    /// Some have come or moved, others have gone, of whom some were turned out: who is let in now.
    pub fn change(
        &self,
        there: Vec<Peer>,
        gone: &[NodeName],
        expelled: Vec<NodeName>,
    ) -> Vec<(NodeName, Fingerprint)> {
        self.known.send_modify(|known| {
            known.peers.retain(|name, _| !gone.contains(name));
            // One that was turned out is back if it was invited again.
            known.expelled.retain(|name| !there.iter().any(|peer| peer.name == *name));
            known.peers.extend(there.into_iter().map(place));
            known.expelled.extend(expelled);
        });
        self.admitted()
    }

    fn admitted(&self) -> Vec<(NodeName, Fingerprint)> {
        let known = self.known.borrow();
        known.peers.iter().map(|(name, place)| (name.clone(), place.key.clone())).collect()
    }

    /// How long a connection is good that a node has made.
    pub fn guest(&self, node: NodeName, key: Fingerprint) -> Validity {
        Validity { known: self.known.subscribe(), node, key, way: None }
    }

    /// This machine has another address: connections over the one that it had are made again.
    pub fn own_address_changed(&self) {
        self.known.send_modify(|known| known.own_moves += 1);
    }

    /// All of them.
    pub fn all(&self) -> Vec<Peer> {
        let known = self.known.borrow();
        let peer = |(name, place): (&NodeName, &Place)| {
            let Place { address, key, job_traffic, addresses } = place.clone();
            Peer { name: name.clone(), address, key, job_traffic, addresses }
        };
        known.peers.iter().map(peer).collect()
    }

    /// Addresses of all machines, but for those that several have and are reached by none.
    pub fn machines(&self) -> BTreeSet<IpAddr> {
        let known = self.known.borrow();
        let mut all: BTreeSet<IpAddr> =
            known.peers.values().map(|place| place.address.ip().to_canonical()).collect();
        // What several have, such as those of bridges to containers, leads to none of them from elsewhere.
        let mut holders: HashMap<IpAddr, usize> = HashMap::new();
        for place in known.peers.values() {
            let own: BTreeSet<IpAddr> = place.addresses.iter().map(IpAddr::to_canonical).collect();
            own.into_iter().for_each(|ip| *holders.entry(ip).or_default() += 1);
        }
        all.extend(holders.into_iter().filter(|(_, holders)| *holders == 1).map(|(ip, _)| ip));
        all
    }

    /// A new connection to a node; the first message has been sent.
    ///
    /// # Errors
    /// See [`DialError`].
    pub async fn dial(&self, node: &NodeName) -> Result<PeerLink, DialError> {
        self.dial_with(node, Precedence::Equal).await
    }

    /// The same, and whose packets go first.
    ///
    /// # Errors
    /// As [`dial`](Self::dial).
    pub async fn dial_with(
        &self,
        node: &NodeName,
        precedence: Precedence,
    ) -> Result<PeerLink, DialError> {
        let (place, own_moves) = {
            let known = self.known.borrow();
            (known.peers.get(node).cloned(), known.own_moves)
        };
        let Place { address, key, .. } = place.ok_or_else(|| DialError::Unknown(node.clone()))?;
        let (known, way) = (self.known.subscribe(), Some(Way { address, own_moves }));
        let validity = Validity { known, node: node.clone(), key, way };
        let link = self.dialer.peer(node.clone(), address, validity, precedence).await?;
        let hello = (PeerMessage::Hello { version: VERSIONS }, Vec::new());
        link.to.send(hello).await.map_err(|_| DialError::Gone(node.clone()))?;
        Ok(link)
    }
}

/// Where a peer is.
fn place(peer: Peer) -> (NodeName, Place) {
    let Peer { name, address, key, job_traffic, addresses } = peer;
    (name, Place { address, key, job_traffic, addresses })
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
    struct Kept(Mutex<Vec<(PeerLink, Validity, Precedence)>>);

    impl Dial for Kept {
        fn coordinator(&self) -> Promise<'_, Result<(CoordinatorLink, IpAddr), Refusal>> {
            Box::pin(async { Err(Refusal::Passing("there is none".to_owned())) })
        }

        fn peer(
            &self,
            _: NodeName,
            _: SocketAddr,
            validity: Validity,
            precedence: Precedence,
        ) -> Promise<'_, Result<PeerLink, DialError>> {
            let (near, far) = Link::pair();
            self.0.lock().unwrap().push((far, validity, precedence));
            Box::pin(async { Ok(near) })
        }
    }

    fn peer(name: &str, address: &str) -> Peer {
        let key = Fingerprint::default();
        let (name, address) = (name.parse().unwrap(), address.parse().unwrap());
        Peer { name, address, key, job_traffic: None, addresses: Vec::new() }
    }

    #[tokio::test]
    async fn copies_let_others_go_first() {
        let kept = Arc::new(Kept::default());
        let peers = Peers::new(kept.clone(), Grants::none());
        peers.set(&vec![peer("a", "10.0.0.1:7")].into(), Vec::new());
        let a = "a".parse().unwrap();
        drop(peers.dial_with(&a, Precedence::Behind).await.unwrap());
        drop(peers.dial(&a).await.unwrap());
        let precedence = |_| kept.0.lock().unwrap().pop().unwrap().2;
        assert_eq!([0, 1].map(precedence), [Precedence::Equal, Precedence::Behind]);
    }

    #[tokio::test]
    async fn a_connection_is_good_until_either_end_has_moved() {
        let kept = Arc::new(Kept::default());
        let peers = Peers::new(kept.clone(), Grants::none());
        peers.set(&vec![peer("a", "10.0.0.1:7"), peer("b", "10.0.0.2:7")].into(), Vec::new());
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
            Vec::new(),
        );
        let mut first = Box::pin(first.over());
        assert!(timeout(Duration::from_millis(20), &mut first).await.is_err());
        peers.change(vec![peer("a", "10.0.0.9:7")], &[], Vec::new());
        timeout(soon, first).await.unwrap();
        timeout(soon, later.over()).await.unwrap();
        let mut other = Box::pin(other.over());
        assert!(timeout(Duration::from_millis(20), &mut other).await.is_err());
        peers.own_address_changed();
        timeout(soon, other).await.unwrap();
    }
    #[tokio::test]
    async fn whoever_is_turned_out_is_cut_off_at_once_both_ways() {
        let kept = Arc::new(Kept::default());
        let peers = Peers::new(kept.clone(), Grants::none());
        let (a, b): (NodeName, NodeName) = ("a".parse().unwrap(), "b".parse().unwrap());
        peers.set(&vec![peer("a", "10.0.0.1:7"), peer("b", "10.0.0.2:7")].into(), Vec::new());
        drop(peers.dial(&a).await.unwrap());
        let own = kept.0.lock().unwrap().pop().unwrap().1;
        let guest = peers.guest(a.clone(), Fingerprint::default());
        let mut other = Box::pin(peers.guest(b, Fingerprint::default()).over());
        let admitted = peers.change(Vec::new(), std::slice::from_ref(&a), vec![a.clone()]);
        assert_eq!(admitted.len(), 1);
        let soon = Duration::from_secs(10);
        timeout(soon, own.over()).await.unwrap();
        timeout(soon, guest.over()).await.unwrap();
        assert!(timeout(Duration::from_millis(20), &mut other).await.is_err());
        // Invited again, under a new key, it is welcome; what had the old one is not.
        let key = serde_json::from_str("\"ff\"").unwrap();
        peers.change(vec![Peer { key, ..peer("a", "10.0.0.1:7") }], &[], Vec::new());
        timeout(soon, peers.guest(a.clone(), Fingerprint::default()).over()).await.unwrap();
        let key = serde_json::from_str("\"ff\"").unwrap();
        let mut fresh = Box::pin(peers.guest(a, key).over());
        assert!(timeout(Duration::from_millis(20), &mut fresh).await.is_err());
    }
}
