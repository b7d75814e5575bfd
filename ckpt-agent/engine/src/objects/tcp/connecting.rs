//! Connections that are being made: whom they ask has not answered yet and maybe never will (the kernel asks for
//! two minutes, tcp(7), tcp_syn_retries). They ask anew after a restore. A thread that waits in connect(2)
//! makes the same call again and waits on (net/ipv4/af_inet.c, __inet_stream_connect: SS_CONNECTING).

use std::collections::btree_map::Entry;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use super::super::super::error::{EngineError, Result};
use super::super::super::late::Connecting;
use super::super::super::sys::network;
use super::super::super::sys::poll::poll_one;
use super::super::super::sys::sock_diag::{self, TcpEntry};
use super::make::{self, Address, Purpose};
use super::restore::prepare;
use super::{
    DumpContext, Found, Probe, RestoreContext, Saved, TcpSocket, TcpState, diag, kernel_state, soon,
};

/// Whoever is there answers within this time, and then the connection is made. For all sockets of a dump together.
const PATIENCE: Duration = Duration::from_millis(30);
const PAUSE: Duration = Duration::from_micros(200);

/// What is known once a socket was met that is being connected.
#[derive(Debug)]
pub struct Asking {
    since: Instant,
    /// The kernel's list, read once: nobody begins to connect while everybody stands still.
    listed: Vec<TcpEntry>,
}

/// Whom a socket asks. `None`: it is not, or not any more, being connected.
///
/// # Errors
/// A connection that comes from both sides at once.
pub(super) fn asked(probe: &Probe, context: &mut DumpContext) -> Result<Option<SocketAddr>> {
    loop {
        match i32::from(kernel_state(probe)?) {
            diag::SYN_SENT => {}
            diag::SYN_RECV => return Err(is_being_made(probe)),
            _ => return Ok(None),
        }
        let asking = match context.asking.entry(network::current()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                new.insert(Asking { since: Instant::now(), listed: sock_diag::tcp_sockets()? })
            }
        };
        if asking.since.elapsed() > PATIENCE {
            return whom(probe, &asking.listed).map(Some);
        }
        std::thread::sleep(PAUSE);
    }
}

fn whom(probe: &Probe, listed: &[TcpEntry]) -> Result<SocketAddr> {
    let inode = probe.stat.st_ino as u32;
    let entry = listed
        .iter()
        .find(|entry| entry.inode == inode && i32::from(entry.state) == diag::SYN_SENT)
        // It was answered at this very moment.
        .ok_or_else(|| is_being_made(probe))?;
    Ok(entry.peer)
}

/// A socket whose connection is refused, which its program has not been told yet.
pub(super) fn refused_again(
    saved: &Saved<'_, TcpSocket>,
    until: Instant,
    context: &mut RestoreContext,
) -> Result<OwnedFd> {
    let socket = saved.object;
    let system = |call, error| EngineError::system(call, "a refused TCP connection", error);
    // A socket of IPv6 may have asked an address of IPv4.
    let ip = match socket.local.map(|at| (at.ip(), at.ip().to_canonical())) {
        Some((IpAddr::V6(_), IpAddr::V4(_))) => IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped()),
        _ if socket.v6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    // It has a port where it does not listen.
    let nobody = network::socket(Domain::for_address(SocketAddr::new(ip, 0)), Type::STREAM, None)
        .map_err(|error| system("make", error))?;
    nobody.bind(&SockAddr::from(SocketAddr::new(ip, 0))).map_err(|error| system("bind", error))?;
    let peer = nobody.local_addr().map_err(|error| system("getsockname", error))?;
    let peer = peer.as_socket().ok_or_else(|| EngineError::odd("getsockname", "no address"))?;
    for at in [socket.local, None, None] {
        let options = socket.options.clone();
        let address = Address { v6: socket.v6, multipath: false, at, options };
        let made = unconnected(&address, until, context)?;
        if ask(&made, peer).is_ok() && waits_for_error(&made)? {
            return Ok(made.into());
        }
    }
    Err(EngineError::odd("a connection to a port where nobody listens", "not refused"))
}

fn waits_for_error(socket: &Socket) -> Result<bool> {
    poll_one(socket, 0, PATIENCE)
        .map(|ready| ready & libc::POLLERR != 0)
        .map_err(|error| EngineError::system("poll", "a TCP socket", error))
}

/// At the end of a dump nobody must have answered.
pub(super) fn check_unanswered(all: &[Found<'_, TcpSocket>]) -> Result<()> {
    for found in all {
        if matches!(found.object.state, TcpState::Connecting { .. })
            && i32::from(kernel_state(found.probe)?) != diag::SYN_SENT
        {
            return Err(is_being_made(found.probe));
        }
    }
    Ok(())
}

fn is_being_made(probe: &Probe) -> EngineError {
    soon(
        probe,
        "a TCP connection that is being made",
        "it will be made or have failed soon: try again",
    )
}

/// A socket that asks again: at once where the job is on one machine, else when all of the job is there. Its port is
/// waited for until then.
pub(super) fn again(
    saved: &Saved<'_, TcpSocket>,
    peer: SocketAddr,
    until: Instant,
    context: &mut RestoreContext,
) -> Result<OwnedFd> {
    let socket = saved.object;
    let free = |socket: &TcpSocket| Address {
        v6: socket.v6,
        multipath: false,
        at: None,
        options: socket.options.clone(),
    };
    if context.cluster {
        let made: OwnedFd = unconnected(&free(socket), until, context)?.into();
        let fd = made
            .try_clone()
            .map_err(|error| EngineError::system("duplicate", "a TCP socket", error))?;
        context.connecting.push(Connecting {
            fd,
            v6: socket.v6,
            local: socket.name.local.or(socket.local),
            peer: socket.name.peer.unwrap_or(peer),
            plain: socket.name.plain,
        });
        return Ok(made);
    }
    let made = unconnected(&Address { at: socket.local, ..free(socket) }, until, context)?;
    let Err(error) = ask(&made, peer) else { return Ok(made.into()) };
    // Its own address was another network's, or somebody has the port.
    if let Some(local) = socket.local {
        context.warn(format!(
            "{local} can't be had ({error}): the connection to {peer} that is being made comes from another address"
        ));
    }
    let made = unconnected(&free(socket), until, context)?;
    ask(&made, peer).map_err(|error| EngineError::system("connect", peer.to_string(), error))?;
    Ok(made.into())
}

fn unconnected(address: &Address, until: Instant, context: &mut RestoreContext) -> Result<Socket> {
    make::bound(address, Purpose::Idle { until }, context, |socket| {
        prepare(socket, address);
        Ok(())
    })
}

/// Asks, and does not wait for the answer.
fn ask(socket: &Socket, peer: SocketAddr) -> std::io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_nonblocking(true)?;
    let asked = match socket.connect(&SockAddr::from(peer)) {
        Err(error) => match error.raw_os_error() {
            // A refusal is for the program to hear, as it would have heard it.
            Some(libc::EINPROGRESS | libc::ECONNREFUSED) => Ok(()),
            _ => Err(error),
        },
        Ok(()) => Ok(()),
    };
    socket.set_nonblocking(false)?;
    asked
}
