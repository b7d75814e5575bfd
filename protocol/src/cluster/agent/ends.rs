//! Ends of relays and connections, and what becomes of them.

use crate::cluster::{InstanceKey, NodeName};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// One end of a relay: side 0 is where the object's home is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RelaySide {
    /// The relay's id, unique for ever.
    pub relay: String,
    /// 0 or 1.
    pub side: u8,
}

/// Where a relay's other side is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayLink {
    /// This node's side.
    pub side: RelaySide,
    /// The instance that has the other side.
    pub peer: InstanceKey,
    /// Its node.
    pub node: NodeName,
}

/// The two physical addresses of a TCP socket whose peer is in another instance, at the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OuterSocket {
    /// Its open file, an index into the graph of the image.
    pub file: u32,
    /// Its own address.
    pub local: SocketAddr,
    /// The peer's.
    pub peer: SocketAddr,
}

/// How a socket is to be connected again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewire {
    /// Its open file, an index into the graph of the image.
    pub file: u32,
    /// 32 bytes, hexadecimal, that both ends know.
    pub secret: String,
    /// Where to connect to (the peer's agent's port); None: wait for the peer.
    pub connect_to: Option<SocketAddr>,
}

/// A socket whose peer has departed for good: it gets a stand-in for a peer, which stays open and silent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Which, an index into the graph of the image.
    pub file: u32,
    /// The peer was the parent daemon of the socket's process: what the process says goes to the job's
    /// daemon of this machine, if there is one. The name is that of the departed one.
    pub daemon: Option<String>,
    /// The peer was reached over the loopback.
    pub loopback: bool,
}

/// What becomes of relays that led to daemons which have departed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallen {
    /// Sides here that stay open and silent: what comes out of them is dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<RelaySide>,
    /// For the root instance: new sides, whose bytes are output of the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<RelayLink>,
}

/// A listening socket, which may not be where the job believes it to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedListener {
    /// As the job knows it.
    pub logical: SocketAddr,
    /// As it is.
    pub actual: SocketAddr,
    /// It is of AF_INET6 with IPV6_V6ONLY.
    #[serde(default)]
    pub v6_only: bool,
    /// It was bound by a process that has seen the machine's own addresses, and is known by them.
    #[serde(default)]
    pub plain: bool,
}

/// Name of the relay of a remote shell's standard stream `fd`, given that of its link.
#[must_use]
pub fn stream_relay(link: &str, fd: i32) -> String {
    format!("{link}#fd{fd}")
}
