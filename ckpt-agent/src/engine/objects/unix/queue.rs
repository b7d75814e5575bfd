//! Messages in a Unix socket's queue, peeked one after the other (socket(7), SO_PEEK_OFF).

use std::io::IoSliceMut;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockaddrStorage, UnixAddr, recvmsg};

use super::super::super::error::{EngineError, Result};
use super::super::super::sys::sockopt;
use super::{DumpContext, Message, Probe, UnixKind, refused, system};

/// A message is at most as long as its sender's buffer.
const LONGEST: usize = 16 << 20;
/// Read at once; longer messages are read again.
const USUAL: usize = 256 * 1024;
/// More than this in one queue is not believed.
const MOST_BYTES: usize = 1 << 30;

/// Keeps everything that is queued, in order.
pub(super) fn peek(
    probe: &Probe,
    kind: UnixKind,
    context: &mut DumpContext,
) -> Result<Vec<Message>> {
    let before = sockopt::get_int(&probe.copy, libc::SOL_SOCKET, libc::SO_PEEK_OFF)
        .map_err(|error| system("getsockopt SO_PEEK_OFF", error))?;
    set_offset(probe, 0)?;
    let taken = peek_all(probe, kind, context);
    // On every path the program's own offset comes back (-1: none).
    set_offset(probe, before)?;
    taken
}

fn set_offset(probe: &Probe, offset: i32) -> Result<()> {
    sockopt::set_int(&probe.copy, libc::SOL_SOCKET, libc::SO_PEEK_OFF, offset)
        .map_err(|error| system("setsockopt SO_PEEK_OFF", error))
}

fn peek_all(probe: &Probe, kind: UnixKind, context: &mut DumpContext) -> Result<Vec<Message>> {
    let mut messages = Vec::new();
    let mut stream = Vec::new();
    let mut offset = 0i32;
    let mut total = 0;
    let mut buffer = vec![0u8; USUAL];
    // Room for the sender's credentials where they are asked for, and never for descriptors: peeking
    // would install copies of them.
    let credentials = sockopt::get_int(&probe.copy, libc::SOL_SOCKET, libc::SO_PASSCRED)
        .is_ok_and(|value| value != 0);
    loop {
        let mut control = nix::cmsg_space!(libc::ucred);
        let (length, flags, from) = {
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let answer = recvmsg::<SockaddrStorage>(
                probe.copy.as_raw_fd(),
                &mut parts,
                credentials.then_some(&mut control),
                MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC,
            );
            match answer {
                Ok(message) => {
                    (message.bytes, message.flags, message.address.as_ref().and_then(SockaddrStorage::as_unix_addr).and_then(sender))
                }
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => continue,
                // A reset that waits to be told, or reading was shut down.
                Err(Errno::ECONNRESET | Errno::ENOTCONN | Errno::EINVAL) => break,
                Err(errno) => return Err(system("peek at", errno)),
            }
        };
        if flags.contains(MsgFlags::MSG_CTRUNC) {
            return Err(refused(
                probe,
                "a Unix socket with descriptors in flight (SCM_RIGHTS)",
                "they are received soon: try again",
            ));
        }
        if length == 0 && kind != UnixKind::Datagram {
            // End of file; zero-length messages of SOCK_SEQPACKET look the same.
            break;
        }
        if length > buffer.len() {
            if length > LONGEST {
                return Err(EngineError::odd("a message", format!("{length} bytes")));
            }
            buffer.resize(length, 0);
            set_offset(probe, offset)?;
            continue;
        }
        total += length;
        if total > MOST_BYTES {
            return Err(EngineError::odd("the queue of a Unix socket", "no end of it"));
        }
        offset = offset.saturating_add(length as i32);
        let bytes = buffer.get(..length).unwrap_or_default();
        if kind == UnixKind::Stream {
            stream.extend_from_slice(bytes);
        } else {
            messages.push(Message { bytes: context.keep(bytes.to_vec()), from });
        }
    }
    if !stream.is_empty() {
        messages.push(Message { bytes: context.keep(stream), from: None });
    }
    Ok(messages)
}

fn sender(address: &UnixAddr) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    if let Some(name) = address.as_abstract() {
        let mut bytes = vec![0];
        bytes.extend_from_slice(name);
        return Some(bytes);
    }
    address.path().map(|path| path.as_os_str().as_bytes().to_vec())
}
