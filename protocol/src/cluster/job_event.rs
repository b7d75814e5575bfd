//! What has happened to a job, as its user wants commands called then (`ckptd run --on`).

use super::NodeName;
use crate::agent::{CheckpointNumber, CommitRecord, ExitKind};
use crate::text;
use serde::{Deserialize, Serialize};

/// Processes that one event names at most.
pub const MOST_NAMED: usize = 256;

/// The longest reason that an event gives, in bytes.
const LONGEST_REASON: usize = 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEvent {
    /// When, in milliseconds since 1970 UTC; None: the log does not tell.
    pub at_ms: Option<u64>,
    /// What.
    pub what: Happening,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "kebab-case")]
pub enum Happening {
    /// A checkpoint is committed.
    Checkpoint {
        /// Its number.
        checkpoint: CheckpointNumber,
        /// Bytes of memory and files in it.
        bytes: u64,
        /// Bytes that it added to the store.
        stored_bytes: u64,
        /// For how long the job stood still, in microseconds.
        pause_us: u64,
        /// Places in which it is durable.
        copies: u32,
    },
    /// A checkpoint could not be taken.
    Failed {
        /// Its number, which is used up.
        checkpoint: CheckpointNumber,
        /// Why, in one line.
        reason: String,
    },
    /// A node that has processes of the job is gone.
    Lost {
        /// The node.
        node: NodeName,
        /// Its processes, as the newest checkpoint knows them.
        processes: Vec<Process>,
    },
    /// The job runs again: elsewhere, from a checkpoint, or both.
    Moved {
        /// Why, as `ckptd status --json` says it: `lost`, `leave`, `drain`, `join`, `speed` and others.
        reason: String,
        /// The node that it is about.
        node: Option<NodeName>,
        /// The checkpoint from which it went on; None: from its beginning.
        checkpoint: Option<CheckpointNumber>,
        /// Processes that are on another node now.
        moves: Vec<Moved>,
    },
    /// The job has ended.
    Ended {
        /// How; None: it was given up.
        status: Option<ExitKind>,
        /// Why it was given up.
        reason: Option<String>,
        /// Its newest checkpoint.
        checkpoint: Option<CheckpointNumber>,
    },
}
crate::tagged!(Happening, "event");

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number in its logical node.
    pub pid: i32,
    /// Its program's name.
    pub name: String,
}

/// A process that is on another node now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Its number in its logical node.
    pub pid: i32,
    /// Its program's name.
    pub name: String,
    /// The node where it was.
    pub from: NodeName,
    /// Where it is.
    pub to: NodeName,
}

impl Happening {
    /// That of a commit.
    #[must_use]
    pub fn committed(record: &CommitRecord) -> Self {
        Self::Checkpoint {
            checkpoint: record.checkpoint,
            bytes: record.summary.bytes,
            stored_bytes: record.summary.stored_bytes,
            pause_us: record.pause_us,
            copies: record.copies,
        }
    }

    /// That of a checkpoint that was given up.
    #[must_use]
    pub fn failed(checkpoint: CheckpointNumber, reason: &str) -> Self {
        Self::Failed { checkpoint, reason: shortened(reason) }
    }

    /// That of a job's end.
    #[must_use]
    pub fn ended(
        status: Option<ExitKind>,
        reason: Option<&str>,
        checkpoint: Option<CheckpointNumber>,
    ) -> Self {
        Self::Ended { status, reason: reason.map(shortened), checkpoint }
    }
}

fn shortened(reason: &str) -> String {
    text::cut(reason, LONGEST_REASON).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_cut_between_characters() {
        let long = "ä".repeat(LONGEST_REASON);
        let Happening::Failed { reason, .. } = Happening::failed(3, &format!("x{long}")) else {
            panic!("another event")
        };
        assert_eq!(reason.len(), LONGEST_REASON - 1);
    }

    #[test]
    fn the_wire_form_is_stable() {
        let event = JobEvent { at_ms: Some(7), what: Happening::failed(3, "slow") };
        let text = r#"{"at_ms":7,"what":{"event":"failed","checkpoint":3,"reason":"slow"}}"#;
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
        assert_eq!(crate::json::read::<JobEvent>(text.as_bytes()).unwrap(), event);
    }
}
