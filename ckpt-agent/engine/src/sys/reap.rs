//! Reaping of children whatever ended them.

use nix::errno::Errno;
use protocol::agent::ExitKind;

/// What a look for ended children found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaped {
    /// This one, and it is gone now.
    Ended(i32, ExitKind),
    /// None that has ended.
    Nothing,
    /// There are no children, and no tracees.
    NoChildren,
    /// One that has stopped for its tracer.
    Stopped,
}

/// What wait(2)'s status says of an end.
pub fn exit_kind(status: i32) -> Option<ExitKind> {
    if libc::WIFEXITED(status) {
        Some(ExitKind::Exited(libc::WEXITSTATUS(status) as u8))
    } else if libc::WIFSIGNALED(status) {
        // Real-time signals among them, which nix's own waitpid refuses.
        Some(ExitKind::Signalled(libc::WTERMSIG(status)))
    } else {
        None
    }
}

/// Reaps one child, without waiting.
///
/// # Errors
/// As waitpid(2).
pub fn reap_any() -> nix::Result<Reaped> {
    let mut status = 0;
    // SAFETY: `status` lives across the call.
    match Errno::result(unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::__WALL) }) {
        Ok(0) => Ok(Reaped::Nothing),
        Ok(pid) => Ok(exit_kind(status).map_or(Reaped::Stopped, |kind| Reaped::Ended(pid, kind))),
        Err(Errno::ECHILD) => Ok(Reaped::NoChildren),
        Err(Errno::EINTR) => Ok(Reaped::Stopped),
        Err(errno) => Err(errno),
    }
}
