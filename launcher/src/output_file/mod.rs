//! `--output FILE`: a copy of a job's log as it grows, cut back with it.
//!
//! The log has everything already, so that neither the job nor its log ever waits for the copy: what could not be written,
//! as on a full disk, is written once there is room.
//!
//! - `mirror`: the file.
//! - `beside`: of a job on this machine alone, by a thread of its launcher.
//! - `started`: of a job of a cluster, by a process of the user's own on the machine where it was run.
//! - `follower`: what that process does.

mod beside;
mod follower;
mod mirror;
mod started;

pub use beside::while_running;
pub use follower::follow;
pub use started::Follower;

use crate::failure::Failure;
use mirror::Mirror;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a log is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// How often it is tried to write to a file that took nothing.
const RETRY: Duration = Duration::from_secs(1);

/// How long a file that takes nothing is waited for once the job is over.
const PATIENCE: Duration = Duration::from_secs(3);

/// A file for a job's output, open and empty.
#[derive(Debug)]
pub struct OutputFile {
    file: File,
    path: PathBuf,
}

impl OutputFile {
    /// That of an option. Opened before there is a job: a slip of the pen should leave none behind.
    ///
    /// # Errors
    /// Where it can't be written, or is no file.
    pub fn of(path: Option<&Path>, what: &str) -> Result<Option<Self>, Failure> {
        let Some(path) = path else { return Ok(None) };
        let failed = |cause: String| Failure::of(what, format!("{}: {cause}", path.display()));
        // It could not be cut back with the log; and a named pipe without a reader would be waited for.
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(failed("it is no plain file".to_owned()));
        }
        let opened = OpenOptions::new().write(true).create(true).truncate(true).open(path);
        let file = opened.map_err(|error| failed(error.to_string()))?;
        Ok(Some(Self { file, path: path.to_owned() }))
    }

    fn mirror(self) -> Mirror {
        Mirror::new(self.file, self.path)
    }
}
