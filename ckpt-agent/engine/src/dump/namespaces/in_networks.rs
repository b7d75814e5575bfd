//! What can be kept of sockets in network namespaces of the job's own.

use std::net::SocketAddr;

use super::super::super::error::{Refusal, Result};
use super::super::super::objects::Object;
use super::WAY_OUT;
use super::related::Networks;

/// Ports below it are root's (ip(7), ip_unprivileged_port_start).
const FIRST_OF_ALL: u16 = 1024;

/// Refuses what a restart could not make again in a network of the job's own. `for_user`: root does so for a user, with no
/// more rights than the user has.
///
/// # Errors
/// The refusal, without the names of process and descriptor.
pub fn check_kept(networks: &Networks, place: u32, object: &Object, for_user: bool) -> Result<()> {
    let of_root = |at: Option<SocketAddr>| {
        for_user && at.is_some_and(|at| at.port() != 0 && at.port() < FIRST_OF_ALL)
    };
    let is_down = networks.down.contains(&place);
    let what = match object {
        Object::IpSocket(socket) if socket.raw.is_none() => "an ICMP socket",
        Object::IpSocket(_) | Object::PacketSocket(_) if for_user => {
            "a user's raw or packet socket, which root would have to make,"
        }
        Object::TcpSocket(socket) if of_root(socket.local) => {
            "a user's socket at a port below 1024, which root would have to bind,"
        }
        Object::UdpSocket(socket) if of_root(socket.local) => {
            "a user's socket at a port below 1024, which root would have to bind,"
        }
        Object::TcpSocket(socket) if is_down && socket.is_connected() => {
            "a connection, while the loopback device is down,"
        }
        Object::UdpSocket(socket) if is_down && socket.peer.is_some() => {
            "a connected socket, while the loopback device is down,"
        }
        _ => return Ok(()),
    };
    let what = format!("{what} in a network namespace of the job's own");
    Err(Refusal::new(what, WAY_OUT).into())
}
