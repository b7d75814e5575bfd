//! CPU affinity and scheduling policy of other threads (sched(7)).

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::super::error::{EngineError, Result};

fn failed(call: &'static str, tid: i32) -> impl Fn(Errno) -> EngineError {
    move |errno| match errno {
        Errno::ESRCH => EngineError::Gone(tid),
        other => EngineError::system(call, format!("thread {tid}"), other),
    }
}

/// CPUs that a thread may run on; `None` where these are all that this process may run on.
///
/// # Errors
/// [`EngineError::Gone`].
pub fn affinity(tid: i32) -> Result<Option<Vec<u32>>> {
    let call = "sched_getaffinity";
    let set = sched_getaffinity(Pid::from_raw(tid)).map_err(failed(call, tid))?;
    let own = sched_getaffinity(Pid::from_raw(0)).map_err(failed(call, 0))?;
    if set == own {
        return Ok(None);
    }
    let cpus = (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu) == Ok(true));
    Ok(Some(cpus.map(|cpu| cpu as u32).collect()))
}

/// Puts a thread on these CPUs. `false`: this machine has none of them.
///
/// # Errors
/// [`EngineError::Gone`].
pub fn set_affinity(tid: i32, cpus: &[u32]) -> Result<bool> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        // A CPU beyond the set's size does not exist here.
        let _ = set.set(*cpu as usize);
    }
    match sched_setaffinity(Pid::from_raw(tid), &set) {
        Ok(()) => Ok(true),
        Err(Errno::EINVAL) => Ok(false),
        Err(errno) => Err(failed("sched_setaffinity", tid)(errno)),
    }
}

/// Policy and static priority of a thread.
///
/// # Errors
/// [`EngineError::Gone`].
pub fn policy(tid: i32) -> Result<(i32, i32)> {
    let call = "sched_getscheduler";
    // SAFETY: takes a number only.
    let policy = Errno::result(unsafe { libc::sched_getscheduler(tid) }).map_err(failed(call, tid))?;
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` lives across the call.
    Errno::result(unsafe { libc::sched_getparam(tid, &mut parameters) })
        .map_err(failed("sched_getparam", tid))?;
    Ok((policy, parameters.sched_priority))
}

/// Sets policy and priority of a thread.
///
/// # Errors
/// EPERM for real-time policies without privilege.
pub fn set_policy(tid: i32, policy: i32, priority: i32) -> nix::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: `parameters` lives across the call.
    Errno::result(unsafe { libc::sched_setscheduler(tid, policy, &parameters) }).map(drop)
}

/// Gives the calling thread this nice value.
pub fn be_nice(value: i32) {
    // SAFETY: takes numbers only; on Linux 0 is the calling thread (setpriority(2), NOTES).
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, value) };
}

/// Runs `look` with the calling thread on this CPU, then puts it back where it was. `None`: it may not
/// run there.
pub fn on_cpu<T>(cpu: usize, look: impl FnOnce() -> T) -> Option<T> {
    let own = Pid::from_raw(0);
    let before = sched_getaffinity(own).ok()?;
    let mut there = CpuSet::new();
    there.set(cpu).ok()?;
    sched_setaffinity(own, &there).ok()?;
    let seen = look();
    // The set was this thread's a moment ago.
    let _ = sched_setaffinity(own, &before);
    Some(seen)
}
