//! Stops of children and their ends, and whether the parent has been told of them (wait(2) with WUNTRACED, WCONTINUED).

use super::super::error::Result;
use super::super::graph::{Pid, StoppedChild};
use super::super::trace::Remote;

/// The children of a process.
#[derive(Debug, Default)]
pub struct Children {
    stopped: Vec<Pid>,
    running: Vec<Pid>,
}

impl Children {
    /// One more, stopped by job control or not.
    pub fn add(&mut self, pid: Pid, is_stopped: bool) {
        if is_stopped { &mut self.stopped } else { &mut self.running }.push(pid);
    }
}

/// Asks a process of its stopped children. A look without taking (WNOWAIT) says no more of a stop that was told once
/// (kernel/exit.c, wait_task_stopped); who looks for job control's stops sees them behind those of ptrace(2).
///
/// # Errors
/// Failed calls.
pub fn ask(remote: &mut Remote<'_>, of: &Children) -> Result<Vec<StoppedChild>> {
    let mut children = Vec::with_capacity(of.stopped.len());
    for &pid in &of.stopped {
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

/// Asks a process which of its children go on after a stop, of which it has not been told. Most have none of these, which
/// one call shows.
///
/// # Errors
/// Failed calls.
pub fn ask_continued(remote: &mut Remote<'_>, of: &Children) -> Result<Vec<Pid>> {
    let mut found = Vec::new();
    if of.running.is_empty() || !has_continued(remote, libc::P_ALL, 0)? {
        return Ok(found);
    }
    for &pid in &of.running {
        if has_continued(remote, libc::P_PID, pid)? {
            found.push(pid);
        }
    }
    Ok(found)
}

fn has_continued(remote: &mut Remote<'_>, which: libc::idtype_t, pid: Pid) -> Result<bool> {
    let at = remote.scratch_data()?;
    // struct siginfo begins with the signal. Where there is no such child, nothing is written.
    remote.memory().write(at, &[0; 4])?;
    let how = (libc::WCONTINUED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL) as u32;
    remote.raw(libc::SYS_waitid, &[which.into(), pid as u64, at, how.into(), 0])?;
    let mut signal = [0; 4];
    remote.memory().read(at, &mut signal)?;
    Ok(i32::from_ne_bytes(signal) != 0)
}
