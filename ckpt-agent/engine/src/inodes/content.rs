//! The content of a file or memory object, holes left out.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::sys::uio::pread;
use nix::unistd::{Whence, lseek64};

use super::super::error::{EngineError, Refusal, Result};
use super::super::objects::{BlobData, reopen};
use super::super::sys::holes;
use super::copying::Copying;
use super::pieces::in_pieces;

/// Holes up to this many bytes are read with what is around them: an extent costs more.
const SMALL_HOLE: u64 = 64 * 1024;

/// Reads all of an inode, and counts what has been read as it goes on. The offset of the description
/// stays as it is.
///
/// # Errors
/// A refusal where it may not be read or does not fit into this machine's free memory; failed
/// system calls.
pub fn read(fd: BorrowedFd<'_>, size: u64, copying: &Copying) -> Result<BlobData> {
    // A description of our own: SEEK_DATA moves the offset, and the job's may be open for
    // writing only or for direct access.
    match reopen::reopen(fd, libc::O_RDONLY | libc::O_NOATIME | libc::O_NONBLOCK) {
        Ok(own) => read_moving(own.as_fd(), size, copying),
        Err(_) => read_through(fd, size, copying),
    }
}

/// As [`read`], but by this very description, whose holders stand still.
///
/// # Errors
/// As [`read`].
pub fn read_through(fd: BorrowedFd<'_>, size: u64, copying: &Copying) -> Result<BlobData> {
    let unreadable = |errno: Errno| {
        Refusal::new(
            format!("its content cannot be read ({})", errno.desc()),
            "give its owner the permission to read it",
        )
    };
    let offset = lseek64(fd, 0, Whence::SeekCur).map_err(unreadable)?;
    let mut byte = [0];
    pread(fd, &mut byte, 0).map_err(unreadable)?;
    let content = read_moving(fd, size, copying);
    lseek64(fd, offset, Whence::SeekSet)
        .map_err(|errno| EngineError::system("lseek", "a file of the job", errno))?;
    content
}

fn read_moving(fd: BorrowedFd<'_>, size: u64, copying: &Copying) -> Result<BlobData> {
    let ranges = data_ranges(fd, size)?;
    let place = copying.place(ranges.iter().map(|(start, end)| end - start).sum())?;
    let file = fd.try_clone_to_owned().map(File::from);
    let file = file.map_err(|error| EngineError::system("copy", "a descriptor", error))?;
    let read = |start, end| place.keep(read_range(&file, start, end, copying)?);
    let mut extents = in_pieces(&ranges, copying.threads(), read)?;
    extents.retain(|extent| !extent.bytes.is_empty());
    Ok(BlobData { length: size, extents })
}

/// Ranges (start, end) that may hold something else than zeros.
fn data_ranges(fd: BorrowedFd<'_>, size: u64) -> Result<Vec<(u64, u64)>> {
    let failed = |errno| EngineError::system("lseek", "data of a file of the job", errno);
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match holes::next_data(fd, at) {
            Ok(start) => start,
            Err(Errno::ENXIO) => break,
            // The file system does not know holes.
            Err(Errno::EINVAL) => return Ok(vec![(0, size)]),
            Err(errno) => return Err(failed(errno)),
        };
        let end = holes::next_hole(fd, start).map_err(failed)?;
        let (start, end) = (start.min(size), end.min(size));
        if end <= at {
            break;
        }
        match ranges.last_mut() {
            Some(last) if start - last.1 <= SMALL_HOLE => last.1 = end,
            _ => ranges.push((start, end)),
        }
        at = end;
    }
    Ok(ranges)
}

/// Up to `end`, or less where the file has become shorter.
fn read_range(file: &File, start: u64, end: u64, copying: &Copying) -> Result<Vec<u8>> {
    let mut bytes = copying.memory((end - start) as usize)?;
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], start + filled as u64) {
            Ok(0) => break,
            Ok(count) => {
                filled += count;
                copying.count(count);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(EngineError::system("read", "the content of a file", error)),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
