//! Connections between two instances of a job, made anew after a restore: the agents of both
//! ends connect, put back what lay unread at either end when the checkpoint was taken, and hand
//! the sockets over.
//!
//! * [`wires`]: connections of peers that arrive, told apart by the names of their pairs;
//! * `secret`: what both ends were told, and `handshake`: how they prove it to each other;
//! * `join`: one connection, from either side;
//! * `family`: AF_INET or AF_INET6, as the job's socket was;
//! * `exchange`: the bytes that lay unread;
//! * `absent`: connections whose peer has departed for good;
//! * `room`: receive buffers large enough for them.
//!
//! On the wire, by a connection: the active side sends [`MARK`], by which the agent's port knows what the connection is
//! for, and both prove that they know the pair's secret, which is not sent (`handshake`). Then both sides send the same:
//! the number of bytes that lay unread at their own end (u64, little-endian), those bytes, and, once they have the peer's,
//! the peer's bytes. What follows belongs to the job.

mod absent;
mod exchange;
mod expected;
mod family;
mod handshake;
mod join;
mod room;
mod secret;
#[cfg(test)]
mod tests;
mod wires;
#[cfg(test)]
mod wrong_peers;

use std::io;
use std::net::SocketAddr;

pub use absent::{AbsentOrder, without_peer};
pub use family::{listen, listen_through};
pub use secret::{Pair, Secret};
#[cfg(test)]
pub use tests::test_pair;
pub use wires::{Stranger, Wires};

/// The first byte of a connection of a job that is made again. A conversation of TLS begins with another one.
pub const MARK: u8 = b'w';

/// Most bytes that one end may have had unread: more than tcp_rmem allows anywhere.
pub const MOST_UNREAD: u64 = 256 << 20;

/// Who connects to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Waits for the peer at the own agent's port.
    Passive,
    /// Connects.
    Active {
        /// The peer's agent's port.
        to: SocketAddr,
    },
}

/// A connection to be made.
#[derive(Debug, Clone)]
pub struct WireOrder {
    /// What both ends know, and nobody else.
    pub pair: Pair,
    /// Which end this is.
    pub role: Role,
    /// The job's socket is of AF_INET6: where the nodes know each other by IPv4 addresses, it becomes one
    /// with IPv4-mapped ones.
    pub v6: bool,
    /// Bytes that must lie unread in this end's receive queue.
    pub queue: Vec<u8>,
    /// The job had called shutdown(2) SHUT_WR at this end.
    pub shut_write: bool,
}

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RewireError {
    /// The peer did not appear.
    #[error(
        "connection {index}: its peer did not come in time (last: {last}); see whether the nodes reach \
         the ports of each other's agents"
    )]
    Late {
        /// Index of the order.
        index: usize,
        /// What the last attempt met.
        last: String,
    },
    /// The bytes in flight were not back in time.
    #[error(
        "connection {index}: {missing} of {bytes} bytes in flight are not back in time; see whether \
         net.ipv4.tcp_rmem leaves room for them"
    )]
    Unfilled {
        /// Index of the order.
        index: usize,
        /// Bytes that had to be there.
        bytes: usize,
        /// Bytes that were not.
        missing: usize,
    },
    /// The connection broke, or its peer said something wrong.
    #[error("connection {index}: {source}")]
    Broken {
        /// Index of the order.
        index: usize,
        /// What happened.
        source: io::Error,
    },
    /// Two orders have the same secret.
    #[error("connection {index}: its pair is waited for already")]
    Twice {
        /// Index of the order.
        index: usize,
    },
}
