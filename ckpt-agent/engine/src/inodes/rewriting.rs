//! Files that are there still get their content back: what is the same is not written.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::fcntl::{FallocateFlags, fallocate};

use super::super::error::{EngineError, Result};
use super::super::graph::BlobId;
use super::super::objects::RestoreContext;

/// Bytes compared at a time.
const PIECE: usize = 64 * 1024;

/// Gives a file the content of a blob of this `length`. Others may have it open, or mapped: what is the same is not written,
/// and the file is never shorter than it was or is to be.
///
/// # Errors
/// [`EngineError::Damaged`]; failed system calls.
pub fn make_same(
    file: &File,
    path: &str,
    (blob, length): (BlobId, u64),
    context: &RestoreContext,
) -> Result<()> {
    let failed = |error: io::Error| EngineError::system("write", path, error);
    let size = file.metadata().map_err(failed)?.size();
    if size < length {
        file.set_len(length).map_err(failed)?;
    }
    rewrite(file, path, (blob, length.min(size)), context)?;
    // Even to the same length ftruncate(2) would count as a change.
    if size > length { file.set_len(length).map_err(failed) } else { Ok(()) }
}

/// Writes what differs. Whether anything did within the first `common` bytes, which both have.
///
/// # Errors
/// [`EngineError::Damaged`]; failed system calls.
pub fn rewrite(
    file: &File,
    path: &str,
    (blob, common): (BlobId, u64),
    context: &RestoreContext,
) -> Result<bool> {
    let failed = |error: io::Error| EngineError::system("write", path, error);
    let (mut at, mut changed, mut trouble) = (0, false, None);
    let spans = context.for_each_span(blob, |offset, bytes| {
        let mut step = || -> io::Result<()> {
            changed |= clear(file, at, offset.min(common))?;
            changed |= write_span(file, offset, bytes, common)?;
            Ok(())
        };
        if trouble.is_none() {
            trouble = step().err();
        }
        at = offset + bytes.len() as u64;
        Ok(())
    });
    spans?;
    match trouble {
        Some(error) => Err(failed(error)),
        None => Ok(changed | clear(file, at, common).map_err(failed)?),
    }
}

fn write_span(file: &File, offset: u64, bytes: &[u8], common: u64) -> io::Result<bool> {
    let mut changed = false;
    let mut there = vec![0; PIECE];
    for (index, piece) in bytes.chunks(PIECE).enumerate() {
        let at = offset + (index * PIECE) as u64;
        let there = there.get_mut(..piece.len()).unwrap_or_default();
        let same = file.read_exact_at(there, at).is_ok() && there == piece;
        if !same {
            changed |= at < common;
            match piece.iter().all(|byte| *byte == 0) {
                true => punch(file, at, piece.len())?,
                false => file.write_all_at(piece, at)?,
            }
        }
    }
    Ok(changed)
}

/// Makes a range zeros that the image has as a hole. Whether it was anything else.
fn clear(file: &File, start: u64, end: u64) -> io::Result<bool> {
    let (mut at, mut changed) = (start, false);
    let mut there = vec![0; PIECE];
    while at < end {
        let want = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
        let there = there.get_mut(..want).unwrap_or_default();
        file.read_exact_at(there, at)?;
        if there.iter().any(|byte| *byte != 0) {
            changed = true;
            punch(file, at, want)?;
        }
        at += want as u64;
    }
    Ok(changed)
}

fn punch(file: &File, at: u64, length: usize) -> io::Result<()> {
    let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let (from, count) = (libc::off_t::try_from(at), libc::off_t::try_from(length));
    if let (Ok(from), Ok(count)) = (from, count) {
        if fallocate(file.as_fd(), hole, from, count).is_ok() {
            return Ok(());
        }
    }
    file.write_all_at(&vec![0; length], at)
}
