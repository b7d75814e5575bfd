//! Datagrams in a queue, and what else the next call would be told.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use socket2::{SockAddr, Socket};

use super::super::super::error::{EngineError, Refusal, Result};
use super::super::super::graph::BlobId;
use super::super::super::sys::disconnect::disconnect;
use super::super::super::sys::message::receive;
use super::super::super::sys::poll::poll_one;
use super::super::super::sys::sockopt;
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

/// Every datagram in the queue, in order, left where it is (socket(7), SO_PEEK_OFF), and from where it came.
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
    set(0)?;
    let mut buffer = vec![0u8; LONGEST];
    let (mut all, mut senders) = (Vec::new(), Vec::new());
    let outcome = loop {
        match receive(&probe.copy, &mut buffer, 0, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
            Ok(message) => {
                let bytes = buffer.get(..message.length).unwrap_or_default();
                all.push(context.keep(bytes.to_vec()));
                senders.push(address(&message.from, v6));
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // EAGAIN: no more. The other: an ICMP answer that came just now.
                Some(libc::EAGAIN) => break Ok(()),
                Some(libc::ECONNREFUSED) => {}
                _ => break Err(system("peek at", error)),
            },
        }
    };
    // On every path the program's own offset comes back (-1: none).
    set(before)?;
    outcome.map(|()| (all, senders))
}

/// struct sockaddr_in or sockaddr_in6 behind its family.
fn address(bytes: &[u8], v6: bool) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(bytes.get(..2)?.try_into().ok()?);
    let ip: IpAddr = if v6 {
        let octets: [u8; 16] = bytes.get(6..22)?.try_into().ok()?;
        Ipv6Addr::from(octets).into()
    } else {
        let octets: [u8; 4] = bytes.get(2..6)?.try_into().ok()?;
        Ipv4Addr::from(octets).into()
    };
    (port != 0).then(|| SocketAddr::new(ip, port))
}

/// The job's own socket that sends from an address.
pub(super) fn bearer<'m>(
    made: &'m [(&Saved<'_, UdpSocket>, Socket)],
    from: SocketAddr,
    receiver: &UdpSocket,
) -> Option<&'m Socket> {
    let bears = |socket: &Socket| {
        let own = socket.local_addr().ok().and_then(|own| own.as_socket());
        own.is_some_and(|own| {
            let any = own.ip().is_unspecified() && from.ip().is_loopback();
            own.port() == from.port() && (own.ip() == from.ip() || any)
        })
    };
    made.iter()
        .filter(|(saved, _)| saved.object.v6 == receiver.v6 && saved.object.lite == receiver.lite)
        .map(|(_, socket)| socket)
        .find(|socket| bears(socket))
}

/// Puts a datagram into a socket's own queue, before it is connected to anyone: from `sender`, or from one of ours that has
/// the address `from` for the moment, if it can be had.
///
/// # Errors
/// Failed system calls.
pub(super) fn send(
    saved: &UdpSocket,
    socket: &Socket,
    bytes: &[u8],
    from: Option<SocketAddr>,
    sender: Option<&Socket>,
    shared: bool,
    context: &mut RestoreContext,
) -> Result<()> {
    let own = socket.local_addr().map_err(|error| system("getsockname", error))?;
    let own = own.as_socket().ok_or_else(|| EngineError::odd("getsockname", "no IP address"))?;
    let loopback: IpAddr =
        if own.is_ipv6() { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    let temporary;
    let mut known = sender;
    if let (None, Some(from)) = (sender, from) {
        temporary = bearing(saved, from);
        match &temporary {
            Ok(made) => known = Some(made),
            Err(error) => context.warn(format!(
                "a datagram that is not read yet names another sender than {from}, whose address can't be had ({error})"
            )),
        }
    }
    let target = match (own.ip().is_unspecified(), from.filter(|_| known.is_some())) {
        (false, _) => own,
        (true, Some(from)) => SocketAddr::new(from.ip(), own.port()),
        (true, None) => SocketAddr::new(loopback, own.port()),
    };
    let anybody = saved.make()?;
    let sender = known.unwrap_or(&anybody);
    if shared && !std::ptr::eq(sender, socket) {
        // Of those at one port it goes to the one that has this peer (net/ipv4/udp.c, compute_score).
        if known.is_none() {
            let ip = if target.ip().is_loopback() { loopback } else { target.ip() };
            sender
                .bind(&SockAddr::from(SocketAddr::new(ip, 0)))
                .map_err(|error| system("bind", error))?;
        }
        let name = match from.filter(|_| known.is_some()) {
            Some(from) => SockAddr::from(from),
            None => sender.local_addr().map_err(|error| system("getsockname", error))?,
        };
        socket.connect(&name).map_err(|error| system("connect", error))?;
    }
    let sent = sender
        .send_to(bytes, &SockAddr::from(target))
        .map_err(|error| EngineError::system("send to", target.to_string(), error));
    if shared && !std::ptr::eq(sender, socket) {
        disconnect(socket).map_err(|error| system("disconnect", error))?;
    }
    sent.map(|_| ())
}

/// A socket of ours with an address.
fn bearing(like: &UdpSocket, from: SocketAddr) -> std::io::Result<Socket> {
    let made = like.make().map_err(std::io::Error::other)?;
    made.set_reuse_address(true)?;
    made.bind(&SockAddr::from(from))?;
    Ok(made)
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
    let closed = std::net::UdpSocket::bind(SocketAddr::new(ip, 0))?.local_addr()?;
    socket.connect(&SockAddr::from(closed))?;
    socket.send(b"")?;
    poll_one(socket, 0, ANSWERS_WITHIN).map(drop)
}
