//! Messages in a Unix socket's queue, peeked one after the other (socket(7), SO_PEEK_OFF).

use super::super::super::error::{EngineError, Result};
use super::super::super::sys::message::receive;
use super::super::super::sys::sockopt;
use super::{DumpContext, Message, Probe, UnixKind, soon, system};

/// A message is at most as long as its sender's buffer.
const LONGEST: usize = 16 << 20;
/// Read at once; longer messages are read again.
const USUAL: usize = 256 * 1024;
/// CMSG_SPACE of struct ucred: 16 bytes of header, 12 of content, padded.
const CREDENTIALS: usize = 32;
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
    // ObjectKind for the sender's credentials where they are asked for, and never for descriptors: peeking
    // would install copies of them.
    let credentials = sockopt::get_int(&probe.copy, libc::SOL_SOCKET, libc::SO_PASSCRED)
        .is_ok_and(|value| value != 0);
    loop {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        let room = if credentials { CREDENTIALS } else { 0 };
        let message = match receive(&probe.copy, &mut buffer, room, flags) {
            Ok(message) => message,
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                // EAGAIN: no more. The others: a reset that waits to be told, or nothing to read ever.
                Some(libc::EAGAIN | libc::ECONNRESET | libc::ENOTCONN | libc::EINVAL) => break,
                _ => return Err(system("peek at", error)),
            },
        };
        let length = message.length;
        if message.flags & libc::MSG_CTRUNC != 0 {
            return Err(soon(
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
            let from = sender(&message.from);
            messages.push(Message { bytes: context.keep(bytes.to_vec()), from });
        }
    }
    if !stream.is_empty() {
        messages.push(Message { bytes: context.keep(stream), from: None });
    }
    Ok(messages)
}

/// sun_path of a sender: a path ends at its zero byte, an abstract name begins with one.
fn sender(address: &[u8]) -> Option<Vec<u8>> {
    match address.first()? {
        0 => Some(address.to_vec()),
        _ => address.split(|&byte| byte == 0).next().map(<[u8]>::to_vec),
    }
}
