//! The job's init: process 1 of the job's namespaces. A fresh, single-threaded execution of this
//! program makes the namespaces, starts or restores the job, reaps, and ends with its agent.

mod channel;
mod launch;
pub(super) mod namespaces;
mod reap;
mod stage;

pub use channel::{Channel, ChannelError};
pub use stage::{INIT_NAME, run};

use protocol::agent::ExitKind;
use protocol::launch::{LaunchSpec, RestoreSpec};
use serde::{Deserialize, Serialize};

use super::graph::{OuterEnd, Pid};
use super::objects::StdioRole;
use super::split::PartOrder;

/// What an agent orders of a new init.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// CLOCK_MONOTONIC and CLOCK_BOOTTIME of the job minus those of the machine, ns; `None`: as the
    /// machine's.
    pub clocks: Option<(i64, i64)>,
    /// What to do.
    pub task: Task,
}

/// What an init is for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Start a program.
    Launch(LaunchSpec),
    /// Bring a job back.
    Restore {
        /// The job's folder.
        job_dir: std::path::PathBuf,
        /// How.
        spec: RestoreSpec,
        /// Which of its processes, where not all of them.
        #[serde(default)]
        part: Option<PartOrder>,
    },
}

/// What an init tells its agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The init itself, as the agent's PID namespace numbers it.
    Init(i32),
    /// What the agent is to hold of an object of the job: the descriptor sent along. Comes before
    /// [`Report::Ready`].
    Outer {
        /// What it is.
        end: OuterEnd,
    },
    /// The job runs. The descriptors sent along are the launcher's ends of these streams.
    Ready {
        /// The job's first process, as the job numbers it.
        root: Pid,
        /// Which stream each descriptor is.
        console: Vec<StdioRole>,
        /// Lines for the user.
        warnings: Vec<String>,
    },
    /// The job could not be started or restored; nothing of it has run.
    Failed(String),
    /// The job's first process has ended.
    Ended(ExitKind),
}
