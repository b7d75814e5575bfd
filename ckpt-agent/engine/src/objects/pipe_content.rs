//! Bytes in a pipe: read without taking them out, and put into a new one.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::BlobId;
use super::private_pipe::{new_pipe, read, write_all};
use super::{DumpContext, RestoreContext, pipe_slots as slots};

pub use super::private_pipe::capacity;

/// What was written into a pipe and not yet read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// All of it.
    pub bytes: BlobId,
    /// Lengths of its packets (O_DIRECT, pipe(2)), oldest first; empty: a stream of bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packets: Vec<u32>,
    /// How many bytes are in each of its buffers, oldest first, where there are more of them than its bytes would take;
    /// empty: as many as these need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<u32>,
}

/// Reads pipes through a private one into which tee(2) copies references to their pages.
#[derive(Debug, Default)]
pub struct Reader {
    private: Option<(OwnedFd, OwnedFd)>,
}

impl Reader {
    /// Everything in the pipe whose read end `end` is. `packets`: a write end is in packet mode.
    ///
    /// # Errors
    /// A refusal where the kernel gives no private pipe that is large enough; failed calls.
    pub fn read(
        &mut self,
        end: BorrowedFd<'_>,
        packets: bool,
        context: &mut DumpContext,
    ) -> Result<Option<Content>> {
        let length = unread(end)?;
        if length == 0 {
            return Ok(None);
        }
        // Taken out: dropped on every error, so that nothing stale is left in it.
        let private = match self.private.take() {
            Some(private) => private,
            None => new_pipe()?,
        };
        ensure_capacity(&private, capacity(end)?)?;
        copy(end, &private, length)?;
        let (first, packets) = if packets { (None, true) } else { self::first_byte(&private)? };
        let (bytes, packets) = match first {
            Some(first) => drain(&private, vec![first], length, packets)?,
            None => {
                if unread(private.0.as_fd())? != length {
                    discard(&private)?;
                    copy(end, &private, length)?;
                }
                drain(&private, Vec::new(), length, packets)?
            }
        };
        let slots = match packets.is_empty() && slots::may_be_more(length, capacity(end)?) {
            true => {
                copy(end, &private, length)?;
                slots::read(&private, length)?
            }
            false => Vec::new(),
        };
        self.private = Some(private);
        Ok(Some(Content { bytes: context.keep(bytes), packets, slots }))
    }
}

/// Writes saved content into a new pipe through its write end, whose status flags are left
/// changed.
///
/// # Errors
/// [`EngineError::Unfit`] where the pipe is too small; failed writes.
pub fn fill(end: BorrowedFd<'_>, content: &Content, context: &RestoreContext) -> Result<()> {
    let bytes = context.blob(content.bytes)?;
    let mut flags = OFlag::O_NONBLOCK;
    flags.set(OFlag::O_DIRECT, !content.packets.is_empty());
    fcntl(end, FcntlArg::F_SETFL(flags))
        .map_err(|errno| EngineError::system("fcntl", "F_SETFL of a pipe", errno))?;
    if !content.slots.is_empty() {
        return slots::fill(end, &bytes, &content.slots);
    }
    let mut rest = bytes.as_slice();
    let lengths = content.packets.iter().map(|length| *length as usize);
    let whole = content.packets.is_empty().then_some(bytes.len());
    for length in lengths.chain(whole) {
        let (piece, behind) = rest
            .split_at_checked(length)
            .ok_or_else(|| EngineError::Damaged("packets of a pipe beyond its bytes".into()))?;
        write_all(end, piece)?;
        rest = behind;
    }
    Ok(())
}

/// Gives a new pipe the recorded size, and tells where this machine does not allow it.
pub fn set_capacity(end: BorrowedFd<'_>, size: i32, context: &mut RestoreContext) {
    if capacity(end).is_ok_and(|now| now == size) {
        return;
    }
    if fcntl(end, FcntlArg::F_SETPIPE_SZ(size)).is_err() {
        context.warn(format!(
            "a pipe of {size} bytes was restored with the default size: \
             /proc/sys/fs/pipe-max-size or pipe-user-pages-soft is too low"
        ));
    }
}

/// Bytes that a read end could read (FIONREAD, pipe(7)).
pub fn unread(end: BorrowedFd<'_>) -> Result<usize> {
    let mut length: libc::c_int = 0;
    // SAFETY: the kernel stores one int, which outlives the call.
    let answer = unsafe { libc::ioctl(end.as_raw_fd(), libc::FIONREAD, &raw mut length) };
    if answer < 0 {
        return Err(EngineError::last_os("ioctl", "FIONREAD of a pipe"));
    }
    Ok(length.max(0) as usize)
}

/// Whether poll(2) tells that the other side is gone: POLLHUP on a read end, POLLERR on a
/// write end (fs/pipe.c, pipe_poll).
///
/// # Errors
/// Failed poll(2).
pub fn hung_up(end: BorrowedFd<'_>) -> Result<bool> {
    let mut set = [PollFd::new(end, PollFlags::empty())];
    poll(&mut set, PollTimeout::ZERO)
        .map_err(|errno| EngineError::system("poll", "a pipe", errno))?;
    let seen = set[0].revents().unwrap_or(PollFlags::empty());
    Ok(seen.intersects(PollFlags::POLLHUP | PollFlags::POLLERR))
}

/// tee(2) copies slot by slot: the private pipe needs as many as the other.
fn ensure_capacity(private: &(OwnedFd, OwnedFd), wanted: i32) -> Result<()> {
    if capacity(private.0.as_fd())? >= wanted
        || fcntl(&private.0, FcntlArg::F_SETPIPE_SZ(wanted)).is_ok()
    {
        return Ok(());
    }
    Err(Refusal::new(
        format!("its {wanted} bytes of buffer cannot be copied: this user has too many pipes"),
        "raise /proc/sys/fs/pipe-user-pages-soft and pipe-max-size",
    )
    .into())
}

fn copy(end: BorrowedFd<'_>, private: &(OwnedFd, OwnedFd), length: usize) -> Result<()> {
    // SAFETY: descriptors and numbers only.
    let copied = unsafe {
        libc::tee(end.as_raw_fd(), private.1.as_raw_fd(), length, libc::SPLICE_F_NONBLOCK)
    };
    if copied < 0 {
        return Err(EngineError::last_os("tee", format!("{length} bytes of a pipe")));
    }
    if copied as usize != length {
        let found = format!("{copied} of {length} bytes");
        return Err(EngineError::odd("the answer of tee", found));
    }
    Ok(())
}

/// Takes one byte out of the private pipe. A read that ends within a packet throws the rest of
/// that packet away: this is how a packet is told from a stream.
fn first_byte(private: &(OwnedFd, OwnedFd)) -> Result<(Option<u8>, bool)> {
    let before = unread(private.0.as_fd())?;
    let mut byte = [0];
    read(private, &mut byte)?;
    let thrown_away = unread(private.0.as_fd())? + 1 < before;
    Ok(if thrown_away { (None, true) } else { (Some(byte[0]), false) })
}

/// Reads the private pipe empty. More than one read is needed where there are packets.
fn drain(
    private: &(OwnedFd, OwnedFd),
    mut bytes: Vec<u8>,
    length: usize,
    packets: bool,
) -> Result<(Vec<u8>, Vec<u32>)> {
    let mut lengths = Vec::new();
    let mut start = 0;
    let mut buffer = vec![0; length];
    while bytes.len() < length {
        let count = read(private, &mut buffer)?;
        if count == 0 {
            return Err(EngineError::odd("a private pipe", "empty before its end"));
        }
        if bytes.len() == 1 && start == 0 && !packets && count + 1 < length {
            // The first byte, read ahead, was a packet of its own.
            lengths.push(1);
            start = 1;
        }
        bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
        lengths.push((bytes.len() - start) as u32);
        start = bytes.len();
    }
    if !packets && lengths.len() <= 1 {
        lengths.clear();
    }
    Ok((bytes, lengths))
}

fn discard(private: &(OwnedFd, OwnedFd)) -> Result<()> {
    let mut buffer = [0; 4096];
    while unread(private.0.as_fd())? > 0 {
        read(private, &mut buffer)?;
    }
    Ok(())
}

/// A pipe with both ends, of the recorded size.
///
/// # Errors
/// Failed pipe2(2).
pub fn make(size: i32, context: &mut RestoreContext) -> Result<(OwnedFd, OwnedFd)> {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)
        .map_err(|errno| EngineError::system("pipe2", "a pipe of the job", errno))?;
    set_capacity(write.as_fd(), size, context);
    Ok((read, write))
}
