//! Who is told of input on a descriptor: fcntl(2), F_SETOWN_EX and F_SETSIG.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;

const F_SETSIG: libc::c_int = 10;
const F_GETSIG: libc::c_int = 11;
const F_SETOWN_EX: libc::c_int = 15;
const F_GETOWN_EX: libc::c_int = 16;

/// struct f_owner_ex
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileOwner {
    /// F_OWNER_TID 0, F_OWNER_PID 1, F_OWNER_PGRP 2.
    pub kind: i32,
    /// Its number in this process's PID namespace.
    pub pid: i32,
}

/// The owner of an open file description, if it has one that can be seen from here.
pub fn file_owner(fd: &OwnedFd) -> Option<FileOwner> {
    let mut owner = FileOwner::default();
    // SAFETY: `owner` lives across the call.
    let answer = unsafe { libc::fcntl(fd.as_raw_fd(), F_GETOWN_EX, &raw mut owner) };
    (answer == 0 && owner.pid > 0).then_some(owner)
}

/// The signal that the owner gets; 0: SIGIO.
pub fn file_signal(fd: &OwnedFd) -> i32 {
    // SAFETY: takes numbers only.
    unsafe { libc::fcntl(fd.as_raw_fd(), F_GETSIG) }.max(0)
}

/// Sets owner and signal.
///
/// # Errors
/// ESRCH where there is no such process.
pub fn set_file_owner(fd: &impl AsRawFd, owner: FileOwner, signal: i32) -> nix::Result<()> {
    // SAFETY: `owner` lives across the call.
    Errno::result(unsafe { libc::fcntl(fd.as_raw_fd(), F_SETOWN_EX, &raw const owner) })?;
    // SAFETY: takes numbers only.
    Errno::result(unsafe { libc::fcntl(fd.as_raw_fd(), F_SETSIG, signal) }).map(drop)
}
