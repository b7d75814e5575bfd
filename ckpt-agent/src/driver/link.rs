//! Connections as this agent uses them: messages in order, each with a body, through bounded channels.
//! Who carries them, and how they are protected, is the carrier's business.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use protocol::cluster::NodeName;
use protocol::cluster::agent::{FromAgent, ToAgent};
use protocol::cluster::peer::PeerMessage;
use protocol::transport::{Precedence, TransportError};
#[cfg(test)]
use tokio::sync::mpsc::channel;
use tokio::sync::mpsc::{Receiver, Sender};

use super::whereabouts::Validity;

/// Messages that may wait in a channel. A peer's pieces are at most [`PIECE`] long, so that this bounds
/// memory, too.
pub const WAITING: usize = 16;

/// Bytes of the longest body that this agent sends.
pub const PIECE: usize = 256 * 1024;

/// A message with its body.
pub type Message<T> = (T, Vec<u8>);

/// Both directions of a connection. It is closed by dropping either.
#[derive(Debug)]
pub struct Link<Out, In> {
    /// To the other side.
    pub to: Sender<Message<Out>>,
    /// From the other side; its end is the connection's.
    pub from: Receiver<Message<In>>,
}

/// With the coordinator.
pub type CoordinatorLink = Link<FromAgent, ToAgent>;

/// With another agent.
pub type PeerLink = Link<PeerMessage, PeerMessage>;

#[cfg(test)]
impl<Out, In> Link<Out, In> {
    /// Two ends of one connection within this process.
    #[must_use]
    pub fn pair() -> (Link<Out, In>, Link<In, Out>) {
        let (to, other_from) = channel(WAITING);
        let (other_to, from) = channel(WAITING);
        (Link { to, from }, Link { to: other_to, from: other_from })
    }
}

/// A future that may go to another thread.
pub type Promise<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Makes connections.
pub trait Dial: Send + Sync {
    /// Connects to the coordinator; also tells the local address of that connection.
    ///
    /// The error is one line. [`Refusal::Final`] ends the agent.
    fn coordinator(&self) -> Promise<'_, Result<(CoordinatorLink, IpAddr), Refusal>>;

    /// Connects to another agent, whose certificate must name that node. The link ends when its validity is over.
    fn peer(
        &self,
        node: NodeName,
        address: SocketAddr,
        validity: Validity,
        precedence: Precedence,
    ) -> Promise<'_, Result<PeerLink, DialError>>;
}

/// Why there is no connection to another agent.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// It is not connected to the coordinator, or no member.
    #[error("{0} is not there")]
    Unknown(NodeName),
    /// What was known of it has changed while it was called.
    #[error("{0} has another address now, or is no member any more")]
    Changed(NodeName),
    /// Its machine does not answer, or is not the one that was meant.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The connection ended before the greeting.
    #[error("{0} has gone")]
    Gone(NodeName),
}

/// Why there is no connection to the coordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody answers, or the answer makes no sense: to be tried again.
    Passing(String),
    /// This node is not taken.
    Final(String),
}

/// What makes connections for everybody in this agent.
pub type Dialer = Arc<dyn Dial>;
