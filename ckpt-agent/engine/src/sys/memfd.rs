//! memfd_create(2) by its number: Android's C library has the function since Android 11 only.

use std::ffi::CStr;
use std::os::fd::{FromRawFd, OwnedFd};

use nix::errno::Errno;

/// Makes a file in memory. `flags`: MFD_* bits, of newer kernels, too.
///
/// # Errors
/// As memfd_create(2).
pub fn make(name: &CStr, flags: u32) -> nix::Result<OwnedFd> {
    // SAFETY: the name is a C string that outlives the call.
    let made = unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) };
    // SAFETY: the kernel just made this descriptor for us alone.
    Errno::result(made).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
