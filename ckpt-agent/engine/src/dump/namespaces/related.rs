//! What a namespace belongs to (ioctl_ns(2)).

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use super::super::super::error::{EngineError, Refusal, Result};
use super::super::super::sys::stat::identity;
use super::WAY_OUT;

/// NS_GET_USERNS (ioctl_ns(2)), for all architectures of this engine.
pub(super) const GET_USER: u64 = 0xb701;
/// NS_GET_PARENT
pub(super) const GET_PARENT: u64 = 0xb702;
/// SIOCGSKNS (include/uapi/linux/sockios.h): the network namespace of a socket.
const GET_NETWORK: u64 = 0x894c;

/// The namespace that one belongs to, or was made in, or that a socket was made in.
pub(super) fn related(of: impl AsFd, request: u64) -> Result<OwnedFd> {
    // SAFETY: these requests take no argument; the answer is checked before it is used.
    let fd = unsafe { libc::ioctl(of.as_fd().as_raw_fd(), request as _) };
    if fd < 0 {
        return Err(EngineError::last_os("ioctl", "the owner of a namespace"));
    }
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A user namespace that this process has open, as the kernel names it.
pub(super) fn user_name(namespace: impl AsFd) -> Result<String> {
    let found = nix::sys::stat::fstat(namespace);
    let found = found.map_err(|errno| EngineError::system("fstat", "a namespace", errno))?;
    Ok(format!("user:[{}]", found.st_ino))
}

/// Refuses a socket that was made in another network namespace than `home`: a restore makes all sockets there.
///
/// # Errors
/// The refusal, without the names of its process and descriptor.
pub fn check_network(socket: impl AsFd, home: u64) -> Result<()> {
    // Who has no rights over the namespace gets no answer: then it is not one that the job has made.
    let Ok(network) = related(socket, GET_NETWORK) else { return Ok(()) };
    let found = nix::sys::stat::fstat(&network);
    let found = found.map_err(|errno| EngineError::system("fstat", "a namespace", errno))?;
    match identity(&found).1 == home {
        true => Ok(()),
        false => {
            Err(Refusal::new("a socket in a network namespace of the job's own", WAY_OUT).into())
        }
    }
}
