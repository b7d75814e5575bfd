//! The buffers that the bytes in a pipe are divided into. Each takes one of the pipe's places, however few bytes it has
//! (splice(2), vmsplice(2) and tee(2) add one each time), so that a pipe is full long before its bytes fill it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use super::super::error::{EngineError, Result};
use super::super::sys::page::page_size;
use super::private_pipe::{capacity, new_pipe, read as take, write_all};

/// Whether a pipe can have more buffers than its bytes take.
pub fn may_be_more(length: usize, capacity: i32) -> bool {
    // Where no two places are free, that many bytes fill all others.
    length > 1 && length + page_size() as usize <= capacity.unsigned_abs() as usize
}

/// Lengths of the buffers in a private pipe, which is empty afterwards. Empty: there are no more than the bytes take.
///
/// # Errors
/// Failed calls.
pub fn read(private: &(OwnedFd, OwnedFd), length: usize) -> Result<Vec<u32>> {
    let single = single()?;
    let mut buffer = vec![0; page_size() as usize];
    let (mut lengths, mut moved) = (Vec::new(), 0);
    while moved < length {
        // Into one place goes one buffer (fs/splice.c, splice_pipe_to_pipe).
        let count = splice(private.0.as_fd(), single.1.as_fd(), length)?;
        if count == 0 {
            return Err(EngineError::odd("a private pipe", "empty before its end"));
        }
        let mut taken = 0;
        while taken < count {
            let rest = buffer.len().min(count - taken);
            taken += take(&single, &mut buffer[..rest])?;
        }
        lengths.push(count as u32);
        moved += count;
    }
    let more = lengths.len() > length.div_ceil(page_size() as usize);
    Ok(if more { lengths } else { Vec::new() })
}

/// Writes bytes into a new pipe, in buffers of these lengths.
///
/// # Errors
/// Damage; a pipe that is too small; failed calls.
pub fn fill(end: BorrowedFd<'_>, bytes: &[u8], lengths: &[u32]) -> Result<()> {
    let single = single()?;
    let room = capacity(single.1.as_fd())?.unsigned_abs() as usize;
    let (mut rest, mut closed) = (bytes, false);
    for (place, length) in lengths.iter().enumerate() {
        let length = *length as usize;
        let (piece, behind) = rest
            .split_at_checked(length)
            .filter(|_| length > 0)
            .ok_or_else(|| EngineError::Damaged("buffers of a pipe beyond its bytes".into()))?;
        rest = behind;
        if length > room {
            write_all(end, piece)?;
            continue;
        }
        // One to which the next one could have been added takes no more; what nobody has tried yet is like the one before.
        if let Some(next) = lengths.get(place + 1) {
            closed = length.saturating_add(*next as usize) <= room;
        }
        put(&single, end, piece, closed && length < room)?;
    }
    match rest.is_empty() {
        true => Ok(()),
        false => Err(EngineError::Damaged("bytes of a pipe in none of its buffers".into())),
    }
}

/// Adds one buffer. One that is `closed` takes no more bytes: it is a part of another one.
fn put(single: &(OwnedFd, OwnedFd), end: BorrowedFd<'_>, piece: &[u8], closed: bool) -> Result<()> {
    write_all(single.1.as_fd(), piece)?;
    if closed {
        write_all(single.1.as_fd(), &[0])?;
    }
    let moved = splice(single.0.as_fd(), end, piece.len())?;
    if moved != piece.len() {
        return Err(EngineError::Unfit {
            what: format!(
                "a buffer of {} bytes in flight does not fit into a new pipe",
                piece.len()
            ),
            way_out: "raise /proc/sys/fs/pipe-user-pages-soft and pipe-max-size".into(),
        });
    }
    if closed {
        take(single, &mut [0])?;
    }
    Ok(())
}

/// A pipe with a single place.
fn single() -> Result<(OwnedFd, OwnedFd)> {
    let made = new_pipe()?;
    fcntl(&made.1, FcntlArg::F_SETPIPE_SZ(page_size() as i32))
        .map_err(|errno| EngineError::system("fcntl", "F_SETPIPE_SZ of a private pipe", errno))?;
    Ok(made)
}

/// Moves buffers; 0 where nothing fits.
fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, length: usize) -> Result<usize> {
    let none = std::ptr::null_mut();
    // SAFETY: descriptors and numbers only; pipes have no offsets.
    let moved = unsafe {
        let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
        libc::splice(from, none, to, none, length, libc::SPLICE_F_NONBLOCK)
    };
    match Errno::result(moved) {
        Ok(moved) => Ok(moved.unsigned_abs()),
        Err(Errno::EAGAIN) => Ok(0),
        Err(errno) => Err(EngineError::system("splice", "a pipe", errno)),
    }
}
