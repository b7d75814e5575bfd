//! Netlink sockets (netlink(7)) with nothing in flight: opened again, with their groups.

use netlink_sys::{Socket, SocketAddr};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsRawFd, OwnedFd};

use super::super::error::{EngineError, Refusal, Result};
use super::super::sys::{abi, sockopt};
use super::socket_options::{Kind, SocketOptions};
use super::{DumpContext, Probe, RestoreContext, Room, Saved};

/// Options of netlink sockets.
const KIND: Kind = Kind { family: libc::AF_NETLINK, tcp: false };

/// A netlink socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetlinkSocket {
    /// NETLINK_ROUTE and so on.
    pub protocol: i32,
    /// Bound, by the program or by its first message.
    pub bound: bool,
    /// Its port, which is usually its process's number.
    pub port: u32,
    /// Multicast groups 1 to 32 as a mask.
    pub groups: u32,
    /// Options and buffer sizes.
    pub options: SocketOptions,
}

impl Room for NetlinkSocket {
    fn recognise(probe: &Probe) -> bool {
        probe.file_type() == abi::S_IFSOCK
            && sockopt::get_int(&probe.copy, libc::SOL_SOCKET, libc::SO_DOMAIN)
                .is_ok_and(|domain| domain == libc::AF_NETLINK)
    }

    fn dump(probe: &Probe, _context: &mut DumpContext) -> Result<Self> {
        let protocol = sockopt::get_int(&probe.copy, libc::SOL_SOCKET, libc::SO_PROTOCOL)
            .map_err(|error| EngineError::system("getsockopt", "a netlink socket", error))?;
        let queued = sockopt::readable(&probe.copy).unwrap_or(0) > 0
            || super::super::sys::poll::poll_one(
                &probe.copy,
                libc::POLLIN,
                std::time::Duration::ZERO,
            )
            .is_ok_and(|ready| ready & libc::POLLIN != 0);
        if queued {
            return Err(Refusal::new(
                "a netlink socket with messages that were not read",
                "they are read soon: try again",
            )
            .into());
        }
        let name =
            nix::sys::socket::getsockname::<nix::sys::socket::NetlinkAddr>(probe.copy.as_raw_fd())
                .map_err(|errno| EngineError::system("getsockname", "a netlink socket", errno))?;
        Ok(Self {
            protocol,
            bound: name.pid() != 0,
            port: name.pid(),
            groups: name.groups(),
            options: SocketOptions::read(&probe.copy, KIND)?,
        })
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        for saved in all {
            let object = saved.object;
            let system = |call, error| EngineError::system(call, "a netlink socket", error);
            let mut socket =
                Socket::new(object.protocol as isize).map_err(|error| system("make", error))?;
            if object.bound && socket.bind(&SocketAddr::new(object.port, object.groups)).is_err() {
                // The port is taken on this machine: the kernel chooses one, as it did at first.
                socket
                    .bind(&SocketAddr::new(0, object.groups))
                    .map_err(|error| system("bind", error))?;
            }
            object.options.apply_buffers(&socket);
            object.options.apply_buffer_lock(&socket);
            // The crate's type does not give its descriptor away.
            let fd: OwnedFd = std::os::fd::AsFd::as_fd(&socket)
                .try_clone_to_owned()
                .map_err(|error| system("dup", error))?;
            context.park(saved.id, fd)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

    use super::super::testing::dump;

    #[test]
    fn route_sockets_return_with_their_groups() {
        let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
        socket.bind(&SocketAddr::new(0, 1)).unwrap();
        let dumped = dump(&[socket.as_fd()]);
        drop(socket);
        let back = dumped.restore();
        let again = dump(&[back.fds[0].as_fd()]);
        assert_eq!(
            serde_json::to_string(&again.files).unwrap(),
            serde_json::to_string(&dumped.files).unwrap()
        );
    }
}
