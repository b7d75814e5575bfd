//! Packet sockets (packet(7)) without rings: bound to an interface by its name, with their memberships and options. Nothing of
//! what they have received can be put back: a checkpoint waits until it is read.

use std::io;

use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use super::super::error::{EngineError, Refusal, Result};
use super::super::sys::packet_diag::{self, PacketEntry};
use super::super::sys::packet_name::{self, PacketName};
use super::super::sys::{abi, interface, network, sockopt};
use super::rights::{self, Privileged};
use super::socket_options::{Kind, Moment, SocketOptions};
use super::{DumpContext, Fate, ObjectKind, Probe, RestoreContext, Saved, unread};

/// Options of packet sockets.
const KIND: Kind = Kind { family: libc::AF_PACKET, protocol: 0 };
/// SOL_PACKET, PACKET_ADD_MEMBERSHIP, PACKET_FANOUT (include/uapi/linux/if_packet.h).
const SOL_PACKET: i32 = 263;
const ADD_MEMBERSHIP: i32 = 1;
const FANOUT: i32 = 18;
/// struct packet_mreq has room for this much of an address.
const ADDRESS: usize = 8;
/// A membership is joined that often at most.
const MOST_JOINS: u32 = 4096;

/// A packet socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketSocket {
    /// SOCK_RAW rather than SOCK_DGRAM.
    pub raw: bool,
    /// What it receives (ETH_P_*); 0: nothing.
    pub protocol: u16,
    /// The one interface that it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// What it has joined.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memberships: Vec<Membership>,
    /// Options and buffer sizes.
    pub options: SocketOptions,
}

/// What an interface receives for a packet socket besides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The interface.
    pub interface: String,
    /// PACKET_MR_*
    pub kind: u16,
    /// A hardware address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub address: Vec<u8>,
    /// How often it was joined.
    pub count: u32,
}

fn system(call: &'static str, error: io::Error) -> EngineError {
    EngineError::system(call, "a packet socket", error)
}

fn refused(what: &str) -> EngineError {
    Refusal::new(format!("a packet socket {what}"), "close it while checkpoints are taken").into()
}

impl ObjectKind for PacketSocket {
    const OF_NETWORK: bool = true;

    fn recognise(probe: &Probe) -> bool {
        let option = |name| sockopt::get_int(&probe.copy, libc::SOL_SOCKET, name).ok();
        probe.file_type() == abi::S_IFSOCK
            && option(libc::SO_DOMAIN) == Some(libc::AF_PACKET)
            && matches!(option(libc::SO_TYPE), Some(libc::SOCK_RAW | libc::SOCK_DGRAM))
    }

    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        rights::must_return(Privileged::Packet, context)?;
        let entry = listed(probe)?;
        if entry.ring {
            return Err(refused("with a ring (PACKET_RX_RING, PACKET_TX_RING)"));
        }
        if entry.fanout || sockopt::get_int(&probe.copy, SOL_PACKET, FANOUT).is_ok_and(|id| id != 0)
        {
            return Err(refused("that shares what it receives with others (PACKET_FANOUT)"));
        }
        if unread::anything(probe)? {
            return Err(Refusal::passing(
                "a packet socket with something that is not read yet",
                "it is taken once the program has read it",
            )
            .into());
        }
        let name = packet_name::of(&probe.copy).map_err(|error| system("getsockname", error))?;
        let kind = sockopt::get_int(&probe.copy, libc::SOL_SOCKET, libc::SO_TYPE)
            .map_err(|error| system("getsockopt", error))?;
        let interface = match name.interface {
            0 => None,
            // It has gone (-1), and what the socket would receive with it.
            index => Some(
                u32::try_from(index)
                    .ok()
                    .and_then(interface::name)
                    .ok_or_else(|| refused("that is bound to an interface which has gone"))?,
            ),
        };
        let mut memberships = Vec::with_capacity(entry.memberships.len());
        for listed in entry.memberships {
            // It went with the interface.
            let Some(interface) = interface::name(listed.interface) else { continue };
            if listed.address.len() > ADDRESS {
                return Err(refused("with a membership of a long hardware address"));
            }
            let (kind, address, count) = (listed.kind, listed.address, listed.count);
            memberships.push(Membership { interface, kind, address, count });
        }
        // The last one comes first in the list.
        memberships.reverse();
        Ok(Self {
            raw: kind == libc::SOCK_RAW,
            protocol: name.protocol,
            interface,
            memberships,
            options: SocketOptions::read(&probe.copy, KIND)?,
        })
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        for saved in all {
            let socket = make(saved.object, context)?;
            context.park(saved.id, socket.into())?;
        }
        Ok(())
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        // Each machine's would receive what comes to that machine.
        Fate::Undivided
    }

    /// Until it is bound it receives nothing of what the restore itself sends.
    fn wire(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        for saved in all {
            let object = saved.object;
            let interface = match &object.interface {
                None if object.protocol == 0 => continue,
                None => 0,
                Some(name) => number(name)? as i32,
            };
            let name = PacketName { protocol: object.protocol, interface };
            packet_name::bind(context.parked(saved.id)?, &name)
                .map_err(|error| system("bind", error))?;
        }
        Ok(())
    }
}

/// What the kernel's list says of it.
fn listed(probe: &Probe) -> Result<PacketEntry> {
    let all = packet_diag::packet_sockets().map_err(|error| {
        Refusal::new(
            format!("a packet socket, of which this kernel does not tell everything ({error})"),
            "close it while checkpoints are taken, or use a kernel with CONFIG_PACKET_DIAG",
        )
    })?;
    let own = all.get(&(probe.stat.st_ino as u32)).cloned();
    own.ok_or_else(|| refused("of another network namespace"))
}

fn number(interface: &str) -> Result<u32> {
    interface::index(interface).map_err(|error| EngineError::Unfit {
        what: format!("the job has a packet socket of interface {interface} ({error})"),
        way_out: "restart it where there is such an interface".into(),
    })
}

fn make(saved: &PacketSocket, context: &mut RestoreContext) -> Result<Socket> {
    let kind = if saved.raw { Type::RAW } else { Type::DGRAM };
    let socket = rights::make(Privileged::Packet, || {
        // Of protocol 0, it receives nothing yet.
        network::socket(Domain::from(libc::AF_PACKET), kind, None)
    })?;
    let mut failed: Vec<String> = Vec::new();
    for moment in [Moment::BeforeBind, Moment::Made, Moment::Last] {
        let options = saved.options.apply(&socket, KIND, moment);
        failed.extend(options.into_iter().map(str::to_owned));
    }
    saved.options.apply_buffers(&socket);
    saved.options.apply_buffer_lock(&socket);
    for membership in &saved.memberships {
        if let Err(error) = join(&socket, membership) {
            failed.push(format!("a membership of {} ({error})", membership.interface));
        }
    }
    if !failed.is_empty() {
        context
            .warn(format!("packet socket: not restored, not allowed here: {}", failed.join(", ")));
    }
    Ok(socket)
}

/// struct packet_mreq: interface, type, length of the address, the address.
fn join(socket: &Socket, membership: &Membership) -> io::Result<()> {
    let length = membership.address.len();
    if length > ADDRESS || membership.count > MOST_JOINS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut value = (interface::index(&membership.interface)? as i32).to_ne_bytes().to_vec();
    value.extend(membership.kind.to_ne_bytes());
    value.extend((length as u16).to_ne_bytes());
    value.extend(&membership.address);
    value.resize(8 + ADDRESS, 0);
    (0..membership.count)
        .try_for_each(|_| sockopt::set_bytes(socket, SOL_PACKET, ADD_MEMBERSHIP, &value))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::testing::dump;
    use super::*;

    #[test]
    fn a_packet_socket_returns_with_what_it_has_joined() {
        // Of the loopback, and of a protocol that nobody speaks.
        let kind = Domain::from(libc::AF_PACKET);
        let Ok(socket) = Socket::new(kind, Type::DGRAM, None) else { return };
        let name =
            PacketName { protocol: 0x88b5, interface: interface::index("lo").unwrap() as i32 };
        packet_name::bind(socket.as_fd(), &name).unwrap();
        let promiscuous =
            Membership { interface: "lo".into(), kind: 1, address: Vec::new(), count: 2 };
        join(&socket, &promiscuous).unwrap();
        let dumped = dump(&[socket.as_fd()]);
        drop(socket);
        let back = dumped.restore();
        let again = dump(&[back.fds[0].as_fd()]);
        assert_eq!(
            serde_json::to_string(&again.files).unwrap(),
            serde_json::to_string(&dumped.files).unwrap()
        );
        let _acting = super::super::super::sys::restrained::Restrained::begin(&[]).unwrap();
        let refused = dumped.try_restore().map(drop).unwrap_err();
        assert!(matches!(&refused, EngineError::Unfit { .. }), "{refused}");
    }
}
