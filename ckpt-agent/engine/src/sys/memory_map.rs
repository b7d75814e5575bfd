//! What the kernel lets a process set of its own view of its memory (prctl(2), PR_SET_MM): where program, heap, arguments
//! and environment are, and which executable it runs.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::abi;

/// PR_SET_MM_BRK
const BRK: libc::c_ulong = 7;
/// PR_SET_MM_MAP_SIZE: answers only where PR_SET_MM_MAP is there.
const MAP_SIZE: libc::c_ulong = 15;

/// How that view can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// All at once, by PR_SET_MM_MAP, which needs CONFIG_CHECKPOINT_RESTORE.
    Whole,
    /// Field by field, which needs CAP_SYS_RESOURCE over the machine.
    Fields,
    /// Not at all: a process keeps what its last execve(2), or its parent's, has set.
    Nothing,
}

/// How it can be set by this process, and by those that it forks.
pub fn means() -> Means {
    let nothing: libc::c_ulong = 0;
    let mut size: libc::c_uint = 0;
    // SAFETY: the kernel writes one unsigned int to `size`, which lives across the call.
    let asked = unsafe { libc::prctl(libc::PR_SET_MM, MAP_SIZE, &raw mut size, nothing, nothing) };
    if Errno::result(asked).is_ok() {
        return Means::Whole;
    }
    // SAFETY: brk(0) changes nothing, and tells where the heap ends; what is set is what is so already.
    let set = unsafe {
        let end = libc::syscall(libc::SYS_brk, nothing);
        libc::prctl(libc::PR_SET_MM, BRK, end as libc::c_ulong, nothing, nothing)
    };
    if Errno::result(set).is_ok() { Means::Fields } else { Means::Nothing }
}

/// Whether code of a file may be mapped: not where its file system is mounted without that right.
pub fn may_hold_code(fd: BorrowedFd<'_>) -> bool {
    const LENGTH: usize = 1 << 16;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE);
    // SAFETY: a fresh mapping at a place of the kernel's choice, which is never looked at.
    let made =
        unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, protection, flags, fd.as_raw_fd(), 0) };
    if made == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the mapping made right above, which nobody knows of.
    unsafe { libc::munmap(made, LENGTH) };
    true
}

/// Whether this kernel has MAP_DROPPABLE.
pub fn can_drop() -> bool {
    const LENGTH: usize = 1 << 16;
    let flags = abi::MAP_DROPPABLE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping at a place of the kernel's choice.
    let made = unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, libc::PROT_READ, flags, -1, 0) };
    if made == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the mapping made right above, which nobody knows of.
    unsafe { libc::munmap(made, LENGTH) };
    true
}
