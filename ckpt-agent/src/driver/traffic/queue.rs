//! Packets on their way to one member. What does not fit is dropped, as in any network: who has sent it by TCP sends it
//! again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::cluster::NodeName;
use protocol::cluster::peer::PeerMessage;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::super::link::{PIECE, PeerLink};
use super::super::peers::Peers;

/// Bytes that may wait for a member: as much as a connection of TCP has under way by itself (tcp_rmem).
const MOST: usize = 4 << 20;
/// Between two attempts to reach a member.
const PAUSE: Duration = Duration::from_millis(200);
/// How long one may take.
const DIAL_LIMIT: Duration = Duration::from_secs(4);
/// How long a member may take to let something through before the connection is made again: what has no way any more is
/// not found out otherwise.
const STALL_LIMIT: Duration = Duration::from_secs(10);

/// What waits, in pieces as they are sent.
#[derive(Debug, Default)]
struct Waiting {
    pieces: Mutex<VecDeque<Vec<u8>>>,
    more: Notify,
}

impl Waiting {
    fn pieces(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        // What a panic elsewhere has left is still true.
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, packet: &[u8]) {
        let mut pieces = self.pieces();
        // All but the last one are nearly full.
        if pieces.len() * PIECE >= MOST {
            return;
        }
        match pieces.back_mut().filter(|last| last.len() + packet.len() <= PIECE) {
            Some(last) => last.extend_from_slice(packet),
            None => pieces.push_back(packet.to_vec()),
        }
        drop(pieces);
        self.more.notify_one();
    }

    async fn next(&self) -> Vec<u8> {
        loop {
            if let Some(piece) = self.pieces().pop_front() {
                return piece;
            }
            self.more.notified().await;
        }
    }
}

/// The way to a member. It ends when it is dropped.
#[derive(Debug)]
pub struct Queue {
    waiting: Arc<Waiting>,
    carrying: JoinHandle<()>,
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.carrying.abort();
    }
}

impl Queue {
    /// One whose connection is made when there is something to send.
    pub fn to(node: NodeName, peers: Peers, on: &Handle) -> Self {
        let waiting = Arc::<Waiting>::default();
        let carrying = on.spawn(carry(node, peers, waiting.clone()));
        Self { waiting, carrying }
    }

    /// Sends a packet, if there is room.
    pub fn push(&self, packet: &[u8]) {
        self.waiting.push(packet);
    }
}

async fn carry(node: NodeName, peers: Peers, waiting: Arc<Waiting>) {
    let mut first = waiting.next().await;
    let mut is_known = false;
    loop {
        let reason = match timeout(DIAL_LIMIT, peers.dial(&node)).await {
            Ok(Ok(link)) => {
                tracing::info!(%node, "jobs' traffic: connected");
                is_known = false;
                send(link, first, &waiting).await;
                "the connection has ended".to_owned()
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it did not answer within {} s", DIAL_LIMIT.as_secs()),
        };
        if !is_known {
            tracing::warn!(%node, "jobs' traffic does not get there for now: {reason}");
            is_known = true;
        }
        sleep(PAUSE).await;
        // Of what waited meanwhile the newest counts most.
        waiting.pieces().clear();
        first = waiting.next().await;
    }
}

/// Sends what comes, until the connection ends or nothing gets through.
async fn send(mut link: PeerLink, first: Vec<u8>, waiting: &Waiting) {
    let mut piece = first;
    loop {
        let message = (PeerMessage::Packets, piece);
        match timeout(STALL_LIMIT, link.to.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
        piece = tokio::select! {
            piece = waiting.next() => piece,
            // Nothing is said that way: it is the end.
            _ = link.from.recv() => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn packets_wait_in_few_pieces_and_never_too_many() {
        let waiting = Waiting::default();
        let packet = vec![7; 60_000];
        for _ in 0..1000 {
            waiting.push(&packet);
        }
        let bytes: usize = waiting.pieces().iter().map(Vec::len).sum();
        assert!(bytes > MOST / 2 && bytes <= MOST, "{bytes}");
        assert_eq!(waiting.next().await.len() % packet.len(), 0);
        waiting.pieces().clear();
        waiting.push(&[1; 10]);
        waiting.push(&[2; 10]);
        assert_eq!(waiting.next().await.len(), 20);
    }
}
