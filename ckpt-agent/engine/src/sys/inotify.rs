//! inotify(7), with the numbers of watches under control; and opening by handle.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;

/// INOTIFY_IOC_SETNEXTWD: _IOW('I', 0, __s32) (include/uapi/linux/inotify.h); needs CONFIG_CHECKPOINT_RESTORE.
const SET_NEXT: u64 = 0x4004_4900;
/// The longest handle (MAX_HANDLE_SZ).
const LONGEST_HANDLE: usize = 128;

/// Makes an instance with these flags.
///
/// # Errors
/// As inotify_init1(2).
pub fn make(flags: i32) -> nix::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::inotify_init1(flags | libc::IN_CLOEXEC) };
    let fd = Errno::result(fd)?;
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Bytes of events that can be read.
///
/// # Errors
/// As ioctl(2).
pub fn unread(instance: BorrowedFd<'_>) -> nix::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes an int, which outlives the call.
    let answer = unsafe { libc::ioctl(instance.as_raw_fd(), libc::FIONREAD as _, &raw mut bytes) };
    Errno::result(answer)?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Reads all events and forgets them.
///
/// # Errors
/// As read(2).
pub fn discard(instance: BorrowedFd<'_>) -> nix::Result<()> {
    loop {
        match unread(instance)? {
            0 => return Ok(()),
            bytes => nix::unistd::read(instance, &mut vec![0; bytes])?,
        };
    }
}

/// The next watch gets this number, if the kernel can be asked for it: whether it can.
pub fn ask_for_number(instance: BorrowedFd<'_>, number: i32) -> bool {
    // SAFETY: takes a number. Without it numbers are counted up.
    let answer =
        unsafe { libc::ioctl(instance.as_raw_fd(), SET_NEXT as _, libc::c_long::from(number)) };
    answer == 0
}

/// Adds a watch; its number.
///
/// # Errors
/// As inotify_add_watch(2).
pub fn add(instance: BorrowedFd<'_>, path: impl AsRef<Path>, mask: u32) -> nix::Result<i32> {
    let path = path.as_ref().as_os_str().as_bytes();
    let path = CString::new(path).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the kernel reads the path, which ends with a NUL and outlives the call.
    Errno::result(unsafe { libc::inotify_add_watch(instance.as_raw_fd(), path.as_ptr(), mask) })
}

/// Removes a watch.
///
/// # Errors
/// As inotify_rm_watch(2).
pub fn remove(instance: BorrowedFd<'_>, number: i32) -> nix::Result<()> {
    // SAFETY: takes numbers only.
    let answer = unsafe { libc::syscall(libc::SYS_inotify_rm_watch, instance.as_raw_fd(), number) };
    Errno::result(answer).map(drop)
}

/// Adds a watch with this number: whether it has got it, else it is gone again.
///
/// # Errors
/// As inotify_add_watch(2).
pub fn add_as(
    instance: BorrowedFd<'_>,
    path: impl AsRef<Path>,
    mask: u32,
    number: i32,
) -> nix::Result<bool> {
    ask_for_number(instance, number);
    let got = add(instance, path, mask)?;
    if got != number {
        remove(instance, got)?;
    }
    Ok(got == number)
}

/// Opens what a file system knows by this handle, with O_PATH (open_by_handle_at(2)). `on`: anything in that file system.
///
/// # Errors
/// EPERM without CAP_DAC_READ_SEARCH; ESTALE where it is gone.
pub fn open_by_handle(on: BorrowedFd<'_>, kind: i32, handle: &[u8]) -> nix::Result<OwnedFd> {
    if handle.len() > LONGEST_HANDLE {
        return Err(Errno::EOVERFLOW);
    }
    // struct file_handle: bytes, type, and the handle itself.
    let mut bytes = (handle.len() as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(handle);
    bytes.resize(8 + LONGEST_HANDLE, 0);
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: the kernel reads a struct file_handle with the length that it names, which the buffer has.
    let fd = unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, on.as_raw_fd(), bytes.as_ptr(), flags)
    };
    let fd = Errno::result(fd)?;
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
