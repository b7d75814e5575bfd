//! mount_setattr(2), open_tree(2) and move_mount(2): the C libraries lack them.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;

// include/uapi/linux/mount.h
const MOUNT_ATTR_RDONLY: u64 = 1;
const OPEN_TREE_CLONE: libc::c_uint = 1;
const OPEN_TREE_CLOEXEC: libc::c_uint = libc::O_CLOEXEC as libc::c_uint;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
// include/uapi/linux/fcntl.h
const AT_RECURSIVE: libc::c_uint = 0x8000;

/// The calls have one number on all architectures (scripts/syscall.tbl).
const OPEN_TREE: libc::c_long = 428;
const MOVE_MOUNT: libc::c_long = 429;
const MOUNT_SETATTR: libc::c_long = 442;

/// struct mount_attr, first version.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

fn text(path: &Path) -> nix::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)
}

/// Makes a mount, and all below it, read-only in the caller's mount namespace.
///
/// # Errors
/// ENOSYS before Linux 5.12.
pub fn make_read_only(path: &Path) -> nix::Result<()> {
    let path = text(path)?;
    let wanted = Attributes { set: MOUNT_ATTR_RDONLY, ..Attributes::default() };
    let size = size_of::<Attributes>();
    // SAFETY: the kernel reads `size` bytes of `wanted` and a string, which live across the call.
    let set = unsafe {
        let (from, flags) = (libc::AT_FDCWD, AT_RECURSIVE);
        libc::syscall(MOUNT_SETATTR, from, path.as_ptr(), flags, &raw const wanted, size)
    };
    Errno::result(set).map(drop)
}

/// A copy of a mount and of all below it, which is mounted nowhere yet.
///
/// # Errors
/// As open_tree(2).
pub fn copy_tree(path: &Path) -> nix::Result<OwnedFd> {
    let path = text(path)?;
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE;
    // SAFETY: the kernel reads a string, which lives across the call.
    let fd = unsafe { libc::syscall(OPEN_TREE, libc::AT_FDCWD, path.as_ptr(), flags) };
    let fd = Errno::result(fd)?;
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Mounts what [`copy_tree`] returned.
///
/// # Errors
/// As move_mount(2).
pub fn mount_tree(tree: impl AsFd, at: &Path) -> nix::Result<()> {
    let at = text(at)?;
    let (tree, flags) = (tree.as_fd().as_raw_fd(), MOVE_MOUNT_F_EMPTY_PATH);
    // SAFETY: the kernel reads two strings, which live across the call.
    let moved = unsafe {
        libc::syscall(MOVE_MOUNT, tree, c"".as_ptr(), libc::AT_FDCWD, at.as_ptr(), flags)
    };
    Errno::result(moved).map(drop)
}
