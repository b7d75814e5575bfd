//! Sockets of the family that the job's socket had. Listeners are of AF_INET6 for IPv4 addresses, too:
//! what they accept can become AF_INET, not the other way round.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use ckpt_engine::sys::sockopt;

/// IPV6_ADDRFORM (ipv6(7)): makes a connected AF_INET6 socket with IPv4-mapped addresses an AF_INET one.
const IPV6_ADDRFORM: i32 = 1;
/// Connections that have not been accepted.
const BACKLOG: i32 = 1024;

/// Listens at an address, of IPv4 by a socket of AF_INET6 where the kernel has such: what it accepts can have either
/// family then.
///
/// # Errors
/// Where the address can't be had.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    // A kernel without IPv6 has no sockets of that family in its jobs either.
    let listener = listen_at(mapped(address), None).or_else(|_| listen_at(address, None))?;
    asynchronous(listener)
}

/// Listens for what comes through a device, at all addresses, by a port of the kernel's choice.
///
/// # Errors
/// Where that can't be had.
pub fn listen_through(device: &str) -> io::Result<TcpListener> {
    let at = |any: IpAddr| listen_at(SocketAddr::new(any, 0), Some(device));
    let listener =
        at(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| at(Ipv4Addr::UNSPECIFIED.into()))?;
    asynchronous(listener)
}

fn asynchronous(listener: Socket) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener.into())
}

fn listen_at(address: SocketAddr, device: Option<&str>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A port of the kernel's choice is shared with nobody until it listens.
    socket.set_reuse_address(address.port() != 0)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    if let Some(device) = device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// Connects by a socket of the family asked for, as far as the address allows.
pub(super) async fn connect(to: SocketAddr, v6: bool) -> io::Result<TcpStream> {
    let to = SocketAddr::new(to.ip().to_canonical(), to.port());
    match if v6 { mapped(to) } else { to } {
        to @ SocketAddr::V4(_) => TcpSocket::new_v4()?.connect(to).await,
        to @ SocketAddr::V6(_) => {
            let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP))?;
            socket.set_only_v6(false)?;
            socket.set_nonblocking(true)?;
            TcpSocket::from_std_stream(socket.into()).connect(to).await
        }
    }
}

/// Gives a connected socket the family asked for, as far as its addresses allow.
pub(super) fn make(stream: &TcpStream, v6: bool) -> io::Result<()> {
    let SocketAddr::V6(peer) = stream.peer_addr()? else { return Ok(()) };
    if v6 || peer.ip().to_ipv4_mapped().is_none() {
        return Ok(());
    }
    sockopt::set_int(stream.as_fd(), libc::IPPROTO_IPV6, IPV6_ADDRFORM, libc::AF_INET)
}

fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}
