//! Messages in a Unix socket's queue, peeked one after the other (socket(7), SO_PEEK_OFF), with copies of the descriptors that
//! are under way in them. Empty ones are remembered (`shown`).

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{FileId, Pid};
use super::super::super::late::cookie_of;
use super::super::super::sys::message::{receive, receive_rights, without_last_piece};
use super::super::super::sys::poll::poll_one;
use super::super::super::sys::sockopt;
use super::super::changed::Changed;
use super::super::shown::{Item, Shown};
use super::{DumpContext, FLAGS, MOST_BYTES, Message, Probe, UnixKind, soon, system, urgent};

/// A message is at most as long as its sender's buffer.
const LONGEST: usize = 16 << 20;
/// Read at once; longer messages are read again.
const USUAL: usize = 256 * 1024;
/// Room that there is in any case.
const LEAST: usize = 4096;
/// CMSG_SPACE of struct ucred: 16 bytes of header, 12 of content, padded.
const CREDENTIALS: usize = 32;

/// Keeps everything that is queued, in order.
pub(super) fn peek(
    probe: &Probe,
    kind: UnixKind,
    context: &mut DumpContext,
) -> Result<Vec<Message>> {
    let mut under_way = context.in_flight.remove(&probe.inode()).unwrap_or_default().into_iter();
    let mut kept = Kept::default();
    let shown = context.shown.clone();
    walk(probe, kind, &shown, &mut |peeked| {
        let files: Vec<FileId> = under_way.by_ref().take(peeked.rights).collect();
        if files.len() != peeked.rights {
            return Err(EngineError::odd("the queue of a Unix socket", "it changes"));
        }
        let from = if kind == UnixKind::Stream { None } else { sender(peeked.from) };
        let by = peeked.process.and_then(|process| context.pids.get(&process).copied());
        let whole = kind != UnixKind::Stream || peeked.process.is_some();
        let like = Like { from, by, whole };
        let Some(at) = peeked.urgent else {
            kept.add(peeked.bytes, files, false, &like, context);
            return Ok(());
        };
        let (before, rest) = peeked.bytes.split_at(at.min(peeked.bytes.len()));
        let (byte, behind) = rest.split_at(rest.len().min(1));
        if !files.is_empty() && peeked.bytes.len() > 1 {
            return Err(EngineError::odd(
                "the queue of a Unix socket",
                "an urgent byte within others",
            ));
        }
        if !before.is_empty() {
            kept.add(before, Vec::new(), false, &like, context);
        }
        kept.add(byte, files, true, &like, context);
        if !behind.is_empty() {
            kept.add(behind, Vec::new(), false, &like, context);
        }
        Ok(())
    })?;
    kept.flush(context);
    Ok(kept.messages)
}

/// What several parts of a piece have in common.
struct Like {
    from: Option<Vec<u8>>,
    by: Option<Pid>,
    /// It is a message of its own in any case.
    whole: bool,
}

/// What is kept of a queue: bytes of a stream that come one after the other as one message.
#[derive(Default)]
struct Kept {
    messages: Vec<Message>,
    stream: Vec<u8>,
}

impl Kept {
    fn add(
        &mut self,
        bytes: &[u8],
        files: Vec<FileId>,
        urgent: bool,
        like: &Like,
        context: &mut DumpContext,
    ) {
        if !like.whole && files.is_empty() && !urgent {
            self.stream.extend_from_slice(bytes);
            return;
        }
        self.flush(context);
        let bytes = context.keep(bytes.to_vec());
        let (from, by) = (like.from.clone(), like.by);
        self.messages.push(Message { bytes, from, files, by, urgent });
    }

    fn flush(&mut self, context: &mut DumpContext) {
        if !self.stream.is_empty() {
            let bytes = context.keep(std::mem::take(&mut self.stream));
            self.messages.push(Message {
                bytes,
                from: None,
                files: Vec::new(),
                by: None,
                urgent: false,
            });
        }
    }
}

/// The descriptors that are under way in it, in their order.
pub(super) fn in_flight(probe: &Probe, kind: UnixKind, shown: &Shown) -> Result<Vec<OwnedFd>> {
    let mut all = Vec::new();
    walk(probe, kind, shown, &mut |peeked| {
        if peeked.descriptors.len() != peeked.rights {
            return Err(soon(
                probe,
                "a Unix socket with an empty message in flight that carries descriptors (SCM_RIGHTS)",
                "it is received soon: try again",
            ));
        }
        all.extend(peeked.descriptors);
        Ok(())
    })?;
    Ok(all)
}

/// A message, or a piece of a stream.
struct Peeked<'a> {
    bytes: &'a [u8],
    from: &'a [u8],
    process: Option<i32>,
    descriptors: Vec<OwnedFd>,
    /// How many descriptors come with it; one that was shown before shows none.
    rights: usize,
    /// The place of the stream's urgent byte, if that is one of these.
    urgent: Option<usize>,
}

type Each<'a> = &'a mut dyn FnMut(Peeked<'_>) -> Result<()>;

fn walk(probe: &Probe, kind: UnixKind, shown: &Shown, each: Each<'_>) -> Result<()> {
    let get = |name| {
        sockopt::get_int(&probe.copy, libc::SOL_SOCKET, name)
            .map_err(|error| system("getsockopt", error))
    };
    let most = match has_error(probe)? {
        false => None,
        true if kind == UnixKind::Stream => {
            Some(sockopt::readable(&probe.copy).map_err(|error| system("ioctl SIOCINQ", error))?)
        }
        // Any look at its queue would take it.
        true => {
            let what = "a Unix socket with an error that is not read yet";
            return Err(soon(probe, what, "it is read soon: try again"));
        }
    };
    let mark = if kind == UnixKind::Stream { urgent::place(probe)? } else { None };
    let inline = || Changed::begin(probe.copy.as_fd(), libc::SO_OOBINLINE, 1);
    let _inline = mark.map(|_| inline()).transpose()?;
    let (offset, credentials) = (get(libc::SO_PEEK_OFF)?, get(libc::SO_PASSCRED)?);
    // Credentials come with messages alone: an empty one looks like the end otherwise.
    let ends = kind == UnixKind::Sequence && is_shut(probe)?;
    if ends && credentials == 0 {
        set(probe, libc::SO_PASSCRED, 1)?;
    }
    let taken = match kind {
        UnixKind::Stream => {
            let mut passed = 0;
            peek_all(probe, kind, ends, most, &mut |peeked| {
                let length = peeked.bytes.len();
                let urgent = mark.and_then(|mark| mark.checked_sub(passed));
                passed += length;
                each(Peeked { urgent: urgent.filter(|at| *at < length), ..peeked })
            })
        }
        _ => peek_messages(probe, kind, ends, shown, each),
    };
    // On every path the program's own offset comes back (-1: none).
    set_offset(probe, offset)?;
    if ends && credentials == 0 {
        set(probe, libc::SO_PASSCRED, 0)?;
    }
    taken
}

/// Whether an error is pending, which the next call would be told and take with it (net/unix/af_unix.c, unix_poll).
pub(super) fn has_error(probe: &Probe) -> Result<bool> {
    let ready = poll_one(&probe.copy, 0, Duration::ZERO).map_err(|error| system("poll", error))?;
    Ok(ready & libc::POLLERR != 0)
}

fn is_shut(probe: &Probe) -> Result<bool> {
    let ready = poll_one(&probe.copy, libc::POLLRDHUP, Duration::ZERO)
        .map_err(|error| system("poll", error))?;
    Ok(ready & libc::POLLRDHUP != 0)
}

/// Also those messages that the kernel does not show any more.
fn peek_messages(
    probe: &Probe,
    kind: UnixKind,
    ends: bool,
    shown: &Shown,
    each: Each<'_>,
) -> Result<()> {
    set_offset(probe, -1)?;
    let head = match receive_rights(&probe.copy, &mut [0], FLAGS) {
        Ok((message, descriptors)) if message.length == 0 && (!ends || message.control > 0) => {
            let rights = descriptors.len();
            let (from, process) = (message.from, message.process);
            Some(Item { bytes: Vec::new(), from, process, descriptors, rights })
        }
        Ok(_) => None,
        Err(error) if is_no_more(&error) => None,
        Err(error) => return Err(system("peek at", error)),
    };
    let mut visible = Vec::new();
    peek_all(probe, kind, ends, None, &mut |peeked| {
        visible.push(Item {
            bytes: peeked.bytes.to_vec(),
            from: peeked.from.to_vec(),
            process: peeked.process,
            descriptors: peeked.descriptors,
            rights: peeked.rights,
        });
        Ok(())
    })?;
    let cookie = cookie_of(probe.copy.as_fd())
        .ok_or_else(|| EngineError::odd("SO_COOKIE", "a Unix socket has none"))?;
    for item in shown.complete(cookie, head, visible) {
        let Item { bytes, from, process, descriptors, rights } = item;
        each(Peeked { bytes: &bytes, from: &from, process, descriptors, rights, urgent: None })?;
    }
    Ok(())
}

/// EAGAIN: no more. The others: a reset that waits to be told, or nothing to read ever.
fn is_no_more(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAGAIN | libc::ECONNRESET | libc::ENOTCONN | libc::EINVAL)
    )
}

fn set_offset(probe: &Probe, offset: i32) -> Result<()> {
    set(probe, libc::SO_PEEK_OFF, offset)
}

fn set(probe: &Probe, option: i32, value: i32) -> Result<()> {
    sockopt::set_int(&probe.copy, libc::SOL_SOCKET, option, value)
        .map_err(|error| system("setsockopt", error))
}

/// `ends`: it is shut, so that credentials tell messages from the end. `most`: how many bytes there are, where a look beyond
/// them would take the error that waits behind them (unix_stream_read_generic()).
fn peek_all(
    probe: &Probe,
    kind: UnixKind,
    ends: bool,
    most: Option<usize>,
    each: Each<'_>,
) -> Result<()> {
    set_offset(probe, 0)?;
    let mut offset = 0i32;
    let mut total = 0;
    // Most sockets have nothing unread, and room that is never used would have to be cleared for each.
    let unread = sockopt::readable(&probe.copy).unwrap_or(0);
    let mut buffer = vec![0u8; unread.clamp(LEAST, USUAL)];
    let left = |total: usize| most.map_or(usize::MAX, |most| most.saturating_sub(total));
    // Room for the sender's credentials where they are asked for, and for descriptors only where there are some.
    let credentials = sockopt::get_int(&probe.copy, libc::SOL_SOCKET, libc::SO_PASSCRED)
        .is_ok_and(|value| value != 0);
    let room = if credentials { CREDENTIALS } else { 0 };
    while left(total) > 0 {
        let part = buffer.len().min(left(total));
        let mut message = match receive(&probe.copy, &mut buffer[..part], room, FLAGS) {
            Ok(message) => message,
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => continue,
            Err(error) if is_no_more(&error) => break,
            Err(error) => return Err(system("peek at", error)),
        };
        if message.length > buffer.len() {
            if message.length > LONGEST {
                return Err(EngineError::odd("a message", format!("{} bytes", message.length)));
            }
            buffer.resize(message.length, 0);
            set_offset(probe, offset)?;
            continue;
        }
        let mut descriptors = Vec::new();
        if message.flags & libc::MSG_CTRUNC != 0 {
            // The kernel hands descriptors out with whatever was read before them, and stops behind them
            // (net/unix/af_unix.c, unix_stream_read_generic).
            set_offset(probe, offset)?;
            let plain = match kind {
                UnixKind::Stream => without_last_piece(&probe.copy, message.length, FLAGS)
                    .map_err(|error| system("peek at", error))?,
                _ => 0,
            };
            set_offset(probe, offset)?;
            if plain > 0 {
                // With descriptors or without: the bytes are wanted.
                message = receive(&probe.copy, &mut buffer[..plain], room, FLAGS)
                    .map_err(|error| system("peek at", error))?;
            } else {
                (message, descriptors) = receive_rights(&probe.copy, &mut buffer[..part], FLAGS)
                    .map_err(|error| system("peek at", error))?;
            }
        }
        let length = message.length;
        let end = kind == UnixKind::Stream || ends && message.control == 0;
        if length == 0 && end && descriptors.is_empty() {
            break;
        }
        total += length;
        if total > MOST_BYTES {
            return Err(EngineError::odd("the queue of a Unix socket", "no end of it"));
        }
        offset = offset.saturating_add(length as i32);
        let bytes = buffer.get(..length).unwrap_or_default();
        let rights = descriptors.len();
        let process = message.process;
        each(Peeked { bytes, from: &message.from, process, descriptors, rights, urgent: None })?;
    }
    Ok(())
}

/// sun_path of a sender: a path ends at its zero byte, an abstract name begins with one.
fn sender(address: &[u8]) -> Option<Vec<u8>> {
    match address.first()? {
        0 => Some(address.to_vec()),
        _ => address.split(|&byte| byte == 0).next().map(<[u8]>::to_vec),
    }
}
