//! The folder of one job.

use super::{JobError, JobRecord};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder of one job.
#[derive(Debug, Clone)]
pub struct JobFolder {
    path: PathBuf,
    record: JobRecord,
}

/// Held by the one process that runs a job, or changes its folder. It is a lock on the open file
/// description of job.json (flock(2)): it goes with the process, however that ends.
#[derive(Debug)]
pub struct JobLock {
    _file: Flock<File>,
}

impl JobFolder {
    /// The file that describes the job and carries the lock.
    pub const RECORD: &'static str = "job.json";

    /// Opens the folder of that id.
    ///
    /// # Errors
    /// Where its record can't be read.
    pub fn open(path: PathBuf, id: &str) -> Result<Self, JobError> {
        let record = JobRecord::read(&path.join(Self::RECORD), id)?;
        Ok(Self { path, record })
    }

    /// A folder whose record is known.
    pub(super) fn of(path: PathBuf, record: JobRecord) -> Self {
        Self { path, record }
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was run.
    #[must_use]
    pub fn record(&self) -> &JobRecord {
        &self.record
    }

    /// The job's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.record.id
    }

    /// The job's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// The job's output.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// The coordinator's log.
    #[must_use]
    pub fn coordinator_log(&self) -> PathBuf {
        self.path.join("coordinator.log")
    }

    fn try_lock(&self, how: FlockArg) -> Result<Option<JobLock>, JobError> {
        let path = self.path.join(Self::RECORD);
        let file = File::open(&path).map_err(JobError::io("open", &path))?;
        match Flock::lock(file, how) {
            Ok(file) => Ok(Some(JobLock { _file: file })),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, errno)) => Err(JobError::io("lock", path)(errno.into())),
        }
    }

    /// Whether a process runs the job, or is changing its folder.
    ///
    /// # Errors
    /// Where that can't be told.
    pub fn is_running(&self) -> Result<bool, JobError> {
        Ok(self.try_lock(FlockArg::LockSharedNonblock)?.is_none())
    }

    /// Takes the lock. Waits for a moment, since others try it only to see whether the job runs.
    ///
    /// # Errors
    /// [`JobError::Running`] where another process holds it.
    pub fn lock(&self) -> Result<JobLock, JobError> {
        for _ in 0..20 {
            if let Some(lock) = self.try_lock(FlockArg::LockExclusiveNonblock)? {
                return Ok(lock);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(JobError::Running { id: self.id().to_owned() })
    }
}
