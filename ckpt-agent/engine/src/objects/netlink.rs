//! Netlink sockets (netlink(7)) with nothing in flight: opened again, with their groups, peer and options.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{NetlinkAddr, bind, connect, getpeername, getsockname};
use serde::{Deserialize, Serialize};
use socket2::{Protocol, Type};

use super::super::error::{EngineError, Refusal, Result};
use super::super::sys::restrained::{OVER_SOCKET_OPTIONS, Restrained};
use super::super::sys::{abi, network, sockopt};
use super::socket_options::{Kind, Moment, SocketOptions};
use super::{DumpContext, Fate, ObjectKind, Probe, RestoreContext, Saved, unread};

/// Options of netlink sockets.
const KIND: Kind = Kind { family: libc::AF_NETLINK, protocol: 0 };

/// NETLINK_ADD_MEMBERSHIP, NETLINK_LIST_MEMBERSHIPS (include/uapi/linux/netlink.h).
const ADD_MEMBERSHIP: i32 = 1;
const LIST_MEMBERSHIPS: i32 = 9;
/// More groups than any protocol has.
const MOST_GROUPS: usize = 32 * 1024;

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
    /// All its groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memberships: Vec<u32>,
    /// What connect(2) was given: port and groups, all 0: the kernel.
    #[serde(default)]
    pub peer: (u32, u32),
    /// SOCK_RAW rather than SOCK_DGRAM, between which the kernel makes no other difference.
    #[serde(default)]
    pub raw: bool,
    /// Options and buffer sizes.
    pub options: SocketOptions,
}

impl ObjectKind for NetlinkSocket {
    const OF_NETWORK: bool = true;

    fn recognise(probe: &Probe) -> bool {
        probe.file_type() == abi::S_IFSOCK
            && sockopt::get_int(&probe.copy, libc::SOL_SOCKET, libc::SO_DOMAIN)
                .is_ok_and(|domain| domain == libc::AF_NETLINK)
    }

    fn dump(probe: &Probe, _context: &mut DumpContext) -> Result<Self> {
        let protocol = sockopt::get_int(&probe.copy, libc::SOL_SOCKET, libc::SO_PROTOCOL)
            .map_err(|error| EngineError::system("getsockopt", "a netlink socket", error))?;
        // The kernel's messages can't be put back: others may not send in its name. Nor can an error (messages were lost).
        if unread::anything(probe)? {
            if protocol == libc::NETLINK_ROUTE && !unread::message(probe)? {
                let what =
                    "a netlink socket through which mq_notify(3) has a thread begun (SIGEV_THREAD)";
                return Err(Refusal::new(what, "have the program told by a signal").into());
            }
            return Err(Refusal::passing(
                "a netlink socket with messages that are not read yet",
                "it is taken once the program has read them",
            )
            .into());
        }
        let name = getsockname::<NetlinkAddr>(probe.copy.as_raw_fd())
            .map_err(|errno| EngineError::system("getsockname", "a netlink socket", errno))?;
        let kind = sockopt::get_int(&probe.copy, libc::SOL_SOCKET, libc::SO_TYPE)
            .map_err(|error| EngineError::system("getsockopt", "a netlink socket", error))?;
        Ok(Self {
            protocol,
            bound: name.pid() != 0,
            port: name.pid(),
            groups: name.groups(),
            memberships: memberships(probe),
            peer: peer(probe)?,
            raw: kind == libc::SOCK_RAW,
            options: SocketOptions::read(&probe.copy, KIND)?,
        })
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        for saved in all {
            let socket = make(saved.object, context)?;
            context.park(saved.id, socket)?;
        }
        Ok(())
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Again
    }
}

/// Groups as the kernel lists them, words of 32 bits, the first of which is also in the socket's name.
fn memberships(probe: &Probe) -> Vec<u32> {
    let listed =
        sockopt::get_bytes(&probe.copy, abi::SOL_NETLINK, LIST_MEMBERSHIPS, MOST_GROUPS / 8);
    // Before Linux 4.2 there is no list, and no more is known than the name tells.
    let words = listed.unwrap_or_default();
    let bits =
        words.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap_or_default()));
    let groups = bits.enumerate().flat_map(|(word, bits)| {
        (0..32).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| word as u32 * 32 + bit + 1)
    });
    groups.collect()
}

fn peer(probe: &Probe) -> Result<(u32, u32)> {
    let name = getpeername::<NetlinkAddr>(probe.copy.as_raw_fd())
        .map_err(|errno| EngineError::system("getpeername", "a netlink socket", errno))?;
    Ok((name.pid(), name.groups()))
}

fn make(object: &NetlinkSocket, context: &mut RestoreContext) -> Result<OwnedFd> {
    let system = |call, error| EngineError::system(call, "a netlink socket", error);
    let kind = if object.raw { Type::RAW } else { Type::DGRAM };
    let socket =
        network::socket(libc::AF_NETLINK.into(), kind, Some(Protocol::from(object.protocol)))
            .map_err(|error| system("make", error))?;
    let restrained = Restrained::further(OVER_SOCKET_OPTIONS)?;
    let bind = |port| bind(socket.as_raw_fd(), &NetlinkAddr::new(port, object.groups));
    if object.bound && bind(object.port).is_err() {
        // The port is taken on this machine: the kernel chooses one, as it did at first.
        bind(0).map_err(|errno| system("bind", errno.into()))?;
        context.warn(format!(
            "netlink socket: its port {} is taken here: it has another",
            object.port
        ));
    }
    let mut failed = Vec::new();
    for &group in &object.memberships {
        let joined = sockopt::set_int(&socket, abi::SOL_NETLINK, ADD_MEMBERSHIP, group as i32);
        if joined.is_err() {
            failed.push(format!("group {group}"));
        }
    }
    if object.peer != (0, 0) {
        let (port, groups) = object.peer;
        // Some protocols have peers other than the kernel for root alone, and its groups by number.
        if connect(socket.as_raw_fd(), &NetlinkAddr::new(port, groups)).is_err() {
            failed.push(format!("its peer (port {port}, groups {groups:#x})"));
        }
    }
    drop(restrained);
    for moment in [Moment::BeforeBind, Moment::Made, Moment::Last] {
        let options = object.options.apply(&socket, KIND, moment);
        failed.extend(options.into_iter().map(str::to_owned));
    }
    object.options.apply_buffers(&socket);
    object.options.apply_buffer_lock(&socket);
    if !failed.is_empty() {
        context
            .warn(format!("netlink socket: not restored, not allowed here: {}", failed.join(", ")));
    }
    Ok(socket.into())
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
