//! The folders in which jobs are kept: DIR/ID, one a job.

mod folder;
mod history;
mod incoming;
mod name;
mod record;
mod state_dir;

pub use folder::{JobFolder, JobLock};
pub use history::{load, open_log};
pub use incoming::{Incoming, Wanted, sweep};
pub use name::check as check_name;
pub use record::{JobRecord, JobSettings, RecordError};
pub use state_dir::StateDir;

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// What can be wrong with the folders of jobs; the text fits after "failed to ...".
#[derive(Debug, Error)]
pub enum JobError {
    /// The system refused.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is nowhere to keep jobs.
    #[error(
        "find a place for jobs: HOME is not set, and this user has no home; use --dir DIR or CKPTD_DIR"
    )]
    NoPlace,
    /// The folder belongs to another user.
    #[error("use {}: it belongs to user {owner}; use --dir DIR for one of your own", path.display())]
    OtherOwner {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// There is no such job.
    #[error("find the job {wanted}: there is none of that name or id; 'ckptd ls' lists them")]
    Unknown {
        /// What was asked for.
        wanted: String,
    },
    /// There is no job at all.
    #[error("find the latest job: there is none in {}", dir.display())]
    NoJobs {
        /// Where it was looked for.
        dir: PathBuf,
    },
    /// Several jobs are meant.
    #[error("find the job {wanted}: it may be {candidates}; give more of its id")]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// The jobs.
        candidates: String,
    },
    /// The name is not one.
    #[error("name the job {name:?}: {reason}")]
    BadName {
        /// The name that was asked for.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The name is another job's.
    #[error("name the job {name}: there is one of that name; 'ckptd rm {name}' forgets it")]
    NameTaken {
        /// The name that was asked for.
        name: String,
    },
    /// The name of a job from outside is that of one that is here.
    #[error("name the job {name}: there is one of that name here; use --name")]
    ImportedNameTaken {
        /// The name that the job had elsewhere.
        name: String,
    },
    /// The job runs.
    #[error("lock the job {id}: it is running")]
    Running {
        /// Its id.
        id: String,
    },
    /// The job's description can't be used.
    #[error("read {}: {reason}", path.display())]
    BadRecord {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The coordinator's log can't be used.
    #[error("read the coordinator's log of the job {id}: {source}")]
    Log {
        /// The job's id.
        id: String,
        /// What is wrong with it.
        source: coordinator::log::LogError,
    },
    /// The store can't be read.
    #[error("{0}")]
    Store(#[from] ckpt_store::Damage),
}

impl JobError {
    fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> JobError {
        let path = path.into();
        move |source| JobError::Io { action, path, source }
    }
}

impl From<JobError> for crate::failure::Failure {
    fn from(error: JobError) -> Self {
        crate::failure::Failure::Failed(error.to_string())
    }
}
