//! What an errand is told, beside the program of the task.

use protocol::cluster::settings::Interval;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// The longest, in bytes.
const MOST: usize = 64 * 1024;

/// What an errand is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The socket by which the cluster is asked.
    pub socket: PathBuf,
    /// The name of the task's job.
    pub job: String,
    /// What the errand says, and beside it what has come of it.
    pub said: PathBuf,
    /// When checkpoints of the job fall due.
    pub interval: Interval,
}

impl Order {
    /// As an argument.
    ///
    /// # Errors
    /// Where a path is no text.
    pub fn text(&self) -> io::Result<String> {
        serde_json::to_string(self).map_err(io::Error::other)
    }

    /// From an argument.
    ///
    /// # Errors
    /// Where it is none.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.len() > MOST {
            return Err("it is too long".to_owned());
        }
        protocol::json::read(text.as_bytes()).map_err(|error| error.to_string())
    }
}
