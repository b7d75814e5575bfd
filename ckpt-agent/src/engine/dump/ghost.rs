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
use super::super::sys::abi;
use super::super::trace::{
    Batch, FOLLOW_CHILDREN, Remote, Scratch, StopReport, StoppedThread, wait,
};

/// The frozen copy of a process's memory. Dropping it ends it.
#[derive(Debug)]
pub struct Ghost {
    thread: Option<StoppedThread>,
    host_pid: i32,
}

impl Ghost {
    /// Makes one of the process that `remote` has borrowed. `shared`: ranges of SysV segments, which know
    /// how many hold them; their content is in the image already.
    ///
    /// # Errors
    /// No memory or too many processes; the process is as before.
    pub fn of(remote: &mut Remote<'_>, shared: &[(u64, u64)]) -> Result<Self> {
        remote.thread().set_options(FOLLOW_CHILDREN)?;
        let ghost = Self::through_carrier(remote, shared);
        remote.thread().set_options(libc::PTRACE_O_EXITKILL)?;
        ghost
    }

    fn through_carrier(remote: &mut Remote<'_>, shared: &[(u64, u64)]) -> Result<Self> {
        let flags = (libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_FS) as u64;
        let (carrier_number, mut carrier) = remote.clone_child(flags)?;
        let born = Self::born_of(&mut carrier, remote.entry_point(), remote.scratch(), shared);
        // The carrier shares the process's memory: it must be gone before the process goes on, whatever
        // became of the ghost.
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
        shared: &[(u64, u64)],
    ) -> Result<Self> {
        let mut loan = Remote::take(carrier, entry_point)?;
        let born = loan.clone_child(libc::CLONE_FILES as u64);
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
        for (start, end) in shared {
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
        let ghost = Self { thread: Some(thread), host_pid };
        hidden?;
        // First to go when memory runs short: then a checkpoint is lost, not the job.
        let path = format!("/proc/{host_pid}/oom_score_adj");
        std::fs::write(&path, "1000").map_err(|error| EngineError::system("write", path, error))?;
        Ok(ghost)
    }

    /// Its number on this machine, for reading its memory.
    pub fn host_pid(&self) -> i32 {
        self.host_pid
    }

    /// Whether it still stands, with its memory.
    pub fn is_alive(&self) -> bool {
        is_alive(self.host_pid)
    }
}

/// Whether a ghost still holds memory: one that was killed for want of memory reads as zeros or not
/// at all, and what was read of it must be thrown away.
pub fn is_alive(host_pid: i32) -> bool {
    std::fs::read(format!("/proc/{host_pid}/statm")).is_ok_and(|statm| !statm.starts_with(b"0 "))
}

impl Drop for Ghost {
    fn drop(&mut self) {
        let _ = kill(UnixPid::from_raw(self.host_pid), Signal::SIGKILL);
        if let Some(thread) = self.thread.take() {
            thread.forget();
        }
        // Its end is reported to the tracer first; then its real parent, the job's init, reaps it.
        while let Ok(report) = wait(self.host_pid) {
            if matches!(report, StopReport::Ended { .. }) {
                break;
            }
        }
    }
}
