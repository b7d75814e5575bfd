//! dup3(2), which the libc crate lacks for Android.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// Makes `to` a duplicate of `from`; what was open there is closed. `flags`: O_CLOEXEC or 0. Async-signal-safe.
///
/// # Safety
/// Nobody may own what is open as `to`, unless he expects this.
///
/// # Errors
/// As dup3(2).
pub unsafe fn dup3(from: BorrowedFd<'_>, to: i32, flags: i32) -> nix::Result<()> {
    // SAFETY: takes numbers only; that nobody misses `to` is the caller's condition.
    let made = unsafe { libc::syscall(libc::SYS_dup3, from.as_raw_fd(), to, flags) };
    Errno::result(made).map(drop)
}
