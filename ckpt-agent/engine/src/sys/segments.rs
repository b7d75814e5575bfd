//! SysV shared memory: the calls themselves, since the libc crate lacks the functions for Android, whose C library has them
//! since Android 8 only.

use nix::errno::Errno;

use super::super::arch::calls;
use super::abi;

/// Makes a segment for a key that has none yet, which its owner may read and write (shmget(2)); its number.
///
/// # Errors
/// As shmget(2).
pub fn make(key: i32, size: usize) -> nix::Result<i32> {
    let flags = abi::IPC_CREAT | abi::IPC_EXCL | 0o600;
    // SAFETY: takes numbers only.
    Errno::result(unsafe { libc::syscall(calls::SHMGET, key, size, flags) })
        .map(|number| number as i32)
}

/// As [`make`], of huge pages of so many bytes, a power of two.
///
/// # Errors
/// As shmget(2): ENOMEM where there are not enough of them, EPERM without the right to them.
pub fn make_huge(key: i32, size: usize, page: u64) -> nix::Result<i32> {
    const SHM_HUGETLB: i32 = 0o4000;
    const SHM_HUGE_SHIFT: u32 = 26;
    let kind = SHM_HUGETLB | (page.trailing_zeros() << SHM_HUGE_SHIFT) as i32;
    let flags = abi::IPC_CREAT | abi::IPC_EXCL | kind | 0o600;
    // SAFETY: takes numbers only.
    Errno::result(unsafe { libc::syscall(calls::SHMGET, key, size, flags) })
        .map(|number| number as i32)
}

/// Attaches a segment for reading and writing where the kernel likes (shmat(2)); where.
///
/// # Errors
/// As shmat(2).
pub fn attach(number: i32) -> nix::Result<u64> {
    let anywhere: usize = 0;
    // SAFETY: the kernel chooses a free place; nothing of this process is there.
    let at = unsafe { libc::syscall(calls::SHMAT, number, anywhere, 0) };
    Errno::result(at).map(|at| at as usize as u64)
}

/// Detaches what [`attach`] attached (shmdt(2)).
///
/// # Safety
/// No reference into it may be left.
pub unsafe fn detach(at: u64) {
    // SAFETY: unmaps a whole segment, to which nothing refers (the caller's condition).
    unsafe { libc::syscall(calls::SHMDT, at as usize) };
}

/// The segment ends with its last holder (IPC_RMID).
///
/// # Errors
/// As shmctl(2).
pub fn mark(number: i32) -> nix::Result<()> {
    control(number, abi::IPC_RMID)
}

/// Locks the segment into memory (SHM_LOCK).
///
/// # Errors
/// As shmctl(2).
pub fn lock(number: i32) -> nix::Result<()> {
    control(number, abi::SHM_LOCK)
}

fn control(number: i32, command: i32) -> nix::Result<()> {
    let none: usize = 0;
    // SAFETY: the commands of this file take numbers only.
    let done = unsafe { libc::syscall(calls::SHMCTL, number, calls::ipc_command(command), none) };
    Errno::result(done).map(drop)
}
