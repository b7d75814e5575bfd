//! What is recorded of a run.

use crate::task::{Attempt, Task};
use serde::{Deserialize, Serialize};

/// What is recorded of a run, in the order in which it happened. A task that is not in it has not ended, whatever it has
/// done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// A task was tried, failed, and is to be tried again.
    Failed(Try),
    /// A task has ended: nothing of it is run again.
    Ended(Try),
    /// A task is not run, since one has failed that it waits for, directly or not.
    Skipped {
        /// The task.
        task: Task,
        /// The one that has failed.
        because: Task,
    },
    /// Somebody wants all that failed and all that was skipped to be tried again: from here on they have not ended.
    Reopened,
    /// Somebody wants this one to be run again, which has failed or was cancelled: from here on it has not ended.
    Retried {
        /// The task.
        task: Task,
    },
}

impl Entry {
    /// The task that it is about.
    #[must_use]
    pub fn task(&self) -> Option<Task> {
        match self {
            Self::Failed(tried) | Self::Ended(tried) => Some(tried.task),
            Self::Skipped { task, .. } | Self::Retried { task } => Some(*task),
            Self::Reopened => None,
        }
    }
}

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Try {
    /// The task.
    pub task: Task,
    /// Which time it was tried; 0: it was cancelled before it was.
    pub attempt: Attempt,
    /// How that ended.
    pub verdict: Verdict,
    /// How long it ran, in milliseconds; from the restart where it went on from a checkpoint.
    pub took_ms: u64,
    /// Whether it went on from a checkpoint.
    pub restored: bool,
}

/// How a try ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// By itself, with this status.
    Exited(u8),
    /// By this signal.
    Signalled(i32),
    /// It was ended, since it took too long.
    TimedOut,
    /// It was ended, since it wrote too much.
    WroteTooMuch,
    /// By itself with status 0, but a file is missing that it should have written.
    NoOutput,
    /// Somebody wanted it to end, or not to begin. It is not tried again by itself.
    Cancelled,
}

impl Verdict {
    /// Whether that is what was wanted.
    #[must_use]
    pub fn is_right(self) -> bool {
        self == Verdict::Exited(0)
    }
}
