//! A line of the journal.

use ckptd_farm::Entry;
use serde::{Deserialize, Serialize};

/// A line of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    /// The first one.
    Opened {
        /// The version of the journal.
        format: u32,
        /// How many tasks there are.
        tasks: u32,
    },
    /// A part of the run has begun: tasks that had not ended by then run again.
    Part {
        /// When, in milliseconds since 1970 UTC.
        at_ms: u64,
        /// How many tasks run at a time.
        slots: u32,
    },
    /// Something has ended.
    Ended {
        /// When, in milliseconds since 1970 UTC.
        at_ms: u64,
        /// What.
        entry: Entry,
    },
}
