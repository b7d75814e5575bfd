//! A copy-on-write child that holds a process's memory still while the process goes on.
//!
//! The process clones C, which shares its memory (no page table is copied), and C clones G, which
//! does not: G is the frozen copy. C ends and is waited for by the process itself, so that no
//! child is left that a waitpid(-1) could see; G falls to the init of the PID namespace. It stays in
//! its first ptrace stop until it is killed, and dies with the tracer.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid as UnixPid;

use super::super::arch::Call;
use super::super::error::{EngineError, Result};
use super::super::proc::{is_killed, read_text};
use super::super::sys::abi;
use super::super::sys::sched_attr::MayFork;
use super::super::trace::{
    Batch, FOLLOW_CHILDREN, Remote, Scratch, StopReport, StoppedThread, deliver, wait,
};

/// Bytes of struct clone_args in its first version (include/uapi/linux/sched.h, CLONE_ARGS_SIZE_VER0); the flags come first.
const CLONE_ARGUMENTS: usize = 64;

/// The frozen copy of a process's memory. Dropping it ends it.
#[derive(Debug)]
pub struct SnapshotProcess {
    thread: Option<StoppedThread>,
    host_pid: i32,
}

impl SnapshotProcess {
    /// Makes one of the process that `remote` has borrowed. `apart`: ranges that it does not get: SysV
    /// segments, which know how many hold them, rings, whose ends it would hold back, and huge pages. Their content is in
    /// the image already. `other_time`: it must not be the first one in the time namespace of the process's children.
    ///
    /// # Errors
    /// No memory or too many processes; the process is as before.
    pub fn of(remote: &mut Remote<'_>, apart: &[(u64, u64)], other_time: bool) -> Result<Self> {
        let _may_fork = MayFork::begin(remote.thread().tid());
        remote.thread().set_options(FOLLOW_CHILDREN)?;
        let snapshot_process = Self::through_carrier(remote, apart, other_time);
        remote.thread().set_options(libc::PTRACE_O_EXITKILL)?;
        snapshot_process
    }

    fn through_carrier(
        remote: &mut Remote<'_>,
        apart: &[(u64, u64)],
        other_time: bool,
    ) -> Result<Self> {
        let flags = (libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_FS) as u64;
        let (carrier_number, mut carrier) = remote.clone_child(flags)?;
        let entry_point = remote.entry_point();
        let born = Self::born_of(&mut carrier, entry_point, remote.scratch(), apart, other_time);
        // The carrier shares the process's memory: it must be gone before the process goes on, whatever
        // became of the snapshot process.
        let ended = {
            let exit = Call::of(libc::SYS_exit, [0; 6]);
            let mut loan = Remote::take(&mut carrier, remote.entry_point())?;
            let prepared = loan.prepare(exit);
            loan.abandon();
            prepared.and_then(|()| carrier.release())
        };
        // Waits for the carrier's end. The kernel's __WCLONE: children that do not send SIGCHLD.
        remote.raw(libc::SYS_wait4, &[carrier_number, 0, libc::__WCLONE as u32 as u64, 0])?;
        ended?;
        born
    }

    fn born_of(
        carrier: &mut StoppedThread,
        entry_point: u64,
        scratch: Option<Scratch>,
        apart: &[(u64, u64)],
        other_time: bool,
    ) -> Result<Self> {
        let mut loan = Remote::take(carrier, entry_point)?;
        let born = match other_time {
            true => in_other_time(&mut loan, scratch),
            false => loan.clone_child(libc::CLONE_FILES as u64),
        };
        loan.abandon();
        let (_, mut thread) = born?;
        let host_pid = thread.tid();
        let mut loan = Remote::take(&mut thread, entry_point)?;
        if let Some(scratch) = scratch {
            // Its copy of the process's.
            loan = loan.with_scratch(scratch);
        }
        // Its own, empty table: it must not hold back the end of any file. And out of the
        // process's group, whose signals are not for it.
        let mut batch = Batch::new();
        let all = [0, u64::from(u32::MAX), u64::from(abi::CLOSE_RANGE_UNSHARE)];
        batch.add(libc::SYS_close_range, &all);
        batch.add(libc::SYS_setsid, &[]);
        for (start, end) in apart {
            batch.add(libc::SYS_munmap, &[*start, end - start]);
        }
        let hidden = loan.run(&batch).and_then(|answers| {
            let names = ["close_range", "setsid"].into_iter().chain(std::iter::repeat("munmap"));
            answers
                .iter()
                .zip(names)
                .try_for_each(|(answer, name)| loan.checked(name, *answer).map(drop))
        });
        loan.abandon();
        let snapshot_process = Self { thread: Some(thread), host_pid };
        hidden?;
        // First to go when memory runs short: then a checkpoint is lost, not the job.
        let path = format!("/proc/{host_pid}/oom_score_adj");
        std::fs::write(&path, "1000").map_err(|error| EngineError::system("write", path, error))?;
        Ok(snapshot_process)
    }

    /// Its number on this machine, for reading its memory.
    pub fn host_pid(&self) -> i32 {
        self.host_pid
    }

    /// From now on it stops at its own end, its memory still in its hands, until it is dropped.
    ///
    /// The kernel's OOM killer waits for the memory of what it has killed only as long as the process can be seen to
    /// have some. A reader of /proc/PID/mem keeps the memory of a dead process for as long as its read takes, longer
    /// where it is not scheduled: nothing is free yet, nobody is seen to have it, and the next to be killed is the job.
    /// One that stops at its end is seen, and whoever has killed it takes its memory there
    /// ([`PidFd::release_memory`](super::super::sys::pidfd::PidFd::release_memory)); at the latest the kernel does so
    /// after two seconds (mm/oom_kill.c, `oom_reaper`).
    ///
    /// # Errors
    /// Failed ptrace calls: it is dead already.
    pub fn stop_at_end(&self) -> Result<()> {
        let Some(thread) = &self.thread else { return Ok(()) };
        thread.set_options(libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXIT)
    }

    /// Whether it still stands, with its memory.
    pub fn is_alive(&self) -> bool {
        is_alive(self.host_pid)
    }
}

/// A child in a time namespace of its own, made by clone3(2): to clone(2) the flag is part of the signal of its end.
fn in_other_time(
    carrier: &mut Remote<'_>,
    scratch: Option<Scratch>,
) -> Result<(u64, StoppedThread)> {
    let scratch = scratch.ok_or_else(|| EngineError::odd("scratch area", "missing"))?;
    let mut arguments = [0; CLONE_ARGUMENTS];
    let flags = (libc::CLONE_FILES | abi::CLONE_NEWTIME) as u64;
    arguments[..8].copy_from_slice(&flags.to_ne_bytes());
    carrier.memory().write(scratch.data(), &arguments)?;
    let given = [scratch.data(), CLONE_ARGUMENTS as u64];
    carrier.give_birth("clone3", libc::SYS_clone3, &given)
}

/// Whether a snapshot process still holds memory: one that was killed for want of memory reads as zeros or not
/// at all, and what was read of it must be thrown away. One that stands at its end has its mappings still, but was
/// killed.
pub fn is_alive(host_pid: i32) -> bool {
    let path = format!("/proc/{host_pid}/status");
    read_text(&path).is_ok_and(|status| status.is_some_and(|status| holds_memory(&status)))
}

/// Of /proc/PID/status: sizes are told only of those that have memory, and a kill is pending until the very end.
fn holds_memory(status: &str) -> bool {
    !is_killed(status) && status.lines().any(|line| line.starts_with("VmSize:"))
}

impl Drop for SnapshotProcess {
    fn drop(&mut self) {
        let _ = kill(UnixPid::from_raw(self.host_pid), Signal::SIGKILL);
        if let Some(thread) = self.thread.take() {
            thread.forget();
        }
        // Its end is reported to the tracer first; then its real parent, the job's init, reaps it.
        while let Ok(report) = wait(self.host_pid) {
            match report {
                StopReport::Ended { .. } => break,
                StopReport::Stopped { .. } => {}
                // Its stop at its end; it can deliver nothing any more.
                StopReport::Signal { .. } => drop(deliver(self.host_pid, 0)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{holds_memory, is_alive};

    #[test]
    fn killed_ones_hold_nothing() {
        let status =
            "Name:\tx\nVmSize:\t 4 kB\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n";
        assert!(holds_memory(status));
        assert!(!holds_memory(&status.replace("VmSize", "VmNone")));
        assert!(!holds_memory(
            &status.replace("ShdPnd:\t00000000000000", "ShdPnd:\t00000000000001")
        ));
        assert!(is_alive(std::process::id() as i32));
    }
}
