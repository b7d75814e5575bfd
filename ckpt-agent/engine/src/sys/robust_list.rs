//! get_robust_list(2) of another thread.

use nix::errno::Errno;

use super::super::error::{EngineError, Result};
use super::trial::Call;

/// Head and length of a thread's robust list; head 0: none. Where the call is forbidden (Android's apps) none
/// is reported: there no program may register one either.
///
/// # Errors
/// EPERM where the thread is another user's.
pub fn robust_list(tid: i32) -> Result<(u64, u64)> {
    if !Call::GetRobustList.may_be_made() {
        return Ok((0, 0));
    }
    let (mut head, mut length) = (0usize, 0usize);
    // SAFETY: both places live across the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &raw mut head, &raw mut length) };
    match Errno::result(answer) {
        Ok(_) => Ok((head as u64, length as u64)),
        Err(Errno::ENOSYS) => Ok((0, 0)),
        Err(Errno::ESRCH) => Err(EngineError::Gone(tid)),
        Err(errno) => Err(EngineError::system("get_robust_list", format!("thread {tid}"), errno)),
    }
}
