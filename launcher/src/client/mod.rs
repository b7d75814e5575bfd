//! The user's end of a job: the same conversation with a cluster, at an agent's or the coordinator's socket, and with
//! the launcher of a job without a cluster, at the socket in the job's folder.
//!
//! - [`link`]: one conversation.
//! - [`launcher`]: one question to a job's launcher.
//! - [`foreground`]: a job's output, input and exit status.
//! - [`commits`]: who wants to know of each checkpoint.
//! - [`resume`]: how a job goes on that has ended before its time.
//! - [`refusal`]: answers by which nothing was done.
//! - [`last_checkpoint`]: a checkpoint and the job's end when a signal comes.
//! - `restarting`: how far a restart is.
//! - `input`: what the user types for it.

pub mod commits;
pub mod foreground;
mod input;
mod keys;
pub mod last_checkpoint;
pub mod launcher;
pub mod link;
pub mod refusal;
mod restarting;
pub mod resume;

use std::time::Duration;

/// How long a lost cluster is looked for.
pub const LOST_LIMIT: Duration = Duration::from_secs(120);

/// How often.
pub const LOST_RETRY: Duration = Duration::from_millis(500);
