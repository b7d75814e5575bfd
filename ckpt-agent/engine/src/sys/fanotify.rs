//! fanotify(7) by the numbers of its calls: not every C library has its functions.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

/// FAN_MARK_ADD (include/uapi/linux/fanotify.h).
const ADD: u32 = 1;
/// FAN_MARK_MOUNT
pub const OF_MOUNT: u32 = 0x10;
/// FAN_MARK_IGNORED_MASK
pub const IGNORED: u32 = 0x20;
/// FAN_MARK_FILESYSTEM
pub const OF_FILE_SYSTEM: u32 = 0x100;
/// FAN_OPEN
const OPEN: u64 = 0x20;

/// Makes a group with these flags, which the kernel shows from then on; its descriptor is closed by execve(2) in any
/// case. `event_flags`: O_* for the descriptors that come with events.
///
/// # Errors
/// As fanotify_init(2): EPERM without CAP_SYS_ADMIN for what only root may have.
pub fn make(flags: u32, event_flags: u32) -> nix::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_fanotify_init, flags, event_flags) };
    // SAFETY: the kernel just made this descriptor for us alone.
    let made = Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })?;
    fcntl(&made, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(made)
}

/// Adds a mark. `flags`: FAN_MARK_* without the command.
///
/// # Errors
/// As fanotify_mark(2).
pub fn mark(group: BorrowedFd<'_>, flags: u32, mask: u64, path: &str) -> nix::Result<()> {
    let path = CString::new(path).map_err(|_| Errno::EINVAL)?;
    call(group, flags | ADD, mask, libc::AT_FDCWD, path.as_ptr())
}

/// Whether it was made with CAP_SYS_ADMIN, as far as the caller, who must have that, is told: else marks of mounts are
/// refused before the kernel looks for what is to be marked (fs/notify/fanotify/fanotify_user.c, do_fanotify_mark()).
pub fn is_privileged(group: BorrowedFd<'_>) -> bool {
    call(group, ADD | OF_MOUNT, OPEN, -1, std::ptr::null()) != Err(Errno::EPERM)
}

fn call(
    group: BorrowedFd<'_>,
    flags: u32,
    mask: u64,
    folder: i32,
    path: *const libc::c_char,
) -> nix::Result<()> {
    let group = group.as_raw_fd();
    // SAFETY: the path is a C string that outlives the call, or none.
    let answer = unsafe {
        if usize::BITS == 64 {
            libc::syscall(libc::SYS_fanotify_mark, group, flags, mask, folder, path)
        } else {
            // In two words, the lower one first.
            let (low, high) = (mask as u32, (mask >> 32) as u32);
            libc::syscall(libc::SYS_fanotify_mark, group, flags, low, high, folder, path)
        }
    };
    Errno::result(answer).map(drop)
}
