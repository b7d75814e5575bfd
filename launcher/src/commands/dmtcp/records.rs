//! A job of DMTCP's processes: what is kept of its checkpoints, and the record in its log.

use crate::failure::Failure;
use crate::jobs::{self, JobFolder};
use crate::text;
use ckpt_dmtcp::cluster::Cluster;
use ckpt_dmtcp::images::{Amount, ImageError, Images};
use ckpt_dmtcp::machine::{Checkpoint, Notice};
use ckpt_dmtcp::server::{RecordError, Recorder};
use coordinator::log::{LogError, LogFile};
use coordinator::{Entry, History};
use protocol::agent::{CommitRecord, ExitKind, ImageSummary, InstanceId};
use thiserror::Error;
use tokio::sync::mpsc;

/// Why a checkpoint is not kept, or not gone back to.
#[derive(Debug, Error)]
pub enum RecordsError {
    /// There is none.
    #[error("no checkpoint of it was committed")]
    NoCheckpoint,
    /// Its images can't be kept.
    #[error("keep DMTCP's images: {0}")]
    NotKept(#[source] ImageError),
    /// Its images are not to be had.
    #[error(transparent)]
    Images(#[from] ImageError),
    /// The job's log takes nothing.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The computation has no job.
    #[error("its job could not be kept")]
    NoJob,
}

/// The images of a job.
pub fn images(job: &JobFolder) -> Images {
    Images::of(job.path(), job.id())
}

/// What happens to the job, for who runs it.
#[derive(Debug)]
pub enum Told {
    /// A checkpoint is committed.
    Committed(CommitRecord),
    /// One was given up.
    Failed(String),
    /// Something to be said.
    Warning(String),
    /// All processes run again.
    Restarted,
}

/// Keeps a job's checkpoints.
pub struct JobRecorder {
    job: JobFolder,
    log: LogFile,
    history: History,
    keep: usize,
    restored_from: Option<u64>,
    told: mpsc::UnboundedSender<Told>,
    /// Whose agents keep images.
    cluster: Option<Cluster>,
}

impl JobRecorder {
    /// Opens the job's log; the caller holds its lock.
    pub fn open(
        job: &JobFolder,
        keep: usize,
        told: mpsc::UnboundedSender<Told>,
    ) -> Result<Self, Failure> {
        let (log, history, _) = jobs::open_log(job)?;
        Ok(Self { job: job.clone(), log, history, keep, restored_from: None, told, cluster: None })
    }

    /// With agents that keep images.
    pub fn with(self, cluster: Option<Cluster>) -> Self {
        Self { cluster, ..self }
    }

    /// Has agents restart the newest checkpoint where its images are.
    pub fn return_by_agents(&self) -> Result<(), RecordsError> {
        let (Some(cluster), Some(number)) = (&self.cluster, self.newest()) else {
            return Err(RecordsError::NoCheckpoint);
        };
        Ok(images(&self.job).restart(cluster, number)?)
    }

    /// Whether agents keep all images of the newest checkpoint.
    pub fn is_with_agents(&self) -> Result<(), RecordsError> {
        let number = self.newest().ok_or(RecordsError::NoCheckpoint)?;
        images(&self.job).places(number)?;
        Ok(())
    }

    /// The job begins, or goes on.
    pub fn begin(&mut self, restored_from: Option<u64>) -> Result<(), Failure> {
        self.restored_from = restored_from;
        self.append(Entry::Started { at_ms: text::now_ms(), restored_from })
            .map_err(|error| Failure::Failed(error.to_string()))
    }

    /// The job has ended; as far as that is known, how.
    pub fn end(&mut self, status: Option<ExitKind>, asked: bool) -> Result<(), RecordsError> {
        self.append(Entry::Ended { at_ms: text::now_ms(), status, asked })
    }

    /// The newest committed checkpoint.
    pub fn newest(&self) -> Option<u64> {
        self.history.newest().map(|record| record.checkpoint)
    }

    fn append(&mut self, entry: Entry) -> Result<(), RecordsError> {
        self.log.append(&entry)?;
        self.history.apply(&entry);
        Ok(())
    }

    fn record(&mut self, checkpoint: &Checkpoint) -> Result<CommitRecord, RecordsError> {
        let number = self.history.next_number();
        self.append(Entry::Begun { checkpoint: number })?;
        let kept = images(&self.job).keep(number, checkpoint, self.cluster.as_ref());
        let Amount { bytes, copies, degraded } = match kept {
            Ok(kept) => kept,
            Err(error) => {
                let failed = RecordsError::NotKept(error);
                let reason = failed.to_string();
                self.append(Entry::Abandoned { checkpoint: number, reason, again: false })?;
                return Err(failed);
            }
        };
        let record = CommitRecord {
            format: CommitRecord::FORMAT,
            job: self.job.id().to_owned(),
            checkpoint: number,
            restored_from: self.restored_from,
            taken_at_ms: checkpoint.begun_at_ms,
            committed_at_ms: text::now_ms(),
            pause_us: checkpoint.took_us,
            log_length: 0,
            copies,
            degraded,
            suspended: false,
            summary: ImageSummary {
                processes: u32::try_from(checkpoint.images.len()).unwrap_or(u32::MAX),
                bytes,
                stored_bytes: bytes,
                files: 0,
                connections: 0,
            },
            agents: vec![InstanceId::EMBEDDED].into(),
        };
        self.append(Entry::Committed(record.clone()))?;
        self.collect();
        Ok(record)
    }

    /// Removes all but the newest.
    fn collect(&mut self) {
        let numbers: Vec<u64> =
            self.history.committed().map(|(record, _)| record.checkpoint).collect();
        let (old, kept) = numbers.split_at(numbers.len().saturating_sub(self.keep));
        if old.is_empty() || self.append(Entry::Collected { kept: kept.to_vec() }).is_err() {
            return;
        }
        images(&self.job).collect(old, kept, self.cluster.as_ref());
    }
}

impl Recorder for JobRecorder {
    fn commit(&mut self, checkpoint: &Checkpoint) -> Result<(), RecordError> {
        let record = self.record(checkpoint)?;
        // Whoever runs the job has ended it: it is in the log all the same.
        let _ = self.told.send(Told::Committed(record));
        Ok(())
    }

    fn notice(&mut self, notice: &Notice) {
        let told = match notice {
            Notice::Failed { reason, .. } => Told::Failed(reason.clone()),
            Notice::Warning(text) => Told::Warning(text.clone()),
            Notice::Restarted { .. } => Told::Restarted,
            _ => return,
        };
        let _ = self.told.send(told);
    }
}
