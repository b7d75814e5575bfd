//! Addresses of packet sockets (packet(7), struct sockaddr_ll).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// What a packet socket is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketName {
    /// ETH_P_*; 0: it receives nothing.
    pub protocol: u16,
    /// The interface's number; 0: all of them; -1: the one that has gone.
    pub interface: i32,
}

/// Of a socket.
///
/// # Errors
/// As getsockname(2).
pub fn of(fd: impl AsFd) -> io::Result<PacketName> {
    // SAFETY: plain data, for which zeros are valid.
    let mut name: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&name) as libc::socklen_t;
    let (fd, place) = (fd.as_fd().as_raw_fd(), (&raw mut name).cast());
    // SAFETY: the kernel writes at most `length` bytes to a live structure of that size.
    if unsafe { libc::getsockname(fd, place, &raw mut length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if i32::from(name.sll_family) != libc::AF_PACKET {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let protocol = u16::from_be(name.sll_protocol);
    Ok(PacketName { protocol, interface: name.sll_ifindex })
}

/// Binds a socket.
///
/// # Errors
/// As bind(2).
pub fn bind(fd: BorrowedFd<'_>, to: &PacketName) -> io::Result<()> {
    // SAFETY: plain data, for which zeros are valid.
    let mut name: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    name.sll_family = libc::AF_PACKET as u16;
    name.sll_protocol = to.protocol.to_be();
    name.sll_ifindex = to.interface;
    let length = size_of_val(&name) as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of a live structure of that size.
    let answer = unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), length) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
