//! memfd_create(2) by its number: Android's C library has the function since Android 11 only.

use std::ffi::CStr;
use std::os::fd::{FromRawFd, OwnedFd};

use nix::errno::Errno;

/// include/uapi/linux/memfd.h, since Linux 6.3.
const MFD_NOEXEC_SEAL: libc::c_uint = 8;
const MFD_EXEC: libc::c_uint = 16;

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

/// Has `make` make one that may be executed, or not, and may be sealed, by flags that the kernel knows.
///
/// # Errors
/// As memfd_create(2).
pub fn made_executable(
    executable: bool,
    make: impl Fn(u32) -> nix::Result<OwnedFd>,
) -> nix::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    match make(flags | if executable { MFD_EXEC } else { MFD_NOEXEC_SEAL }) {
        // Before Linux 6.3.
        Err(Errno::EINVAL) => make(flags),
        other => other,
    }
}
