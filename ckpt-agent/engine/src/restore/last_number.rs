//! Which number the kernel gives out next (ns_last_pid, proc_sys_kernel(5)), where a process may not ask for one.

use std::fs::File;
use std::os::fd::AsRawFd;

use nix::errno::Errno;

use super::super::error::{EngineError, Result};
use super::super::graph::Pid;

/// The number that the PID namespace of whoever opens it has given out last.
const LAST_NUMBER: &str = "/proc/sys/kernel/ns_last_pid";

/// Has the kernel give out a number next, in the caller's PID namespace.
///
/// # Errors
/// No right to.
pub(super) fn tell_last(wanted: Pid) -> Result<()> {
    std::fs::write(LAST_NUMBER, (wanted - 1).to_string())
        .map_err(|error| EngineError::system("write", LAST_NUMBER, error))
}

/// Which number is to come next in a PID namespace of the job's own.
#[derive(Debug, Clone, Copy)]
pub struct LastInside {
    /// Its first process, as this process numbers it.
    pub(super) first: Pid,
    /// The number.
    pub(super) wanted: Pid,
}

impl LastInside {
    /// Tells the kernel, by a process that is there for a moment: only who is in the namespace may, with rights over it that
    /// the job's processes have given up.
    ///
    /// # Errors
    /// Failed calls.
    pub(super) fn tell(self) -> Result<()> {
        let path = format!("/proc/{}/ns/pid", self.first);
        let namespace =
            File::open(&path).map_err(|error| EngineError::system("open", &path, error))?;
        let fd = namespace.as_raw_fd();
        let status = in_child(|| {
            // SAFETY: takes numbers only.
            if unsafe { libc::setns(fd, libc::CLONE_NEWPID) } != 0 {
                return 1;
            }
            in_child(|| i32::from(tell_last(self.wanted).is_err())).unwrap_or(1)
        })?;
        match status {
            0 => Ok(()),
            _ => Err(EngineError::odd(path, "no number can be told there")),
        }
    }
}

/// What a child that is there for a moment returns.
fn in_child(act: impl FnOnce() -> i32) -> Result<i32> {
    let failed = |call| move |errno: Errno| EngineError::system(call, "a child", errno);
    // SAFETY: this process has one thread: all others have been joined.
    match unsafe { nix::unistd::fork() }.map_err(failed("fork"))? {
        nix::unistd::ForkResult::Child => {
            let status = act();
            // SAFETY: ends this process without running anything of its parent's.
            unsafe { libc::_exit(status) }
        }
        nix::unistd::ForkResult::Parent { child } => loop {
            use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
            match waitpid(child, Some(WaitPidFlag::__WALL)) {
                Err(Errno::EINTR) => {}
                Ok(WaitStatus::Exited(_, status)) => return Ok(status),
                Ok(_) => return Ok(1),
                Err(errno) => return Err(failed("waitpid")(errno)),
            }
        },
    }
}
