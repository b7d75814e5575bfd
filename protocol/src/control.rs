//! What a job is doing, and what becomes of a request about it.

use crate::agent::{CheckpointNumber, CommitRecord, ExitKind, Step};
use serde::{Deserialize, Serialize};

/// What became of a request for a checkpoint or a job's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The checkpoint asked for is committed.
    Committed(CommitRecord),
    /// The job is over.
    Ended {
        /// How it ended.
        status: ExitKind,
        /// Its newest committed checkpoint.
        checkpoint: Option<CheckpointNumber>,
    },
    /// It could not be done; one line, in lower case, that fits after "failed to ...".
    Failed(String),
}

/// What only the process that runs a job knows of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveStatus {
    /// The process that runs the job.
    pub launcher_pid: u32,
    /// Processes of the job, as the last freeze found them.
    pub processes: Option<u32>,
    /// Seconds between checkpoints, 0 for only on demand.
    pub interval_s: u64,
    /// Milliseconds until the next checkpoint falls due.
    pub next_checkpoint_ms: Option<u64>,
    /// The checkpoint in flight.
    pub in_flight: Option<InFlight>,
    /// Whether the job is being ended.
    pub ending: bool,
    /// Whether the job was stopped by its terminal's suspend key, or as that does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// The newest rehearsal of a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rehearsal: Option<Rehearsal>,
}

/// A restart that is rehearsed, or was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rehearsal {
    /// From which checkpoint.
    pub checkpoint: CheckpointNumber,
    /// How it came out; `None`: it is going on.
    pub outcome: Option<RehearsalOutcome>,
}

/// How the rehearsal of a restart came out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RehearsalOutcome {
    /// The checkpoint can be restored.
    Restorable {
        /// Its processes.
        processes: u32,
        /// How long it took, in milliseconds.
        took_ms: u64,
    },
    /// The restart would fail; one line, as it would have told.
    Failed(String),
    /// It could not be rehearsed; one line.
    Unknown(String),
}

/// A checkpoint that is being taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// Its number.
    pub checkpoint: CheckpointNumber,
    /// The step that it is in.
    pub step: Step,
    /// Milliseconds since it began.
    pub age_ms: u64,
    /// Bytes written so far, before compression.
    pub bytes: u64,
}
