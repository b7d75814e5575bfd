//! What a socket has received and nobody has read, for sockets whose queues can't be filled again.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::super::error::{EngineError, Result};
use super::super::sys::message::receive;
use super::super::sys::poll::poll_one;
use super::super::sys::sockopt;
use super::Probe;

/// Messages that are taken out of a queue at most.
const MOST: usize = 1 << 20;

/// Whether there is something to read: a message, one in the queue of errors, or an error that the next call would return.
/// Nothing of it changes.
///
/// # Errors
/// Failed poll(2).
pub(super) fn anything(probe: &Probe) -> Result<bool> {
    let ready = poll_one(&probe.copy, libc::POLLIN | libc::POLLRDHUP, Duration::ZERO)
        .map_err(|error| EngineError::system("poll", "a socket", error))?;
    if ready & libc::POLLERR != 0 {
        return Ok(true);
    }
    // One that is shut down can always be read. Before Linux 4.12 nothing else tells.
    let ready = ready & libc::POLLIN != 0 && ready & libc::POLLRDHUP == 0;
    Ok(sockopt::received_memory(&probe.copy).map_or(ready, |bytes| bytes > 0))
}

/// Whether the next call would return a message or an error. Memory alone may be held for what is to come (`netlink_attachskb()`,
/// mq_notify(3)).
///
/// # Errors
/// Failed poll(2).
pub(super) fn message(probe: &Probe) -> Result<bool> {
    poll_one(&probe.copy, libc::POLLIN, Duration::ZERO)
        .map(|ready| ready & (libc::POLLIN | libc::POLLERR) != 0)
        .map_err(|error| EngineError::system("poll", "a socket", error))
}

/// Takes out what a socket has received since it was made.
///
/// # Errors
/// As recvmsg(2), but for errors that this reports of something else.
pub(super) fn discard(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut buffer = [0];
    for _ in 0..MOST {
        match receive(socket, &mut buffer, 0, libc::MSG_DONTWAIT) {
            // Shut down.
            Ok(message) if message.length == 0 && message.from.is_empty() => return Ok(()),
            Ok(_) => {}
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(()),
                Some(libc::EINTR | libc::ENETDOWN | libc::ECONNREFUSED | libc::EHOSTUNREACH) => {}
                _ => return Err(error),
            },
        }
    }
    Ok(())
}
