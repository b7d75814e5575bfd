//! Sockets of ours that stand for those of the job.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use socket2::{Domain, Socket, Type};

use super::super::super::error::{EngineError, Result};
use super::super::super::sys::network;
use super::super::super::sys::sockopt;
use super::super::socket_options::{SO_BUF_LOCK, set_send_buffer};
use super::{UnixKind, system};

/// For socket(2).
pub(super) fn socket_type(kind: UnixKind) -> Type {
    match kind {
        UnixKind::Stream => Type::STREAM,
        UnixKind::Datagram => Type::DGRAM,
        UnixKind::Sequence => Type::SEQPACKET,
    }
}

/// A socket of a network of the job's own, or of the job's: an abstract name is reached from within one alone.
pub(super) fn new_socket(kind: UnixKind, network: Option<u32>) -> Result<Socket> {
    let make = || network::socket(Domain::UNIX, socket_type(kind), None);
    let made = network::within(network, make);
    made.map_err(|error| system("make", error))
}

/// Room for what is to be queued; the recorded sizes follow.
pub(super) fn grow(sender: &OwnedFd, bytes: i32) {
    set_send_buffer(sender, bytes);
    // A size set here is not the program's choice.
    let _ = sockopt::set_int(sender, libc::SOL_SOCKET, SO_BUF_LOCK, 0);
}

/// Sends at once, with descriptors.
///
/// # Errors
/// A queue that does not take it all.
pub(super) fn send_now(through: &OwnedFd, mut bytes: &[u8], mut files: &[RawFd]) -> Result<()> {
    loop {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let rights = [ControlMessage::ScmRights(files)];
        let rights = if files.is_empty() { &[][..] } else { &rights[..] };
        let parts = [IoSlice::new(bytes)];
        match sendmsg::<()>(through.as_raw_fd(), &parts, rights, flags, None) {
            Ok(count) => {
                bytes = bytes.get(count..).unwrap_or_default();
                files = &[];
                if bytes.is_empty() {
                    return Ok(());
                }
            }
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                return Err(EngineError::Unfit {
                    what: "the queue of a Unix socket does not take the bytes that were in flight"
                        .into(),
                    way_out: "raise net.core.wmem_max and net.unix.max_dgram_qlen".into(),
                });
            }
            Err(errno) => return Err(system("send on", errno)),
        }
    }
}
