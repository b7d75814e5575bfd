//! A task that runs.

use crate::entry::Verdict;
use crate::event::How;
use crate::settings::Settings;
use crate::task::Attempt;
use std::time::Duration;

/// How far a task is that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It is left to itself.
    Runs,
    /// A last checkpoint is taken; if it takes longer than until then, it is given up.
    Saving { until: Duration },
    /// It has one, and is about to end for that reason.
    Saved,
    /// It has ended as by somebody who ends everything. Without an interrupt until then, that was its own end.
    Doubted { until: Duration, how: How },
    /// It is being ended. `asked`: by a signal that it may handle, until it is killed at that time.
    Ending { asked: bool, kill_at: Option<Duration> },
}

/// A task that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub attempt: Attempt,
    /// Whether it has begun from a checkpoint.
    pub restored: bool,
    pub began: Duration,
    pub state: State,
    pub timeout_at: Option<Duration>,
    /// When the first checkpoint is due.
    pub keep_at: Option<Duration>,
    /// Whether checkpoints are taken of it, or were.
    pub is_kept: bool,
    pub cant_be_kept: bool,
    /// Why it is being ended, if that is its own fault.
    pub verdict: Option<Verdict>,
    /// How and when its process ended while a last checkpoint was being taken.
    pub ended: Option<(How, Duration)>,
}

impl Running {
    /// One that begins now.
    pub(super) fn of(
        settings: &Settings,
        timeout: Option<Duration>,
        now: Duration,
        attempt: Attempt,
        restored: bool,
    ) -> Self {
        let is_kept = restored || settings.kept_from_start;
        Self {
            attempt,
            restored,
            began: now,
            state: State::Runs,
            timeout_at: timeout.map(|limit| now + limit),
            // What is brought back is a job already, of which checkpoints are taken.
            keep_at: settings.checkpoint.filter(|_| !is_kept).map(|age| now + age),
            is_kept,
            cant_be_kept: false,
            verdict: None,
            ended: None,
        }
    }

    /// When it has to be looked at.
    pub(super) fn deadline(&self) -> Option<Duration> {
        match self.state {
            State::Runs => self.timeout_at.into_iter().chain(self.keep_at).min(),
            State::Saving { until } | State::Doubted { until, .. } => Some(until),
            State::Saved => None,
            State::Ending { kill_at, .. } => kill_at,
        }
    }
}
