//! What users ask about images of their jobs, and what an agent that holds them tells. The coordinator decides whose job
//! it is; the agent of the asking user's node reads, since its folders are open to nobody else.

use crate::agent::{CheckpointNumber, InstanceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One instance's part of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImageName {
    /// The instance.
    pub instance: InstanceId,
    /// The checkpoint.
    pub checkpoint: CheckpointNumber,
}

/// What is to be told of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Look {
    /// Whether every byte of it is what it was.
    Verify,
    /// What is in it.
    Inspect,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "kebab-case")]
pub enum Finding {
    /// Every byte is what it was.
    Whole {
        /// Different chunks.
        chunks: u64,
        /// Their length in bytes.
        bytes: u64,
    },
    /// It can't be restarted from.
    Damaged {
        /// One line.
        reason: String,
    },
    /// It is being written, or its writing was interrupted.
    Unfinished,
    /// It is not there, or not any more.
    Missing,
    /// What is in it: the commit mark, the graph, and the processes that live.
    Content {
        /// As `ckptd inspect --json` shows it.
        value: Value,
    },
    /// It was not looked at.
    Unread {
        /// One line.
        reason: String,
    },
}
crate::tagged!(Finding, "found");
