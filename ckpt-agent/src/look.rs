//! What a checkpoint on this disk is, and what is in it, for people.

use std::collections::BTreeMap;
use std::path::Path;

use protocol::cluster::look::Finding;
use serde::{Deserialize, Serialize};

use ckpt_engine::dump::process_file;
use ckpt_engine::graph::{Graph, Pid, ProcessImage, ProcessState};
use ckpt_store::{Checkpoint, CheckpointState, CheckpointSummary, CommitMark, Damage, Progress};

/// Why a checkpoint was not read.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// It is damaged.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// Its index is too long for the way that it is to go.
    #[error("its index has {length} bytes, and no more than {most} go through an agent")]
    TooLong {
        /// Bytes of its index files.
        length: u64,
        /// How many may be.
        most: u64,
    },
}

/// What is in a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
pub struct Content {
    /// What makes it whole.
    pub mark: CommitMark,
    /// Its objects and who holds them.
    pub graph: Graph,
    /// Processes that live, by number.
    pub processes: Vec<ProcessImage>,
}

impl Content {
    /// Reads a checkpoint of the job kept in that folder.
    ///
    /// # Errors
    /// Damage.
    pub fn read(job_dir: &Path, number: u64) -> Result<Self, Damage> {
        Self::of(&Checkpoint::open(job_dir, number)?)
    }

    fn of(checkpoint: &Checkpoint) -> Result<Self, Damage> {
        let graph: Graph = checkpoint.read_json("graph.json")?;
        let mut processes = BTreeMap::<Pid, ProcessImage>::new();
        for node in graph.processes.iter().filter(|node| node.state == ProcessState::Alive) {
            processes.insert(node.pid, checkpoint.read_json(&process_file(node.pid))?);
        }
        let processes = processes.into_values().collect();
        Ok(Self { mark: checkpoint.mark().clone(), graph, processes })
    }

    /// Reads one whose index files are no longer than that together.
    ///
    /// # Errors
    /// Damage, or too long an index.
    pub fn read_bounded(job_dir: &Path, number: u64, most: u64) -> Result<Self, LookError> {
        let checkpoint = Checkpoint::open(job_dir, number)?;
        let length = index_length(checkpoint.mark());
        if length > most {
            return Err(LookError::TooLong { length, most });
        }
        Ok(Self::of(&checkpoint)?)
    }

    /// The bytes of all its index files.
    pub fn index_length(&self) -> u64 {
        index_length(&self.mark)
    }
}

fn index_length(mark: &CommitMark) -> u64 {
    mark.files.iter().fold(0, |sum, file| file.length.saturating_add(sum))
}

/// Judges a checkpoint of the job kept in that folder, as listed; every chunk of it is read.
pub fn judge(
    job_dir: &Path,
    checkpoint: &CheckpointSummary,
    progress: impl FnMut(Progress),
) -> Finding {
    match &checkpoint.state {
        CheckpointState::Incomplete => return Finding::Unfinished,
        CheckpointState::Damaged(damage) => return Finding::Damaged { reason: damage.to_string() },
        CheckpointState::Committed(_) => {}
    }
    match ckpt_store::verify(job_dir, checkpoint.number, progress) {
        Ok(report) => Finding::Whole { chunks: report.chunks, bytes: report.bytes },
        Err(damage) => Finding::Damaged { reason: damage.to_string() },
    }
}

/// Judges checkpoint `number` of the job kept in that folder.
pub fn judge_number(job_dir: &Path, number: u64, progress: impl FnMut(Progress)) -> Finding {
    match ckpt_store::list(job_dir) {
        Err(damage) => Finding::Damaged { reason: damage.to_string() },
        Ok(listed) => match listed.iter().find(|found| found.number == number) {
            Some(found) => judge(job_dir, found, progress),
            // Removed meanwhile.
            None => Finding::Missing,
        },
    }
}
