//! Peers that are waited for, by their secrets.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::secret::{LENGTH, Secret};

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
pub(super) struct Peer {
    number: u64,
    pub(super) secret: Secret,
    pub(super) arrived: oneshot::Sender<TcpStream>,
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

    /// None: that secret is waited for already.
    pub(super) fn add(self: &Arc<Self>, secret: &Secret) -> Option<Awaited> {
        let (arrived, arrival) = oneshot::channel();
        let mut all = self.lock();
        if all.peers.iter().any(|peer| peer.secret.is(secret.bytes())) {
            return None;
        }
        let number = all.next;
        all.next += 1;
        all.peers.push(Peer { number, secret: secret.clone(), arrived });
        drop(all);
        Some(Awaited { expected: self.clone(), number, arrival })
    }

    /// Takes out who has this secret. All are compared, so that the time tells nothing.
    pub(super) fn claim(&self, said: &[u8; LENGTH]) -> Option<Peer> {
        let mut all = self.lock();
        let mut place = None;
        for (index, peer) in all.peers.iter().enumerate() {
            if peer.secret.is(said) {
                place = Some(index);
            }
        }
        place.map(|index| all.peers.swap_remove(index))
    }
}
