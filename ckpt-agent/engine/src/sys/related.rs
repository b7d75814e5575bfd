//! What a namespace belongs to, or was made in (ioctl_ns(2)).

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::super::error::{EngineError, Result};

/// NS_GET_USERNS (ioctl_ns(2)), for all architectures of this engine.
pub const GET_USER: u64 = 0xb701;
/// NS_GET_PARENT
pub const GET_PARENT: u64 = 0xb702;

/// The namespace that one belongs to, or was made in, or that a socket was made in.
///
/// # Errors
/// As ioctl(2).
pub fn related(of: impl AsFd, request: u64) -> Result<OwnedFd> {
    // SAFETY: these requests take no argument; the answer is checked before it is used.
    let fd = unsafe { libc::ioctl(of.as_fd().as_raw_fd(), request as _) };
    if fd < 0 {
        return Err(EngineError::last_os("ioctl", "the owner of a namespace"));
    }
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A user namespace that this process has open, as the kernel names it.
///
/// # Errors
/// As fstat(2).
pub fn user_name(namespace: impl AsFd) -> Result<String> {
    let found = nix::sys::stat::fstat(namespace);
    let found = found.map_err(|errno| EngineError::system("fstat", "a namespace", errno))?;
    Ok(format!("user:[{}]", found.st_ino))
}
