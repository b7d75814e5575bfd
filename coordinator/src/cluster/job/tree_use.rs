//! How a job fares with the command tree.

use protocol::agent::CheckpointNumber;
use protocol::cluster::tree::TreeStep;

/// Checkpoints without the tree after it failed so often that more would not help, as a power of two.
const MOST_DOUBLINGS: u32 = 6;

/// What a job knows of its use of the tree.
#[derive(Debug, Default)]
pub(in crate::cluster) struct TreeUse {
    /// The newest step that went by it.
    pub(in crate::cluster) last: Option<(CheckpointNumber, TreeStep)>,
    /// Failures without a success in between.
    pub(in crate::cluster) failures: u32,
    /// Commits that have to come about without it.
    pub(in crate::cluster) pause: u32,
}

impl TreeUse {
    pub(in crate::cluster) fn failed(&mut self) {
        self.pause = 1 << self.failures.min(MOST_DOUBLINGS);
        self.failures = self.failures.saturating_add(1);
    }

    /// A checkpoint is committed.
    pub(in crate::cluster) fn committed(&mut self) {
        match self.pause {
            0 => self.failures = 0,
            _ => self.pause -= 1,
        }
    }
}
