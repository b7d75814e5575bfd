//! What happened to a job: the coordinator's log, or what the commit marks beside the images say
//! where that is lost.

use super::{JobError, JobFolder};
use ckpt_store::CheckpointState;
use coordinator::log::{LogError, LogFile};
use coordinator::{Entry, History};
use protocol::agent::CommitRecord;
use std::fs;

fn is_lost(error: &LogError) -> bool {
    matches!(error, LogError::Damaged { .. } | LogError::OtherJob { .. })
}

/// The records of all commit marks.
fn records(job: &JobFolder) -> Result<Vec<CommitRecord>, JobError> {
    let mut records = Vec::new();
    for checkpoint in ckpt_store::list(job.path())? {
        if let CheckpointState::Committed(mark) = checkpoint.state {
            if let Ok(record) = protocol::json::of_value::<CommitRecord>(&mark.meta) {
                if record.checkpoint == checkpoint.number && record.job == job.id() {
                    records.push(record);
                }
            }
        }
    }
    Ok(records)
}

/// Reads a job's history without changing anything.
///
/// # Errors
/// Where neither the log nor the marks can be read.
pub fn load(job: &JobFolder) -> Result<History, JobError> {
    let path = job.coordinator_log();
    match coordinator::log::read(&path, job.id()) {
        Ok(history) if path.exists() => Ok(history),
        Err(error) if !is_lost(&error) => {
            Err(JobError::Log { id: job.id().to_owned(), source: error })
        }
        _ => {
            let mut history = History::default();
            for record in records(job)? {
                history.apply(&Entry::Committed(record));
            }
            Ok(history)
        }
    }
}

/// Opens a job's log for its coordinator; the caller holds the job's lock. A lost one is rebuilt
/// from the commit marks, and what was left of it kept; the warning says so.
///
/// # Errors
/// Where the log can't be opened or rebuilt.
pub fn open_log(job: &JobFolder) -> Result<(LogFile, History, Option<String>), JobError> {
    let failed = |source| JobError::Log { id: job.id().to_owned(), source };
    let path = job.coordinator_log();
    let mut warning = None;
    let (log, mut history) = match LogFile::open(&path, job.id()) {
        Err(error) if is_lost(&error) => {
            let aside = path.with_extension("log.damaged");
            fs::rename(&path, &aside).map_err(JobError::io("move aside", &path))?;
            warning = Some(format!(
                "{error}; it was rebuilt from the checkpoints, and is kept as {}",
                aside.display()
            ));
            LogFile::open(&path, job.id()).map_err(failed)?
        }
        other => other.map_err(failed)?,
    };
    let mut log = log;
    if history.starts() == 0 && history.newest().is_none() {
        for record in records(job)? {
            let entry = Entry::Committed(record);
            log.append(&entry).map_err(failed)?;
            history.apply(&entry);
        }
    }
    // The folder of an unfinished checkpoint keeps its number.
    if let Some(last) = ckpt_store::list(job.path())?.last() {
        history.reserve(last.number);
    }
    Ok((log, history, warning))
}
