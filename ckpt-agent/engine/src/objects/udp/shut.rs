//! shutdown(2) of UDP sockets. It takes effect on one without a peer, too, although it fails there with ENOTCONN.

use std::collections::HashMap;
use std::net::Shutdown;
use std::time::Duration;

use socket2::Socket;

use super::super::super::error::Result;
use super::super::super::sys::poll::poll_one;
use super::super::super::sys::sock_diag;
use super::{DumpContext, Found, UdpSocket, system};

/// RCV_SHUTDOWN and SEND_SHUTDOWN (include/net/sock.h).
const RECEIVE: u8 = 1;
const SEND: u8 = 2;

/// Fills in what is shut down. The kernel lists sockets with a port only; of the others, poll(2) tells all but a shutdown
/// for writing alone.
pub(super) fn find(all: &mut [Found<'_, UdpSocket>], context: &mut DumpContext) -> Result<()> {
    let listed = sock_diag::udp_shutdowns();
    if listed.is_err() && all.iter().any(|found| found.object.peer.is_some()) {
        context.warn(
            "the kernel does not tell which UDP sockets are shut down for writing: they will be open after a \
             restart",
        );
    }
    let listed: HashMap<u32, u8> = listed.unwrap_or_default();
    for found in all {
        let ready = poll_one(&found.probe.copy, libc::POLLRDHUP, Duration::ZERO)
            .map_err(|error| system("poll", error))?;
        let bits = listed.get(&(found.probe.stat.st_ino as u32)).copied().unwrap_or(0);
        found.object.shut_read = bits & RECEIVE != 0 || ready & libc::POLLRDHUP != 0;
        found.object.shut_write = bits & SEND != 0 || ready & libc::POLLHUP != 0;
    }
    Ok(())
}

/// Shuts down what was.
pub(super) fn put_back(socket: &Socket, saved: &UdpSocket) -> Result<()> {
    let how = match (saved.shut_read, saved.shut_write) {
        (false, false) => return Ok(()),
        (true, false) => Shutdown::Read,
        (false, true) => Shutdown::Write,
        (true, true) => Shutdown::Both,
    };
    match socket.shutdown(how) {
        Err(error) if error.raw_os_error() != Some(libc::ENOTCONN) => {
            Err(system("shut down", error))
        }
        _ => Ok(()),
    }
}
