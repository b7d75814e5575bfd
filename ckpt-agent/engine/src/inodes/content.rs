//! The content of a file or memory object, holes left out.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::unistd::{Whence, lseek64};

use super::super::error::{EngineError, Refusal, Result};
use super::super::objects::{BlobData, Extent, reopen};
use super::super::sys::holes;
use super::super::sys::page::page_size;
use super::copying::{self, Copying, Place};

/// Holes up to this many bytes are read with what is around them: an extent costs more.
const SMALL_HOLE: u64 = 64 * 1024;

/// From this size on, memory for a copy is asked for in huge pages: the first touch of fresh
/// small pages would take longer than the copying.
const LARGE: usize = 4 * 1024 * 1024;

/// Bytes read by one call: of a large file it is to be seen how far the reading has come.
const AT_ONCE: usize = 64 * 1024 * 1024;

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
    nix::sys::uio::pread(fd, &mut byte, 0).map_err(unreadable)?;
    let content = read_moving(fd, size, copying);
    lseek64(fd, offset, Whence::SeekSet)
        .map_err(|errno| EngineError::system("lseek", "a file of the job", errno))?;
    content
}

fn read_moving(fd: BorrowedFd<'_>, size: u64, copying: &Copying) -> Result<BlobData> {
    let ranges = data_ranges(fd, size)?;
    let place = copying.place(ranges.iter().map(|(start, end)| end - start).sum())?;
    let piece = match place {
        Place::Memory => u64::MAX,
        Place::Disk(_) => AT_ONCE as u64,
    };
    let mut extents = Vec::with_capacity(ranges.len());
    for (mut start, end) in ranges {
        while start < end {
            let stop = end.min(start.saturating_add(piece));
            let bytes = read_range(fd, start, stop, copying)?;
            if !bytes.is_empty() {
                extents.push(Extent { offset: start, bytes: place.keep(bytes)? });
            }
            start = stop;
        }
    }
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
fn read_range(fd: BorrowedFd<'_>, start: u64, end: u64, copying: &Copying) -> Result<Vec<u8>> {
    let length = (end - start) as usize;
    let mut bytes: Vec<u8> = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| copying::too_large(length as u64))?;
    if length >= LARGE {
        advise_huge(bytes.as_mut_ptr() as usize, length);
    }
    while bytes.len() < length {
        let offset = start + bytes.len() as u64;
        let spare = (length - bytes.len()).min(AT_ONCE);
        // SAFETY: the kernel writes at most `spare` bytes behind the vector's length; the
        // capacity was reserved for `length`, so these are allocated and nobody else's.
        let count = unsafe {
            let end = bytes.as_mut_ptr().add(bytes.len());
            libc::pread64(fd.as_raw_fd(), end.cast(), spare, offset as i64)
        };
        match Errno::result(count) {
            Ok(0) => break,
            Ok(count) => {
                // SAFETY: that many bytes behind the length have just been written.
                unsafe { bytes.set_len(bytes.len() + count as usize) };
                copying.count(count as usize);
            }
            Err(Errno::EINTR) => {}
            Err(errno) => {
                return Err(EngineError::system("read", "the content of a file", errno));
            }
        }
    }
    Ok(bytes)
}

fn advise_huge(start: usize, length: usize) {
    let page = page_size() as usize;
    let first = start.next_multiple_of(page);
    let last = (start + length) / page * page;
    if last > first {
        // SAFETY: whole pages within one live allocation; the advice changes no content. A
        // kernel that does not take it is only slower.
        unsafe { libc::madvise(first as *mut libc::c_void, last - first, libc::MADV_HUGEPAGE) };
    }
}
