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
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often a log is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// How often it is tried to write to a file that took nothing.
const RETRY: Duration = Duration::from_secs(1);

/// How long a file that takes nothing is waited for once the job is over.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long whoever has written to a file before is waited for: its job may be over just now.
const FREE_WITHIN: Duration = Duration::from_secs(3);

/// A file for a job's output, open. What is in it is overwritten once there is output.
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
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| failed(error.to_string()))?;
        match Self::is_ours(&file) {
            true => Ok(Some(Self { file, path: path.to_owned() })),
            false => Err(failed("another job's output is written to it".to_owned())),
        }
    }

    /// Whether nobody else writes to it: the lock goes with the description, also to the process that writes for a cluster's
    /// job.
    fn is_ours(file: &File) -> bool {
        let since = Instant::now();
        loop {
            match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) if since.elapsed() < FREE_WITHIN => sleep(LOOK),
                Err(Errno::WOULDBLOCK) => return false,
                // A file system without such locks.
                Ok(()) | Err(_) => return true,
            }
        }
    }

    fn mirror(self) -> Mirror {
        Mirror::new(self.file, self.path)
    }
}
