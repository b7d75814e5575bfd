//! connect(2) with AF_UNSPEC: ends a TCP connection, so that the same open file description can be
//! connected again.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Ends the connection of a socket; the peer is told by a reset (net/ipv4/tcp.c, tcp_disconnect).
///
/// # Errors
/// As connect(2).
pub fn disconnect(fd: impl AsFd) -> io::Result<()> {
    let nobody =
        libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
    let length = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of a live structure of that size.
    let answer = unsafe { libc::connect(fd.as_fd().as_raw_fd(), &raw const nobody, length) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
