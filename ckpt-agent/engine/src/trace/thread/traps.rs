//! SIGTRAPs that wait for a thread that is to make calls for us.
//!
//! Each injected run ends with a SIGTRAP, which must not be blocked meanwhile, and which is dropped where another one is pending.
//! So those that are pending are taken out before the first run, kept, and put back when the thread goes on: a signal whose
//! delivery is traced is queued once more where the thread blocks it by then (kernel/signal.c, ptrace_signal).

use super::super::super::error::Result;
use super::super::ptrace::{Plain, set_siginfo, siginfo};
use super::{ALL_BUT_TRAP, SIGINFO, StoppedThread, failed};

/// A SIGTRAP that was pending.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldTrap {
    pub(super) siginfo: [u8; SIGINFO],
    /// For the process as a whole.
    pub(super) shared: bool,
}

fn is_trap(siginfo: &[u8; SIGINFO]) -> bool {
    siginfo[..4] == libc::SIGTRAP.to_ne_bytes()
}

impl StoppedThread {
    /// Takes pending SIGTRAPs out, to be put back when the thread goes on.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub(super) fn hold_traps(&mut self) -> Result<()> {
        // In the order in which the kernel delivers them. There is one of each at most.
        for shared in [false, true] {
            if self.queued(shared)?.iter().any(is_trap) {
                let siginfo = self.take_trap()?;
                self.traps.push(HeldTrap { siginfo, shared });
            }
        }
        Ok(())
    }

    /// Has a SIGTRAP pending once the thread goes on, for itself or (`shared`) for its process.
    pub fn hold_trap(&mut self, siginfo: [u8; SIGINFO], shared: bool) {
        self.traps.push(HeldTrap { siginfo, shared });
    }

    /// Lets the next SIGTRAP come as far as its delivery. The thread executes nothing.
    fn take_trap(&self) -> Result<[u8; SIGINFO]> {
        let blocked = self.blocked()?;
        self.set_blocked(ALL_BUT_TRAP)?;
        self.go_until_trap(Plain::Continue(0))?;
        let siginfo =
            siginfo(self.tid).map_err(|errno| failed("PTRACE_GETSIGINFO", self.tid, errno))?;
        self.set_blocked(blocked)?;
        Ok(siginfo)
    }

    /// Puts back what was taken out: the last act before the thread goes on, with its own registers and mask.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub(super) fn put_traps(&mut self) -> Result<()> {
        // The process's first: the thread's own would be taken for it.
        let mut traps = std::mem::take(&mut self.traps);
        traps.sort_by_key(|trap| !trap.shared);
        traps.iter().try_for_each(|trap| self.put_trap(trap))
    }

    fn put_trap(&self, trap: &HeldTrap) -> Result<()> {
        use nix::sys::signal::{Signal, kill};
        let blocked = self.blocked()?;
        if trap.shared {
            kill(nix::unistd::Pid::from_raw(self.tid), Signal::SIGTRAP)
                .map_err(|errno| failed("kill", self.tid, errno))?;
        } else {
            // SAFETY: takes numbers only; the thread is a tracee, so that the number is its own.
            let sent = unsafe { libc::syscall(libc::SYS_tkill, self.tid, libc::SIGTRAP) };
            nix::errno::Errno::result(sent).map_err(|errno| failed("tkill", self.tid, errno))?;
        }
        self.take_trap()?;
        set_siginfo(self.tid, &trap.siginfo)
            .map_err(|errno| failed("PTRACE_SETSIGINFO", self.tid, errno))?;
        self.set_blocked(blocked)?;
        self.stop_again(libc::SIGTRAP)
    }
}
