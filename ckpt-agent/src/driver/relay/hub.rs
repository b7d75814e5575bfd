//! Brings messages of relays to where they belong: to another node, over one connection to each, or to a
//! relay of this one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::cluster::agent::{RelayLink, RelaySide};
use protocol::cluster::peer::PeerMessage;
use protocol::cluster::{InstanceKey, NodeName};
use protocol::task;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use super::Order;
use crate::driver::link::Message;
use crate::driver::peers::Peers;

/// The first wait after a connection could not be made; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(20);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Whose side of which relay.
pub type Address = (InstanceKey, RelaySide);

/// The exchange for all relays of this agent.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    own: NodeName,
    peers: Peers,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    relays: HashMap<Address, UnboundedSender<Order>>,
    /// Those that have carried everything, and what each had sent in all.
    done: HashMap<Address, Final>,
    ways: HashMap<NodeName, UnboundedSender<Message<PeerMessage>>>,
}

/// What a relay's side leaves behind, for a peer that missed its last words.
#[derive(Debug, Clone)]
pub struct Final {
    /// Where the other side is.
    pub link: RelayLink,
    /// What it had sent in all.
    pub sent: u64,
    /// What it had passed on in all.
    pub taken: u64,
}

impl Hub {
    /// Of this node's agent.
    #[must_use]
    pub fn new(own: NodeName, peers: Peers) -> Self {
        Self { inner: Arc::new(Inner { own, peers, state: Mutex::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is complete before the lock is given back.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A relay begins.
    pub fn add(&self, key: InstanceKey, side: RelaySide, orders: UnboundedSender<Order>) {
        let mut state = self.state();
        state.done.remove(&(key.clone(), side.clone()));
        state.relays.insert((key, side), orders);
    }

    /// The handle of a relay was dropped.
    pub fn remove(&self, key: &InstanceKey, side: &RelaySide) {
        self.state().relays.remove(&(key.clone(), side.clone()));
    }

    /// A relay has carried everything: from here on the hub speaks for it, also about what had come too late for it.
    pub fn is_done(
        &self,
        address: Address,
        last: Option<Final>,
        inbox: &mut UnboundedReceiver<Order>,
    ) {
        let mut state = self.state();
        state.relays.remove(&address);
        // One that was never linked has told nobody anything.
        let Some(last) = last else { return };
        state.done.insert(address, last.clone());
        drop(state);
        while let Ok(order) = inbox.try_recv() {
            match order {
                Order::Message { from, message, body } => self.deliver(&from, message, body),
                Order::LinkUp(node) if node == last.link.node => self.say_all(&last),
                _ => {}
            }
        }
    }

    /// An instance is gone.
    pub fn forget(&self, key: &InstanceKey) {
        let mut state = self.state();
        state.relays.retain(|(of, _), _| of != key);
        state.done.retain(|(of, _), _| of != key);
    }

    /// Sends to where the other side of a relay is. What can't be sent now is sent again by the relay
    /// once there is a connection.
    pub fn send(&self, node: &NodeName, message: PeerMessage, body: Vec<u8>) {
        if *node == self.inner.own {
            self.deliver(node, message, body);
            return;
        }
        let mut state = self.state();
        let way = state.ways.entry(node.clone()).or_insert_with(|| {
            let (way, queue) = unbounded_channel();
            task::spawn(carry(self.clone(), node.clone(), queue));
            way
        });
        // Its task ends with this hub only.
        let _ = way.send((message, body));
    }

    /// A message of a relay has come from a node. One for a relay that is not here is dropped: of an older
    /// epoch, most often.
    pub fn deliver(&self, from: &NodeName, message: PeerMessage, body: Vec<u8>) {
        // No other message is a relay's.
        let Some(address) = address(&message) else { return };
        let state = self.state();
        if let Some(orders) = state.relays.get(&address) {
            let _ = orders.send(Order::Message { from: from.clone(), message, body });
            return;
        }
        let Some(last) = state.done.get(&address).cloned() else { return };
        drop(state);
        if last.link.node == *from && !matches!(message, PeerMessage::RelayTaken { .. }) {
            self.say_last(&last, &message);
        }
    }

    fn say_last(&self, last: &Final, question: &PeerMessage) {
        let (to, offset) = (last.link.peer.clone(), last.sent);
        let side = other(&last.link.side);
        let (node, none) = (&last.link.node, Vec::new);
        if let PeerMessage::Relay { .. } | PeerMessage::RelayAsk { .. } = question {
            return self.say_all(last);
        }
        if let PeerMessage::RelayPaused { checkpoint, .. } = question {
            let (to, side, checkpoint) = (to.clone(), side.clone(), *checkpoint);
            let message = PeerMessage::RelayPaused { to, side, checkpoint, offset, ended: true };
            self.send(node, message, none());
        }
        if !matches!(question, PeerMessage::RelayEnd { .. }) {
            self.send(node, PeerMessage::RelayEnd { to, side, offset }, none());
        }
    }

    /// What it had taken in all, and its end.
    fn say_all(&self, last: &Final) {
        let Final { link, sent: offset, taken } = last.clone();
        let (to, side) = (link.peer, other(&link.side));
        let message = PeerMessage::RelayTaken { to: to.clone(), side: side.clone(), taken };
        self.send(&link.node, message, Vec::new());
        self.send(&link.node, PeerMessage::RelayEnd { to, side, offset }, Vec::new());
    }

    /// All relays say again what may have been lost, and ask for what they may have missed; so it is said for those
    /// that are done.
    fn is_up(&self, node: &NodeName) {
        let state = self.state();
        for orders in state.relays.values() {
            let _ = orders.send(Order::LinkUp(node.clone()));
        }
        let done: Vec<Final> =
            state.done.values().filter(|last| last.link.node == *node).cloned().collect();
        drop(state);
        done.iter().for_each(|last| self.say_all(last));
    }
}

/// The side at the other end.
#[must_use]
pub fn other(side: &RelaySide) -> RelaySide {
    RelaySide { relay: side.relay.clone(), side: 1 - side.side.min(1) }
}

fn address(message: &PeerMessage) -> Option<Address> {
    match message {
        PeerMessage::Relay { to, side, .. }
        | PeerMessage::RelayTaken { to, side, .. }
        | PeerMessage::RelayEnd { to, side, .. }
        | PeerMessage::RelayPaused { to, side, .. }
        | PeerMessage::RelayAsk { to, side, .. } => Some((to.clone(), side.clone())),
        _ => None,
    }
}

/// Keeps a connection to a node for as long as there is something to send.
async fn carry(hub: Hub, node: NodeName, mut queue: UnboundedReceiver<Message<PeerMessage>>) {
    let mut wait = FIRST_WAIT;
    let mut said = false;
    loop {
        match hub.inner.peers.dial(&node).await {
            Ok(mut link) => {
                (wait, said) = (FIRST_WAIT, false);
                // What was queued before is sent again by the relays, in order.
                while queue.try_recv().is_ok() {}
                hub.is_up(&node);
                loop {
                    tokio::select! {
                        message = queue.recv() => {
                            // The hub keeps no link to this node any more.
                            let Some(message) = message else { return };
                            if link.to.send(message).await.is_err() {
                                break;
                            }
                        }
                        received = link.from.recv() => {
                            // Answers come over the peer's own connection.
                            if received.is_none() {
                                break;
                            }
                        }
                    }
                }
            }
            Err(reason) => {
                if !std::mem::replace(&mut said, true) {
                    tracing::warn!(%node, "relays wait for a connection: {reason}");
                }
                while queue.try_recv().is_ok() {}
            }
        }
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}
