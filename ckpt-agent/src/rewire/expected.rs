//! Peers that are waited for, by the names of their pairs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::secret::{Pair, PairName};

/// A peer that is waited for; forgotten when dropped.
#[derive(Debug)]
pub(super) struct Awaited {
    expected: Arc<Expected>,
    number: u64,
    arrival: oneshot::Receiver<TcpStream>,
}

impl Awaited {
    /// The connection, once the peer has introduced itself; None: it never will.
    pub(super) async fn arrives(&mut self) -> Option<TcpStream> {
        (&mut self.arrival).await.ok()
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.expected.lock().peers.retain(|peer| peer.number != self.number);
    }
}

#[derive(Debug)]
struct Peer {
    number: u64,
    pair: Pair,
    arrived: oneshot::Sender<TcpStream>,
}

#[derive(Debug, Default)]
struct Peers {
    next: u64,
    peers: Vec<Peer>,
}

/// All peers that are waited for.
#[derive(Debug, Default)]
pub(super) struct Expected(Mutex<Peers>);

impl Expected {
    fn lock(&self) -> MutexGuard<'_, Peers> {
        // Each change is complete before the lock is given back.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None: that pair is waited for already.
    pub(super) fn add(self: &Arc<Self>, pair: &Pair) -> Option<Awaited> {
        let (arrived, arrival) = oneshot::channel();
        let mut all = self.lock();
        if all.peers.iter().any(|peer| peer.pair.name() == pair.name()) {
            return None;
        }
        let number = all.next;
        all.next += 1;
        all.peers.push(Peer { number, pair: pair.clone(), arrived });
        drop(all);
        Some(Awaited { expected: self.clone(), number, arrival })
    }

    /// The pair of this name, and the number under which it is waited for. It stays waited for: whoever has named it has
    /// proved nothing.
    pub(super) fn find(&self, name: PairName) -> Option<(u64, Pair)> {
        let all = self.lock();
        let peer = all.peers.iter().find(|peer| peer.pair.name() == name)?;
        Some((peer.number, peer.pair.clone()))
    }

    /// Takes out who is waited for under this number, once the peer has proved who it is. None: another connection was
    /// faster, or nobody waits any more.
    pub(super) fn claim(&self, number: u64) -> Option<oneshot::Sender<TcpStream>> {
        let mut all = self.lock();
        let place = all.peers.iter().position(|peer| peer.number == number)?;
        Some(all.peers.swap_remove(place).arrived)
    }
}
