//! System calls that end without a SIGTRAP. The kernel forces the one that ends a single step or a breakpoint upon the thread, and
//! gives SIGTRAP its default action where the process ignores it (kernel/signal.c, force_sig_info_to_task).

use super::super::super::error::{EngineError, Result};
use super::super::ptrace::{Plain, plain};
use super::{StopReport, StoppedThread, deliver, failed, wait};

impl StoppedThread {
    /// Runs one system call, which the registers are about to make.
    ///
    /// # Errors
    /// As [`StoppedThread::step`].
    pub fn call_quietly(&self) -> Result<()> {
        for _entry_and_exit in 0..2 {
            self.go_until_trap(Plain::ToSystemCall)?;
        }
        Ok(())
    }

    /// Lets the thread go on with a signal (0: none) until the next stop, before it executes anything.
    ///
    /// # Errors
    /// [`EngineError::Gone`].
    pub fn stop_again(&self, signal: i32) -> Result<()> {
        plain(self.tid, Plain::Interrupt)
            .map_err(|errno| failed("PTRACE_INTERRUPT", self.tid, errno))?;
        deliver(self.tid, signal)?;
        loop {
            match wait(self.tid)? {
                StopReport::Stopped { .. } => return Ok(()),
                StopReport::Signal { signal, .. } => deliver(self.tid, signal)?,
                StopReport::Ended { .. } => return Err(EngineError::Gone(self.tid)),
            }
        }
    }
}
