//! What the log says of one job.

use super::keep;
use super::paths::Paths;
use coordinator::cluster::entry::{ImageRecord, InstanceRecord, RollbackRecord};
use protocol::agent::{CheckpointNumber, CommitRecord, ExitKind, InstanceId};
use protocol::cluster::agent::JobUser;
use protocol::launch::LaunchSpec;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// Checkpoints that are shown.
const MOST_CHECKPOINTS: usize = 240;
/// Recoveries and moves that are shown.
const MOST_STOPS: usize = 60;
/// Words of a command that are shown, and characters of each.
const MOST_WORDS: usize = 32;
const LONGEST_WORD: usize = 200;

/// A committed checkpoint, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checkpoint {
    /// Its number.
    pub number: CheckpointNumber,
    /// When the job stood still for it, in milliseconds since 1970 UTC.
    pub at: u64,
    /// When it was committed.
    pub committed: u64,
    /// The pause, in microseconds.
    pub pause_us: u64,
    /// Bytes of memory and files.
    pub bytes: u64,
    /// Bytes that it added to the store.
    pub stored: u64,
    /// Places in which it was durable when it was committed.
    pub copies: u32,
}

/// One job.
#[derive(Debug)]
pub struct JobLine {
    /// The name that its user knows it by.
    pub name: String,
    /// Its user.
    pub user: String,
    /// Its program and arguments.
    pub command: Vec<String>,
    /// When it was made, in milliseconds since 1970 UTC.
    pub created: u64,
    /// When it was over.
    pub over: Option<u64>,
    /// How it ended, in a few words.
    pub end: Option<String>,
    /// Its checkpoints.
    pub checkpoints: VecDeque<Checkpoint>,
    /// Its recoveries and moves.
    pub stops: VecDeque<RollbackRecord>,
    /// Where its processes have been.
    pub paths: Paths,
}

impl JobLine {
    pub(super) fn new(name: &str, user: &JobUser, launch: &LaunchSpec, created: u64) -> Self {
        let words = launch.program.iter().take(MOST_WORDS).map(|word| word.to_string_lossy());
        Self {
            name: name.to_owned(),
            user: user.name.clone(),
            command: words.map(|word| word.chars().take(LONGEST_WORD).collect()).collect(),
            created,
            over: None,
            end: None,
            checkpoints: VecDeque::new(),
            stops: VecDeque::new(),
            paths: Paths::since(created),
        }
    }

    pub(super) fn ended(&mut self, at: u64, status: Option<ExitKind>, reason: Option<&str>) {
        self.over = Some(at);
        self.end = Some(match (status, reason) {
            (Some(ExitKind::Exited(status)), _) => format!("ended with status {status}"),
            (Some(ExitKind::Signalled(signal)), _) => format!("ended by signal {signal}"),
            (None, Some(reason)) => reason.to_owned(),
            (None, None) => "at rest".to_owned(),
        });
        self.paths.end_all(at);
    }

    pub(super) fn epoch_begun(&mut self, from: Option<CheckpointNumber>, at: u64, again: bool) {
        (self.over, self.end) = (None, None);
        self.paths.epoch_begun(from, at, again);
    }

    pub(super) fn planned(&mut self, instances: &BTreeMap<InstanceId, InstanceRecord>) {
        self.paths.planned(instances);
    }

    pub(super) fn running(&mut self, rollback: Option<&RollbackRecord>) {
        let at = rollback.and_then(|record| record.running_ms);
        self.paths.running(rollback.map(|record| record.lost_at_ms), at);
        if let Some(record) = rollback {
            keep(&mut self.stops, MOST_STOPS, record.clone());
        }
    }

    pub(super) fn committed(
        &mut self,
        record: &CommitRecord,
        images: &BTreeMap<InstanceId, ImageRecord>,
    ) {
        let shown = Checkpoint {
            number: record.checkpoint,
            at: record.taken_at_ms,
            committed: record.committed_at_ms,
            pause_us: record.pause_us,
            bytes: record.summary.bytes,
            stored: record.summary.stored_bytes,
            copies: record.copies,
        };
        keep(&mut self.checkpoints, MOST_CHECKPOINTS, shown);
        self.paths.committed(record.checkpoint, record.taken_at_ms, images);
    }

    pub(super) fn collected(&mut self, kept: &[CheckpointNumber]) {
        self.paths.collected(kept);
    }
}
