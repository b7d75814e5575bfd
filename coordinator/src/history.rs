//! What the coordinator's log says of a job.

use protocol::agent::{CheckpointNumber, CommitRecord, ExitKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One entry of the coordinator's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "kebab-case")]
pub enum Entry {
    /// The first entry of a log.
    Opened {
        /// Version of the log, [`crate::log::FORMAT`].
        format: u32,
        /// The job's id.
        job: String,
    },
    /// The job's processes run.
    Started {
        /// When, in milliseconds since 1970 UTC.
        at_ms: u64,
        /// The checkpoint that it was restored from; None for a new job.
        restored_from: Option<CheckpointNumber>,
    },
    /// A checkpoint was begun; its number is used up.
    Begun {
        /// Its number.
        checkpoint: CheckpointNumber,
    },
    /// A checkpoint was given up.
    Abandoned {
        /// Its number.
        checkpoint: CheckpointNumber,
        /// Why, in one line.
        reason: String,
        /// It passes: another one is taken soon, for the same callers.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// A checkpoint was committed.
    Committed(CommitRecord),
    /// All committed checkpoints but these were given to the collection.
    Collected {
        /// Those that stay, in rising order.
        kept: Vec<CheckpointNumber>,
    },
    /// The job ended.
    Ended {
        /// When, in milliseconds since 1970 UTC.
        at_ms: u64,
        /// How; None where it was lost with its agent.
        status: Option<ExitKind>,
        /// Whether somebody had asked for the end.
        asked: bool,
    },
}
protocol::tagged!(Entry, "entry");

/// How a job came to its last known end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When, in milliseconds since 1970 UTC.
    pub at_ms: u64,
    /// How; None where it was lost with its agent.
    pub status: Option<ExitKind>,
    /// Whether somebody had asked for the end.
    pub asked: bool,
}

/// Where a committed checkpoint stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommittedState {
    /// On the way that led to the job as it is.
    Current,
    /// Newer than the one that the job was restored from: stays until the next commit.
    Superseded,
}

/// What is known of a job from its log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    committed: BTreeMap<CheckpointNumber, CommitRecord>,
    superseded: BTreeSet<CheckpointNumber>,
    highest: CheckpointNumber,
    starts: u64,
    started_at_ms: Option<u64>,
    restored_from: Option<CheckpointNumber>,
    end: Option<End>,
    last_abandoned: Option<(CheckpointNumber, String)>,
}

impl History {
    /// Takes one more entry into account.
    pub fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Opened { .. } => {}
            Entry::Started { at_ms, restored_from } => {
                self.starts = self.starts.saturating_add(1);
                self.started_at_ms = Some(*at_ms);
                self.restored_from = *restored_from;
                self.end = None;
                if let Some(from) = restored_from {
                    self.superseded =
                        self.committed.keys().copied().filter(|number| number > from).collect();
                }
            }
            Entry::Begun { checkpoint } => self.highest = self.highest.max(*checkpoint),
            Entry::Abandoned { checkpoint, reason, .. } => {
                self.highest = self.highest.max(*checkpoint);
                self.last_abandoned = Some((*checkpoint, reason.clone()));
            }
            Entry::Committed(record) => {
                self.highest = self.highest.max(record.checkpoint);
                self.superseded.remove(&record.checkpoint);
                self.committed.insert(record.checkpoint, record.clone());
            }
            Entry::Collected { kept } => {
                self.committed.retain(|number, _| kept.contains(number));
                self.superseded.retain(|number| kept.contains(number));
            }
            Entry::Ended { at_ms, status, asked } => {
                self.end = Some(End { at_ms: *at_ms, status: *status, asked: *asked });
            }
        }
    }

    /// Makes sure that a number found elsewhere, such as a folder of an unfinished checkpoint, is
    /// never given again.
    pub fn reserve(&mut self, number: CheckpointNumber) {
        self.highest = self.highest.max(number);
    }

    /// The number of the next checkpoint.
    #[must_use]
    pub fn next_number(&self) -> CheckpointNumber {
        self.highest.saturating_add(1)
    }

    /// All committed checkpoints that have not been collected, in rising order.
    pub fn committed(&self) -> impl DoubleEndedIterator<Item = (&CommitRecord, CommittedState)> {
        self.committed.values().map(|record| {
            let state = if self.superseded.contains(&record.checkpoint) {
                CommittedState::Superseded
            } else {
                CommittedState::Current
            };
            (record, state)
        })
    }

    /// One committed checkpoint.
    #[must_use]
    pub fn record(&self, checkpoint: CheckpointNumber) -> Option<&CommitRecord> {
        self.committed.get(&checkpoint)
    }

    /// The newest committed checkpoint.
    #[must_use]
    pub fn newest(&self) -> Option<&CommitRecord> {
        self.committed.values().next_back()
    }

    /// The checkpoints that stay after a commit when so many are to be kept: the newest ones on
    /// the way to the job as it is, at least one.
    #[must_use]
    pub fn retained(&self, keep: usize) -> Vec<CheckpointNumber> {
        let mut kept: Vec<CheckpointNumber> = self
            .committed
            .keys()
            .rev()
            .filter(|number| !self.superseded.contains(number))
            .take(keep.max(1))
            .copied()
            .collect();
        kept.reverse();
        kept
    }

    /// How often the job was started or restored.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// When it was last started or restored, in milliseconds since 1970 UTC.
    #[must_use]
    pub fn started_at_ms(&self) -> Option<u64> {
        self.started_at_ms
    }

    /// The checkpoint that it was last restored from.
    #[must_use]
    pub fn restored_from(&self) -> Option<CheckpointNumber> {
        self.restored_from
    }

    /// How it ended since it was last started, if that was seen.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The last checkpoint that was given up, and why.
    #[must_use]
    pub fn last_abandoned(&self) -> Option<(CheckpointNumber, &str)> {
        self.last_abandoned.as_ref().map(|(number, reason)| (*number, reason.as_str()))
    }
}
