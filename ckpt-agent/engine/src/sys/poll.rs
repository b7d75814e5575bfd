//! poll(2) of one descriptor, with events that nix does not name (POLLRDHUP).

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// What is ready of `events` (POLLERR and POLLHUP always count), within a time limit.
///
/// # Errors
/// As poll(2).
pub fn poll_one(fd: impl AsFd, events: i16, limit: Duration) -> io::Result<i16> {
    let fd = fd.as_fd();
    let mut polled = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let timeout = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one live pollfd, and a count of one.
    let answer = unsafe { libc::poll(&raw mut polled, 1, timeout) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(polled.revents) }
}
