//! Files of /proc of processes that have ended.

use std::ffi::CString;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open as nix_open};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair,
};
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};

use super::super::error::{EngineError, Result};
use super::message::receive_rights;
use super::prctl;

/// What the file is opened as: user, group, supplementary groups.
pub type User<'a> = (u32, u32, &'a [u32]);

/// Opens a file (`name`, below the folder of the process, or of its thread) of a process that ends at once: a child, which opens
/// its own. For a single-threaded process. The inner error is that of open(2).
///
/// # Errors
/// Failed calls.
pub fn open(
    name: &str,
    of_thread: bool,
    flags: i32,
    user: Option<User<'_>>,
) -> Result<nix::Result<OwnedFd>> {
    let failed = |call| move |errno| EngineError::system(call, "a process that ends", errno);
    let (own, child_end) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(failed("socketpair"))?;
    // SAFETY: this process is single-threaded, so the child may do whatever it could; it ends by _exit.
    match unsafe { fork() }.map_err(failed("fork"))? {
        ForkResult::Child => {
            let opened = become_user(user).and_then(|()| open_own(name, of_thread, flags));
            let _ = answer(child_end.as_raw_fd(), opened);
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            drop(child_end);
            let mut errno = [0; 4];
            let received = receive_rights(&own, &mut errno, 0);
            waitpid(child, None).map_err(failed("waitpid"))?;
            let (_, mut rights) =
                received.map_err(|error| EngineError::system("recvmsg", "a file", error))?;
            Ok(rights.pop().ok_or_else(|| Errno::from_raw(i32::from_ne_bytes(errno))))
        }
    }
}

fn become_user(user: Option<User<'_>>) -> nix::Result<()> {
    let Some((uid, gid, groups)) = user.filter(|_| nix::unistd::geteuid().is_root()) else {
        return Ok(());
    };
    let groups: Vec<nix::unistd::Gid> = groups.iter().copied().map(Into::into).collect();
    nix::unistd::setgroups(&groups)?;
    nix::unistd::setresgid(gid.into(), gid.into(), gid.into())?;
    nix::unistd::setresuid(uid.into(), uid.into(), uid.into())?;
    // A change of user has made its files root's.
    prctl::set_dumpable(true)
}

fn open_own(name: &str, of_thread: bool, flags: i32) -> nix::Result<OwnedFd> {
    let folder = if of_thread { "/proc/thread-self" } else { "/proc/self" };
    let path = if name.is_empty() { folder.to_owned() } else { format!("{folder}/{name}") };
    let path = CString::new(path).map_err(|_| Errno::EINVAL)?;
    nix_open(path.as_c_str(), OFlag::from_bits_retain(flags), Mode::empty())
}

/// Sends the file, or what open(2) said.
fn answer(to: RawFd, opened: nix::Result<OwnedFd>) -> nix::Result<usize> {
    let errno = opened.as_ref().err().map_or(0, |errno| *errno as i32).to_ne_bytes();
    let fds: Vec<RawFd> = opened.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let rights: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
    sendmsg::<()>(to, &[IoSlice::new(&errno)], rights, MsgFlags::empty(), None)
}
