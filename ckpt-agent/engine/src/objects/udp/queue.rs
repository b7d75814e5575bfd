//! Datagrams that nobody has read: peeked at by a dump, and sent again by a restore, each from where it had come as far as
//! that can be had.

use std::collections::HashSet;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;

use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use socket2::{SockAddr, Socket};

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::BlobId;
use super::super::super::sys::disconnect::disconnect;
use super::super::super::sys::message::receive;
use super::super::super::sys::sockopt;
use super::super::{DumpContext, Found, Probe, RestoreContext, Saved};
use super::{UdpSocket, system};

/// A datagram is at most this long (udp(7)).
const LONGEST: usize = 65_536;

/// Fills in what has not been read, of all sockets.
pub(super) fn read(all: &mut [Found<'_, UdpSocket>], context: &mut DumpContext) -> Result<()> {
    let own: HashSet<u16> =
        all.iter().filter_map(|found| Some(found.object.local?.port())).collect();
    for found in all {
        let probe = found.probe;
        let (received, sources) = peek(probe, found.object.v6, context)?;
        let strange =
            |source: &Option<SocketAddr>| source.is_none_or(|source| !own.contains(&source.port()));
        if sources.iter().any(strange) {
            context.warn(format!(
                "process {} ({}), descriptor {}: datagrams not read yet may have another source address after a \
                 restart",
                probe.pid, probe.comm, probe.fd
            ));
        }
        (found.object.received, found.object.sources) = (received, sources);
    }
    Ok(())
}

/// Every datagram in the queue, in order, and where each came from, left where they are (socket(7), SO_PEEK_OFF).
fn peek(
    probe: &Probe,
    v6: bool,
    context: &mut DumpContext,
) -> Result<(Vec<BlobId>, Vec<Option<SocketAddr>>)> {
    let set = |offset| {
        sockopt::set_int(&probe.copy, libc::SOL_SOCKET, libc::SO_PEEK_OFF, offset)
            .map_err(|error| system("setsockopt SO_PEEK_OFF", error))
    };
    let before = sockopt::get_int(&probe.copy, libc::SOL_SOCKET, libc::SO_PEEK_OFF)
        .map_err(|error| system("getsockopt SO_PEEK_OFF", error))?;
    set(0)?;
    let mut buffer = vec![0u8; LONGEST];
    let (mut all, mut sources) = (Vec::new(), Vec::new());
    let outcome = loop {
        match receive(&probe.copy, &mut buffer, 0, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
            Ok(message) => {
                let bytes = buffer.get(..message.length).unwrap_or_default();
                all.push(context.keep(bytes.to_vec()));
                sources.push(source(&message.from, v6));
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // EAGAIN: no more. The other: an ICMP answer that this call has taken note of.
                Some(libc::EAGAIN) => break Ok(()),
                Some(libc::ECONNREFUSED) => {}
                _ => break Err(system("peek at", error)),
            },
        }
    };
    // On every path the program's own offset comes back (-1: none).
    set(before)?;
    outcome.map(|()| (all, sources))
}

/// The address out of struct sockaddr_in or sockaddr_in6 behind its family.
fn source(bytes: &[u8], v6: bool) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(bytes.get(..2)?.try_into().ok()?);
    if !v6 {
        let ip: [u8; 4] = bytes.get(2..6)?.try_into().ok()?;
        return Some((Ipv4Addr::from(ip), port).into());
    }
    let ip: [u8; 16] = bytes.get(6..22)?.try_into().ok()?;
    let scope = u32::from_ne_bytes(bytes.get(22..26)?.try_into().ok()?);
    Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
}

/// Puts back what was not read, while no socket is connected to anyone.
///
/// # Errors
/// Failed system calls; images that are damaged.
pub(super) fn fill(
    made: &[(&Saved<'_, UdpSocket>, Socket)],
    is_shared: impl Fn(&UdpSocket) -> bool,
    context: &mut RestoreContext,
) -> Result<()> {
    for (saved, socket) in made {
        let shared = is_shared(saved.object);
        let mut strange = 0;
        for (index, blob) in saved.object.received.iter().enumerate() {
            let bytes = context.blob(*blob)?;
            let from = saved.object.sources.get(index).copied().flatten().map(canonical);
            let sent = from
                .is_some_and(|from| send_from(from, (saved, socket), &bytes, shared, made).is_ok());
            if !sent {
                strange += 1;
                send_to_itself(saved.object, socket, &bytes, shared)?;
            }
        }
        if strange > 0 {
            let name = saved.object.name();
            let place = saved.object.local.map(|at| format!(" at {at}")).unwrap_or_default();
            context.warn(format!(
                "{name}{place}: {strange} datagrams that were not read yet have another source address: theirs can't be had"
            ));
        }
    }
    Ok(())
}

/// An IPv4 address as such, where it is one.
fn canonical(address: SocketAddr) -> SocketAddr {
    match (address, address.ip().to_canonical()) {
        (SocketAddr::V6(_), IpAddr::V4(ip)) => SocketAddr::new(ip.into(), address.port()),
        _ => address,
    }
}

/// As a socket of a family takes it.
fn as_family(address: SocketAddr, v6: bool) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if v6 => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        _ => address,
    }
}

fn own_address(socket: &Socket) -> Result<SocketAddr> {
    let own = socket.local_addr().map_err(|error| system("getsockname", error))?;
    own.as_socket().ok_or_else(|| EngineError::odd("getsockname", "no IP address"))
}

/// Whether a socket can have sent something from an address, by the family of both.
fn speaks(socket: &UdpSocket, from: SocketAddr) -> bool {
    match from {
        SocketAddr::V4(_) => !socket.v6 || socket.options.number("v6_only") == 0,
        SocketAddr::V6(_) => socket.v6,
    }
}

/// Sends a datagram to a socket from the one of the job's that had sent it, else from a socket of the restore's that has
/// its address for a moment: the program has closed it since, or it was another program's on this machine.
fn send_from(
    from: SocketAddr,
    (saved, socket): (&Saved<'_, UdpSocket>, &Socket),
    bytes: &[u8],
    shared: bool,
    made: &[(&Saved<'_, UdpSocket>, Socket)],
) -> Result<()> {
    let own = canonical(own_address(socket)?);
    // Whoever has an address of this machine reaches all sockets here by that very address.
    let target = match own.ip().is_unspecified() {
        true => SocketAddr::new(from.ip(), own.port()),
        false => own,
    };
    let mut of_job = None;
    for (other, candidate) in
        made.iter().filter(|(other, _)| other.object.lite == saved.object.lite)
    {
        let at = canonical(own_address(candidate)?);
        let fits = at.port() == from.port() && (at.ip() == from.ip() || at.ip().is_unspecified());
        if fits && speaks(other.object, from) {
            let exact = at.ip() == from.ip();
            if of_job.is_none() || exact {
                of_job = Some((candidate, other.object.v6));
            }
        }
    }
    let own_sender;
    let (sender, v6) = match of_job {
        Some(found) => found,
        None => {
            let alike = UdpSocket { v6: from.is_ipv6(), ..saved.object.clone() };
            own_sender = alike.make()?;
            own_sender.bind(&SockAddr::from(from)).map_err(|error| system("bind", error))?;
            (&own_sender, from.is_ipv6())
        }
    };
    let connects = shared && !std::ptr::eq(sender, socket);
    if connects {
        // Of those at one port it goes to the one that has this peer (net/ipv4/udp.c, compute_score).
        let peer = as_family(from, saved.object.v6);
        socket.connect(&SockAddr::from(peer)).map_err(|error| system("connect", error))?;
    }
    let sent = send_with_source(sender, bytes, as_family(target, v6), as_family(from, v6));
    if connects {
        disconnect(socket).map_err(|error| system("disconnect", error))?;
    }
    sent.map_err(|error| EngineError::system("send to", target.to_string(), error))
}

/// sendto(2) with the source's address given for this once (IP_PKTINFO, IPV6_PKTINFO; ip(7), ipv6(7)): one that is bound to
/// all of them has the one that the route prefers otherwise.
fn send_with_source(
    sender: &Socket,
    bytes: &[u8],
    target: SocketAddr,
    source: SocketAddr,
) -> io::Result<()> {
    let parts = [IoSlice::new(bytes)];
    let target = SockaddrStorage::from(target);
    let fd = sender.as_raw_fd();
    let flags = MsgFlags::MSG_DONTWAIT;
    let sent = match source.ip() {
        IpAddr::V4(ip) => {
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from(ip).to_be() },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            sendmsg(fd, &parts, &[ControlMessage::Ipv4PacketInfo(&info)], flags, Some(&target))
        }
        IpAddr::V6(ip) => {
            let info = libc::in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: ip.octets() },
                ipi6_ifindex: 0,
            };
            sendmsg(fd, &parts, &[ControlMessage::Ipv6PacketInfo(&info)], flags, Some(&target))
        }
    };
    sent.map(drop).map_err(io::Error::from)
}

/// Puts a datagram into a socket's own queue, from an address of the restore's.
fn send_to_itself(saved: &UdpSocket, socket: &Socket, bytes: &[u8], shared: bool) -> Result<()> {
    let own = own_address(socket)?;
    let target = match own {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => {
            SocketAddr::new(Ipv4Addr::LOCALHOST.into(), v4.port())
        }
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
            SocketAddr::new(Ipv6Addr::LOCALHOST.into(), v6.port())
        }
        bound => bound,
    };
    let sender = saved.make()?;
    if shared {
        // Of those at one port it goes to the one that has this peer (net/ipv4/udp.c, compute_score).
        let loopback: IpAddr =
            if own.is_ipv6() { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
        let ip = if target.ip().is_loopback() { loopback } else { target.ip() };
        sender
            .bind(&SockAddr::from(SocketAddr::new(ip, 0)))
            .map_err(|error| system("bind", error))?;
        let name = sender.local_addr().map_err(|error| system("getsockname", error))?;
        socket.connect(&name).map_err(|error| system("connect", error))?;
    }
    let sent = sender
        .send_to(bytes, &SockAddr::from(target))
        .map_err(|error| EngineError::system("send to", target.to_string(), error));
    if shared {
        disconnect(socket).map_err(|error| system("disconnect", error))?;
    }
    sent.map(|_| ())
}
