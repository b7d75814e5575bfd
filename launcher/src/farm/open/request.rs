//! What commands ask the worker of an open farm for, at the socket in its folder: a line of JSON each, and one back.

use serde::{Deserialize, Serialize};

/// The socket's name in the farm's folder.
pub const SOCKET: &str = "socket";
/// The longest request, in bytes.
pub const MAX_REQUEST: usize = 1024;

/// From a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// There are so many tasks, durably.
    Look {
        /// How many.
        tasks: u32,
    },
    /// End a task, or take it out of the queue.
    Cancel {
        /// Which one.
        task: u32,
    },
    /// Run a task again that has not ended right.
    Retry {
        /// Which one.
        task: u32,
    },
    /// Run so many at a time from now on.
    Slots {
        /// How many.
        jobs: u32,
    },
    /// How do things stand? Answer: [`Reply::Status`].
    Status {},
    /// End, with last checkpoints.
    Stop {
        /// Without them, also where nothing can be recorded.
        #[serde(default)]
        now: bool,
    },
}

/// From the worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// It is done, and recorded.
    Done {},
    /// It is not done, and why; the text fits after "failed to ...".
    Refused {
        /// Why.
        reason: String,
    },
    /// The worker is ending: another one may do it.
    Ending {},
    /// How things stand.
    Status {
        /// What runs.
        running: Vec<RunningTask>,
        /// What could not be brought back.
        stuck: Vec<u32>,
        /// How many run at a time.
        jobs: u64,
    },
}

/// A task that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningTask {
    /// Its number.
    pub task: u32,
    /// Which time it is tried.
    pub attempt: u32,
    /// Its first process, or the one that has brought it back.
    pub pid: i32,
    /// How long it has run, or since its restart.
    pub seconds: f64,
    /// Whether it has gone on from a checkpoint.
    pub restored: bool,
}
