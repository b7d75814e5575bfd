//! What is known of a TCP socket, whoever tells it.

use std::net::SocketAddr;

/// A TCP socket, with or without a descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpEntry {
    /// TCP_ESTABLISHED and so on (include/net/tcp_states.h).
    pub state: u8,
    /// Its own address.
    pub local: SocketAddr,
    /// Its peer's address.
    pub peer: SocketAddr,
    /// Inode; 0: no descriptor (not accepted yet, or closed).
    pub inode: u32,
    /// Bytes that can be read.
    pub receive_queue: u32,
    /// Bytes sent that are not acknowledged.
    pub send_queue: u32,
    /// RCV_SHUTDOWN (1), SEND_SHUTDOWN (2).
    pub shutdown: u8,
    /// It has keys for signatures (TCP_MD5SIG), which only root is told.
    pub signed: bool,
}
