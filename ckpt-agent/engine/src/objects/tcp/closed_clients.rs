//! Connections that nobody has accepted yet, and whose client has closed its end already: no descriptor leads to them. What
//! was sent is read as with others (`pending`); then a socket of our own connects from the same address, sends the same
//! bytes and is closed.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::BlobId;
use super::super::super::sys::network;
use super::super::socket_options::SocketOptions;
use super::RestoreContext;
use super::make::{self, Address};
use super::refill::{PATIENCE, Refill, refill};
use super::urgent::{self, Urgent};

/// A connection whose client has closed, in the queue of a listening socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedClient {
    /// The client's address.
    pub client: SocketAddr,
    /// The address to which it connected.
    pub to: SocketAddr,
    /// Place in the queue, among those of clients that are open.
    pub place: u32,
    /// What it has sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<BlobId>,
    /// Which byte of that is urgent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urgent: Option<Urgent>,
}

/// Connects again after the end of the connection, from the same address if that can be had; gives the address.
pub(super) fn connect_again(
    client: SocketAddr,
    to: SocketAddr,
    sent: (&[u8], Option<Urgent>),
    limit: Duration,
) -> Result<SocketAddr> {
    let system = |call, error| EngineError::system(call, "a closed TCP client", error);
    let target = SockAddr::from(to);
    let new = || network::socket(Domain::for_address(client), Type::STREAM, None);
    let bound = |socket: &Socket| {
        socket.set_reuse_address(true)?;
        // Where it cannot be bound, any port is better than none.
        let _ = socket.bind(&SockAddr::from(client));
        socket.connect_timeout(&target, limit)
    };
    let mut socket = new().map_err(|error| system("make", error))?;
    if make::connect_at_port(&socket, client, &target).is_err() {
        socket = new().map_err(|error| system("make", error))?;
        bound(&socket).map_err(|error| system("connect again", error))?;
    }
    let now = socket.local_addr().map_err(|error| system("getsockname", error))?;
    send_and_close(&socket, sent, limit)?;
    Ok(now.as_socket().unwrap_or(client))
}

/// At a restore: `to` is where the listening socket is now.
pub(super) fn restore(
    closed: &ClosedClient,
    to: SocketAddr,
    limit: Duration,
    context: &mut RestoreContext,
) -> Result<()> {
    let address = Address {
        v6: closed.client.is_ipv6(),
        multipath: false,
        at: Some(closed.client),
        options: SocketOptions::default(),
    };
    let bytes = closed.sent.map_or(Ok(Vec::new()), |sent| context.blob(sent))?;
    let socket = make::client(&address, to, context)?;
    urgent::check(closed.urgent, bytes.len())?;
    send_and_close(&socket, (&bytes, closed.urgent), limit)
}

fn send_and_close(
    socket: &Socket,
    (bytes, urgent): (&[u8], Option<Urgent>),
    limit: Duration,
) -> Result<()> {
    let (fd, urgent) = (socket.as_fd(), urgent.map(|urgent| urgent.at as usize));
    let all = &mut [Refill { through: fd, to: fd, bytes, urgent, may_grow: false }];
    refill(all, limit, PATIENCE)?;
    SockRef::from(socket)
        .shutdown(std::net::Shutdown::Write)
        .map_err(|error| EngineError::system("shut down", "a closed TCP client", error))
}
