//! Relays: pipes, terminals and Unix sockets whose ends are in several instances. On each side the agent
//! holds the far end of a native object; the agents carry the bytes.

mod flow;
mod hub;
mod side;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;

use protocol::agent::CheckpointNumber;
use protocol::cluster::agent::{RelayLink, RelaySide};
use protocol::cluster::peer::PeerMessage;
use protocol::cluster::{InstanceKey, NodeName};
use protocol::task;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

pub use hub::Hub;

use ckpt_node::{RelayEvent, RelayOrder, RelayState};

use super::instance::RelayEndKind;
use super::native::{Direction, Native};

/// What a relay's side is told.
#[derive(Debug)]
pub enum Order {
    /// From the node that has the other side, if it is that.
    Message {
        /// Who says so.
        from: NodeName,
        /// What.
        message: PeerMessage,
        /// Its body.
        body: Vec<u8>,
    },
    /// From the node.
    Node(RelayOrder),
    /// There is a new connection to that node.
    LinkUp(NodeName),
    /// Stand still for a checkpoint, and say what is here.
    Pause {
        /// The checkpoint that waits for it.
        checkpoint: CheckpointNumber,
        /// The way back.
        answer: oneshot::Sender<RelayState>,
    },
    /// Write nothing more until [`RelayOrder::Resume`]; told once nothing is being written.
    Withhold(oneshot::Sender<()>),
}

/// One side of a relay, carried by a task. Dropped, it ends.
#[derive(Debug)]
pub struct RelayHandle {
    /// The side that is carried.
    pub side: RelaySide,
    orders: UnboundedSender<Order>,
    key: InstanceKey,
    hub: HubRef,
    _life: oneshot::Sender<()>,
}

/// A hub that has nothing to show.
#[derive(Clone)]
struct HubRef(Hub);

impl std::fmt::Debug for HubRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hub")
    }
}

impl Drop for RelayHandle {
    fn drop(&mut self) {
        self.hub.0.remove(&self.key, &self.side);
    }
}

impl RelayHandle {
    /// Gives an order of the node.
    pub fn order(&self, order: RelayOrder) {
        // A task that has ended has carried everything.
        let _ = self.orders.send(Order::Node(order));
    }

    /// Writes nothing more. Resolves once that is so; None: it has carried everything.
    pub fn withhold(&self) -> Option<oneshot::Receiver<()>> {
        let (done, told) = oneshot::channel();
        self.orders.send(Order::Withhold(done)).ok().map(|()| told)
    }

    /// Stands still; what is here comes back. None: it has carried everything.
    pub fn pause(&self, checkpoint: CheckpointNumber) -> Option<oneshot::Receiver<RelayState>> {
        let (answer, answered) = oneshot::channel();
        self.orders.send(Order::Pause { checkpoint, answer }).ok().map(|()| answered)
    }
}

/// What is carried.
#[derive(Debug)]
pub struct Carried {
    /// Whose side it is.
    pub key: InstanceKey,
    /// The side of the relay.
    pub side: RelaySide,
    /// What the native end is.
    pub kind: RelayEndKind,
    /// What an image held for the native object.
    pub prefix: RelayState,
    /// Where the other side is, if that is known already.
    pub link: Option<RelayLink>,
    /// Whether the end of a process that comes this way waits for [`RelayOrder::Open`].
    pub gated: bool,
}

impl RelayEndKind {
    fn reads(self) -> bool {
        self != RelayEndKind::PipeWrite
    }

    fn writes(self) -> bool {
        self != RelayEndKind::PipeRead
    }

    fn direction(self) -> Direction {
        match self {
            RelayEndKind::PipeRead => Direction::Read,
            RelayEndKind::PipeWrite => Direction::Write,
            _ => Direction::Both,
        }
    }
}

/// Begins to carry. `shared`: others have the same open file description, too.
///
/// # Errors
/// No descriptors left.
pub fn start(
    hub: &Hub,
    carried: Carried,
    native: OwnedFd,
    shared: bool,
    report: impl Fn(RelayEvent) + Send + Sync + 'static,
) -> io::Result<RelayHandle> {
    let native = match shared {
        true => Native::shared(native, carried.kind.direction())?,
        false => Native::own(native)?,
    };
    let (orders, inbox) = unbounded_channel();
    let (life, death) = oneshot::channel();
    let (key, side) = (carried.key.clone(), carried.side.clone());
    hub.add(key.clone(), side.clone(), orders.clone());
    let carry = side::carry(hub.clone(), carried, (native, shared), inbox, death, report);
    task::spawn(carry);
    Ok(RelayHandle { side, orders, key, hub: HubRef(hub.clone()), _life: life })
}
