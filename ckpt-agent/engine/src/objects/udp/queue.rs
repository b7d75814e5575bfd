//! Datagrams in a queue, and what else the next call would be told.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use socket2::{Domain, SockAddr, Socket, Type};

use super::super::super::error::{EngineError, Refusal, Result};
use super::super::super::graph::BlobId;
use super::super::super::late::cookie_of;
use super::super::super::sys::disconnect::disconnect;
use super::super::super::sys::message::receive;
use super::super::super::sys::network;
use super::super::super::sys::poll::poll_one;
use super::super::super::sys::sockopt;
use super::super::shown::Item;
use super::super::socket_options::OptionValue;
use super::super::{DumpContext, Probe, RestoreContext, Saved};
use super::{UdpSocket, system};

/// A datagram is at most this long (udp(7)).
const LONGEST: usize = 65_536;
/// How long what was sent may take to leave a network card.
const LEAVES_WITHIN: Duration = Duration::from_millis(20);

/// What a call would be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Datagrams, or nothing.
    Datagrams,
    /// That a port is closed to which something was sent (ECONNREFUSED).
    Refusal,
}

/// Looks without taking anything: a pending error is told to whoever looks at the queue first, and is gone then
/// (net/core/datagram.c, __skb_try_recv_datagram).
///
/// # Errors
/// Refusals of errors that can't be put back, and of a datagram of which parts are still to come.
pub(super) fn waiting(probe: &Probe, socket: &UdpSocket) -> Result<Waiting> {
    refuse_unsent(probe)?;
    let ready = poll_one(&probe.copy, libc::POLLIN, Duration::ZERO)
        .map_err(|error| system("poll", error))?;
    if ready & libc::POLLERR == 0 {
        return Ok(Waiting::Datagrams);
    }
    // What an error queue holds comes with it (ip(7), IP_RECVERR).
    let numbers = ["receive_errors", "v6_receive_errors", "zero_copy"];
    let stamps = |name: &&str| match socket.options.set.get(*name) {
        Some(OptionValue::Bytes(value)) => value.iter().any(|byte| *byte != 0),
        _ => false,
    };
    let queues = numbers.iter().any(|name| socket.options.number(name) != 0)
        || ["timestamping", "timestamping_new"].iter().any(stamps);
    if queues || ready & libc::POLLIN != 0 || socket.peer.is_none() {
        let what = "a UDP socket with an error, or a time stamp, that is not read yet";
        return Err(passing(probe, what, "it is read soon: try again"));
    }
    Ok(Waiting::Refusal)
}

fn refuse_unsent(probe: &Probe) -> Result<()> {
    let began = Instant::now();
    while sockopt::unacknowledged(&probe.copy).is_ok_and(|bytes| bytes > 0) {
        if began.elapsed() > LEAVES_WITHIN {
            let what =
                "a UDP socket with a datagram that is not sent as a whole yet (UDP_CORK, MSG_MORE)";
            return Err(passing(probe, what, "it is sent soon: try again"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn passing(probe: &Probe, what: &str, way_out: &str) -> EngineError {
    EngineError::from(Refusal::passing(what, way_out)).at(probe.pid, &probe.comm, probe.fd)
}

/// Every datagram in the queue, in order, left where it is (socket(7), SO_PEEK_OFF), and from where it came; also empty ones
/// that the kernel does not show any more ([`Shown`](super::super::Shown)).
///
/// # Errors
/// Failed system calls.
pub(super) fn peek(
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
    let looked = set(-1).and_then(|()| {
        let mut buffer = vec![0u8; LONGEST];
        let head = next(probe, &mut buffer)?.filter(|item| item.bytes.is_empty());
        set(0)?;
        let visible = std::iter::from_fn(|| next(probe, &mut buffer).transpose());
        Ok((head, visible.collect::<Result<Vec<Item>>>()?))
    });
    // On every path the program's own offset comes back (-1: none).
    set(before)?;
    let (head, visible) = looked?;
    let cookie = cookie_of(probe.copy.as_fd())
        .ok_or_else(|| EngineError::odd("SO_COOKIE", "a UDP socket has none"))?;
    let all = context.shown.complete(cookie, head, visible);
    let senders = all.iter().map(|item| address(&item.from, v6)).collect();
    Ok((all.into_iter().map(|item| context.keep(item.bytes)).collect(), senders))
}

/// The next datagram that is shown.
fn next(probe: &Probe, buffer: &mut [u8]) -> Result<Option<Item>> {
    loop {
        match receive(&probe.copy, buffer, 0, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
            Ok(message) => {
                let bytes = buffer.get(..message.length).unwrap_or_default().to_vec();
                return Ok(Some(Item { bytes, from: message.from, ..Item::default() }));
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(None),
                // The other: an ICMP answer that came just now.
                Some(libc::EINTR | libc::ECONNREFUSED) => {}
                _ => return Err(system("peek at", error)),
            },
        }
    }
}

/// The address out of struct sockaddr_in or sockaddr_in6 behind its family.
fn address(bytes: &[u8], v6: bool) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(bytes.get(..2)?.try_into().ok()?);
    if port == 0 {
        return None;
    }
    if !v6 {
        let ip: [u8; 4] = bytes.get(2..6)?.try_into().ok()?;
        return Some((Ipv4Addr::from(ip), port).into());
    }
    let ip: [u8; 16] = bytes.get(6..22)?.try_into().ok()?;
    let scope = u32::from_ne_bytes(bytes.get(22..26)?.try_into().ok()?);
    Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
}

/// Whether a socket has its datagrams put back before it is bound. What is sent to the address of a group, or of all, goes to each
/// socket that is bound to it (net/ipv4/udp.c, __udp4_lib_mcast_deliver), and to the network besides. One that is not bound
/// yet has a port of its own while it has a peer, and none afterwards (__udp_disconnect).
pub(super) fn is_filled_unbound(socket: &UdpSocket) -> bool {
    let many = |ip: IpAddr| ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    !socket.received.is_empty() && socket.local.is_some_and(|at| many(at.ip().to_canonical()))
}

/// A socket that is made, and where it is.
struct Place<'m> {
    saved: &'m UdpSocket,
    socket: &'m Socket,
    at: SocketAddr,
}

impl Place<'_> {
    /// Where it is now: one that is not bound is at an address only while it has a peer.
    fn now(&self) -> Result<SocketAddr> {
        if is_filled_unbound(self.saved) { own_address(self.socket) } else { Ok(self.at) }
    }
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
    if made.iter().all(|(saved, _)| saved.object.received.is_empty()) {
        return Ok(());
    }
    let places: Vec<Place<'_>> = made
        .iter()
        .map(|(saved, socket)| Ok(Place { saved: saved.object, socket, at: own_address(socket)? }))
        .collect::<Result<_>>()?;
    for place in &places {
        let shared = is_shared(place.saved);
        let mut strange = 0;
        for (index, blob) in place.saved.received.iter().enumerate() {
            let bytes = context.blob(*blob)?;
            let from = place.saved.senders.get(index).copied().flatten().map(canonical);
            let sent =
                from.is_some_and(|from| send_from(from, place, &bytes, shared, &places).is_ok());
            if !sent {
                strange += 1;
                send_to_itself(place, &bytes, shared)?;
            }
        }
        if strange > 0 {
            let name = place.saved.name();
            let at = place.saved.local.map(|at| format!(" at {at}")).unwrap_or_default();
            context.warn(format!(
                "{name}{at}: {strange} datagrams that were not read yet have another source address: theirs can't be had"
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
    to: &Place<'_>,
    bytes: &[u8],
    shared: bool,
    places: &[Place<'_>],
) -> Result<()> {
    let own_sender;
    let (sender, v6) = match sender_at(from, to.saved.lite, places) {
        Some(place) => (place.socket, place.saved.v6),
        None => {
            own_sender = UdpSocket::new_socket(from.is_ipv6(), to.saved.lite)?;
            own_sender.bind(&SockAddr::from(from)).map_err(|error| system("bind", error))?;
            (&own_sender, from.is_ipv6())
        }
    };
    let alone = !std::ptr::eq(sender, to.socket) && (shared || is_filled_unbound(to.saved));
    let peer = alone.then(|| as_family(from, to.saved.v6));
    with_peer(to.socket, peer, || {
        let own = canonical(to.now()?);
        // Whoever has an address of this machine reaches all sockets here by that very address.
        let target = match own.ip().is_unspecified() {
            true => SocketAddr::new(from.ip(), own.port()),
            false => own,
        };
        send_with_source(sender, bytes, as_family(target, v6), as_family(from, v6))
            .map_err(|error| EngineError::system("send to", target.to_string(), error))
    })
}

/// The job's socket that sends from an address: one that is bound to it, else to all.
fn sender_at<'p, 'm>(
    from: SocketAddr,
    lite: bool,
    places: &'p [Place<'m>],
) -> Option<&'p Place<'m>> {
    let speakers = || {
        let alike = places.iter().filter(move |place| place.saved.lite == lite);
        alike.filter(move |place| place.at.port() == from.port() && speaks(place.saved, from))
    };
    let at = |place: &&Place<'_>| canonical(place.at).ip();
    let exact = speakers().rfind(|place| at(place) == from.ip());
    exact.or_else(|| speakers().find(|place| at(place).is_unspecified()))
}

/// Does something while a socket that shares its port has its sender for a peer: of those at one port a datagram goes to the
/// one that has it (net/ipv4/udp.c, compute_score). None: it does not share its port, or sends to itself.
fn with_peer(
    socket: &Socket,
    peer: Option<SocketAddr>,
    act: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let Some(peer) = peer else { return act() };
    socket.connect(&SockAddr::from(peer)).map_err(|error| system("connect", error))?;
    let done = act();
    disconnect(socket).map_err(|error| system("disconnect", error))?;
    done
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
fn send_to_itself(to: &Place<'_>, bytes: &[u8], shared: bool) -> Result<()> {
    let loopback: IpAddr =
        if to.at.is_ipv6() { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    let here = |ip: IpAddr| if ip.is_unspecified() || ip.is_loopback() { loopback } else { ip };
    let sender = UdpSocket::new_socket(to.saved.v6, to.saved.lite)?;
    let peer = match shared || is_filled_unbound(to.saved) {
        true => {
            sender
                .bind(&SockAddr::from(SocketAddr::new(here(to.at.ip()), 0)))
                .map_err(|error| system("bind", error))?;
            Some(own_address(&sender)?)
        }
        false => None,
    };
    with_peer(to.socket, peer, || {
        let now = to.now()?;
        let ip = if now.ip().is_unspecified() { loopback } else { now.ip() };
        let target = SocketAddr::new(ip, now.port());
        let sent = sender.send_to(bytes, &SockAddr::from(target));
        sent.map(drop).map_err(|error| EngineError::system("send to", target.to_string(), error))
    })
}

/// How long a closed port may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_millis(200);

/// Sends something to a port of this machine that is closed, so that the next call is told so.
///
/// # Errors
/// Failed system calls.
pub(super) fn be_refused(socket: &Socket) -> std::io::Result<()> {
    let own = socket.local_addr()?.as_socket();
    let ip = match own {
        Some(own) if !own.ip().is_unspecified() => own.ip(),
        Some(own) if own.is_ipv6() => Ipv6Addr::LOCALHOST.into(),
        _ => Ipv4Addr::LOCALHOST.into(),
    };
    // Its port is free once it is closed, and nobody has it so soon.
    let at = SocketAddr::new(ip, 0);
    let closed = network::socket(Domain::for_address(at), Type::DGRAM, None)?;
    closed.bind(&SockAddr::from(at))?;
    let target = closed.local_addr()?;
    drop(closed);
    socket.connect(&target)?;
    socket.send(b"")?;
    poll_one(socket, 0, ANSWERS_WITHIN).map(drop)
}
