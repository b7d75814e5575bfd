//! The place of an urgent byte in a Unix stream (MSG_OOB, Linux 5.15).
//!
//! The kernel keeps the byte in the queue like any other, and remembers which one it is (net/unix/af_unix.c, manage_oob): a
//! look that has seen bytes before it stops there. With SO_OOBINLINE nothing is passed over.

use std::os::fd::AsFd;
use std::time::Duration;

use super::super::super::error::{EngineError, Result};
use super::super::super::sys::message::receive;
use super::super::super::sys::poll::poll_one;
use super::super::super::sys::sockopt;
use super::super::changed::Changed;
use super::{FLAGS, MOST_BYTES, Probe, soon, system};

/// SO_PASSPIDFD (Linux 6.5).
const SO_PASSPIDFD: i32 = 76;
/// SO_PASSSEC (include/uapi/asm-generic/socket.h).
const SO_PASSSEC: i32 = 34;

/// How many bytes of a stream's queue come before its urgent one, if that is not read yet. Everything is left where it is.
///
/// # Errors
/// A refusal where it can't be told apart from what stops a look, too; failed calls.
pub(super) fn place(probe: &Probe) -> Result<Option<usize>> {
    let socket = probe.copy.as_fd();
    let ready = poll_one(socket, libc::POLLPRI, Duration::ZERO).map_err(|e| system("poll", e))?;
    if ready & libc::POLLPRI == 0 {
        return Ok(None);
    }
    if sockopt::at_mark(socket).map_err(|error| system("ioctl SIOCATMARK", error))? {
        return Ok(Some(0));
    }
    let all = sockopt::readable(socket).map_err(|error| system("ioctl SIOCINQ", error))?;
    if all > MOST_BYTES {
        return Err(EngineError::odd("the queue of a Unix socket", "no end of it"));
    }
    // A look stops between different senders as well, where these are asked for. Older kernels lack some of the options.
    let _sender = Changed::begin(socket, libc::SO_PASSCRED, 0)?;
    let _descriptor = Changed::begin(socket, SO_PASSPIDFD, 0).ok();
    let _label = Changed::begin(socket, SO_PASSSEC, 0).ok();
    let _inline = Changed::begin(socket, libc::SO_OOBINLINE, 1)?;
    let _offset = Changed::begin(socket, libc::SO_PEEK_OFF, 0)?;
    let mut place = 0;
    while place < all {
        let seen = match receive(socket, &mut vec![0; all - place], 0, FLAGS) {
            Ok(seen) if seen.length > 0 => seen,
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => continue,
            Ok(_) => break,
            Err(error) => return Err(system("peek at", error)),
        };
        place += seen.length;
        // Behind descriptors it stops in any case.
        if place < all && seen.flags & libc::MSG_CTRUNC == 0 {
            return Ok(Some(place));
        }
    }
    Err(soon(
        probe,
        "a Unix socket with an urgent byte (MSG_OOB) right behind descriptors (SCM_RIGHTS)",
        "it is read soon: try again",
    ))
}
