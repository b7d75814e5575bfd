//! Threads that stand for long, with nothing borrowed from them.

use super::super::super::error::Result;
use super::StoppedThread;

impl StoppedThread {
    /// Gives back all that was borrowed: from now on the thread goes on as it was found, also where its tracer dies. No call
    /// may be injected any more.
    ///
    /// A thread whose last stop was for a signal would be given that signal by the death of its tracer (kernel/signal.c,
    /// ptrace_stop: what it stopped for is what it goes on with, unless a tracer says otherwise), and each injected call ends
    /// with such a stop. So it is led on to one that stands for no signal.
    ///
    /// # Errors
    /// [`EngineError::Gone`](super::EngineError::Gone).
    pub fn rest(&mut self) -> Result<()> {
        self.put_all()?;
        self.stop_again(0)?;
        self.put_stop();
        self.set_options(0)
    }
}
