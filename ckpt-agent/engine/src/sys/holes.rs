//! lseek(2) between data and holes, which nix has for `target_os = "linux"` only.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// Where the next data begins, at `at` or behind it (SEEK_DATA).
///
/// # Errors
/// ENXIO where there is none; EINVAL where the file system does not know holes.
pub fn next_data(fd: BorrowedFd<'_>, at: u64) -> nix::Result<u64> {
    seek(fd, at, libc::SEEK_DATA)
}

/// Where the next hole begins, at `at` or behind it; the end of the file is one (SEEK_HOLE).
///
/// # Errors
/// As [`next_data`].
pub fn next_hole(fd: BorrowedFd<'_>, at: u64) -> nix::Result<u64> {
    seek(fd, at, libc::SEEK_HOLE)
}

fn seek(fd: BorrowedFd<'_>, at: u64, whence: i32) -> nix::Result<u64> {
    // SAFETY: takes numbers only.
    let found = unsafe { libc::lseek64(fd.as_raw_fd(), at as i64, whence) };
    Errno::result(found).map(|found| found as u64)
}
