//! shutdown(2) of sockets of datagrams. It takes effect on one without a peer, too, although it fails there with ENOTCONN.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use socket2::Socket;

use super::super::sys::poll::poll_one;
use super::Probe;

/// RCV_SHUTDOWN and SEND_SHUTDOWN (include/net/sock.h).
const RECEIVE: u8 = 1;
const SEND: u8 = 2;

/// What is shut down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shut {
    /// Reading is shut down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read: bool,
    /// Writing is shut down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub write: bool,
}

impl Shut {
    /// Nothing is.
    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Of a socket. `listed`: of those that the kernel lists, by inode. Of the others, poll(2) tells all but a shutdown for
    /// writing alone.
    ///
    /// # Errors
    /// As poll(2).
    pub(super) fn of(probe: &Probe, listed: &HashMap<u32, u8>) -> io::Result<Self> {
        let ready = poll_one(&probe.copy, libc::POLLRDHUP, Duration::ZERO)?;
        let bits = listed.get(&(probe.stat.st_ino as u32)).copied().unwrap_or(0);
        Ok(Self {
            read: bits & RECEIVE != 0 || ready & libc::POLLRDHUP != 0,
            write: bits & SEND != 0 || ready & libc::POLLHUP != 0,
        })
    }

    /// Shuts down what was.
    ///
    /// # Errors
    /// As shutdown(2).
    pub(super) fn put_back(self, socket: &Socket) -> io::Result<()> {
        let how = match (self.read, self.write) {
            (false, false) => return Ok(()),
            (true, false) => Shutdown::Read,
            (false, true) => Shutdown::Write,
            (true, true) => Shutdown::Both,
        };
        match socket.shutdown(how) {
            Err(error) if error.raw_os_error() != Some(libc::ENOTCONN) => Err(error),
            _ => Ok(()),
        }
    }
}
