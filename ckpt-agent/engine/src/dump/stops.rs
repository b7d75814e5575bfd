//! Stops of children, and whether their parent has been told of them (wait(2) with WUNTRACED).

use super::super::error::Result;
use super::super::graph::{Pid, StoppedChild};
use super::super::trace::Remote;

/// Asks a process of its stopped children. A look without taking (WNOWAIT) says no more of a stop that was told once
/// (kernel/exit.c, wait_task_stopped); who looks for job control's stops sees them behind those of ptrace(2).
///
/// # Errors
/// Failed calls.
pub fn ask(remote: &mut Remote<'_>, stopped: &[Pid]) -> Result<Vec<StoppedChild>> {
    let mut children = Vec::with_capacity(stopped.len());
    for &pid in stopped {
        let at = remote.scratch_data()?;
        let how = (libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT) as u64;
        let answer = remote.raw(libc::SYS_waitid, &[libc::P_PID.into(), pid as u64, at, how, 0])?;
        remote.checked("waitid", answer)?;
        // struct siginfo begins with the signal: none, where there is nothing to be told.
        let mut signal = [0; 4];
        remote.memory().read(at, &mut signal)?;
        children.push(StoppedChild { pid, told: i32::from_ne_bytes(signal) == 0 });
    }
    Ok(children)
}
