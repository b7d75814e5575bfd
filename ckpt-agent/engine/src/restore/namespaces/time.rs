//! Time namespaces (time_namespaces(7)). unshare(2) makes one for the process's children; a process enters the same one by
//! setns(2), which sets both.

use super::super::super::arch::Call;
use super::super::super::dump::clocks;
use super::super::super::error::Result;
use super::super::super::graph::TIME_OF_CHILDREN;
use super::super::super::job_init::namespaces::set_clocks_of;
use super::super::super::sys::abi::CLONE_NEWTIME;
use super::super::super::trace::{FOLLOW_CHILDREN, Remote};
use super::join;

/// Sets the clocks of the one that a helper has just made: those of the job have been set already, and these are as far
/// from them as they were.
pub(super) fn set(pid: i32, monotonic_ns: i64, boottime_ns: i64) -> Result<()> {
    let (monotonic, boottime) = clocks::offsets(std::process::id() as i32)?;
    set_clocks_of(
        &pid.to_string(),
        monotonic.saturating_add(monotonic_ns),
        boottime.saturating_add(boottime_ns),
    )
}

/// Has a helper enter the one that it has just made. `folder`: its descriptor of /proc/self/ns.
pub(super) fn enter_made(remote: &mut Remote<'_>, folder: u64) -> Result<()> {
    let at = remote.scratch_data()?;
    remote.memory().write(at, format!("{TIME_OF_CHILDREN}\0").as_bytes())?;
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
    let fd = remote.call("openat", libc::SYS_openat, &[folder, at, flags, 0])?;
    join(remote, fd, CLONE_NEWTIME as u64)
}

/// Fixes the clocks of the one that a helper has made for its children: a child of it is there for a moment, since a process
/// that goes there by setns(2) has none for its children any more that is another than its own.
pub(super) fn fix(remote: &mut Remote<'_>) -> Result<()> {
    remote.thread().set_options(FOLLOW_CHILDREN)?;
    let born = remote.clone_child(0);
    remote.thread().set_options(libc::PTRACE_O_EXITKILL)?;
    let (number, mut child) = born?;
    child.set_options(0)?;
    let mut loan = Remote::take(&mut child, remote.entry_point())?;
    let prepared = loan.prepare(Call::of(libc::SYS_exit, [0; 6]));
    loan.abandon();
    prepared?;
    child.release()?;
    let any_kind = libc::__WALL as u32 as u64;
    remote.call("wait4", libc::SYS_wait4, &[number, 0, any_kind, 0]).map(drop)
}
