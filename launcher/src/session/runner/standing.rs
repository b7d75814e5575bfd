//! A job that its user has stopped by the terminal's suspend key, or as that does.

use super::Runner;
use crate::session::terminal;
use nix::sys::signal::{Signal, raise};
use protocol::agent::AgentCommand;
use std::time::{Duration, Instant};

/// How long a launcher that was let go on looks whether that was for a request, which is there before.
const WOKEN: Duration = Duration::from_millis(100);

/// How long what was said last may take on its way before this process is stopped.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// Whether the user has stopped the job, and why this process runs then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is not stopped.
    Runs,
    /// It is not known yet why.
    Woken(Instant),
    /// For requests: once they are answered, this process stops again.
    Serves,
}

impl Runner<'_> {
    /// Stops the job and then this process, as the terminal's suspend key does without ckptd.
    pub(super) async fn suspend(&mut self) {
        if self.is_adopted() {
            // The job runs on, and is not to stand still all the while for a checkpoint.
            self.standing = Standing::Serves;
            return;
        }
        self.agent.command(AgentCommand::Signal { signal: nix::libc::SIGSTOP });
        self.machine.note_suspended(true);
        self.stop_here().await;
    }

    /// Stops this process until it is let go on.
    pub(super) async fn stop_here(&mut self) {
        // The agent is stopped with this process: let it do this first.
        tokio::time::sleep(LAST_WORDS).await;
        terminal::leave_raw();
        if raise(Signal::SIGSTOP).is_err() {
            return self.go_on();
        }
        self.continued = true;
        self.standing = Standing::Woken(Instant::now() + WOKEN);
    }

    /// Of a job that the user has stopped: lets it go on when the user does or it is to end, and stops again once
    /// those who have woken this process have their answers.
    pub(super) async fn stand(&mut self) {
        match self.standing {
            Standing::Runs => {}
            _ if self.machine.is_ending() => self.go_on(),
            Standing::Woken(until) if Instant::now() >= until => self.go_on(),
            Standing::Serves if !self.callers.is_waiting() && !self.is_busy() => {
                self.stop_here().await;
            }
            _ => {}
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.machine.in_flight(self.now()).is_some()
    }

    pub(super) fn go_on(&mut self) {
        self.standing = Standing::Runs;
        if self.is_adopted() {
            return;
        }
        self.machine.note_suspended(false);
        if self.user_terminal.is_some() && terminal::is_terminal(std::io::stdin()) {
            terminal::enter_raw(std::io::stdin());
        }
        self.follow_terminal();
        self.agent.command(AgentCommand::Signal { signal: nix::libc::SIGCONT });
    }

    /// Gives the job's terminal the size of the user's.
    pub(super) fn follow_terminal(&self) {
        self.resize(self.user_terminal.as_ref().and_then(terminal::size));
    }
}
