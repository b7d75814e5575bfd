//! What is known of images that go ahead of a job's move (`cluster/ahead.rs` sends them).

use crate::cluster::event::Now;
use crate::settings::SECOND;
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::NodeName;
use std::collections::{BTreeMap, BTreeSet};

/// Rounds, after which the job is parked whatever is still to come.
const MOST_ROUNDS: u32 = 4;
/// How long all of them may take, in nanoseconds.
const PATIENCE: u64 = 600 * SECOND;
/// The same where a machine leaves: it may be switched off whatever it was told, and a checkpoint by which the job is parked
/// is with its partner before.
const HASTE: u64 = 60 * SECOND;

/// What a job is to move for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cluster) enum Errand {
    /// Machines that leave or are drained.
    Away,
    /// Machines that get a share.
    Share,
}

/// An image, and the machine that is to have it.
pub(in crate::cluster) type Copy = (InstanceId, NodeName);

/// See the module.
#[derive(Debug)]
pub(in crate::cluster) struct Ahead {
    pub(in crate::cluster) errand: Errand,
    /// The checkpoint whose images go. It is kept meanwhile.
    pub(in crate::cluster) base: CheckpointNumber,
    /// Copies that are under way.
    pub(in crate::cluster) awaited: BTreeSet<Copy>,
    /// Machines that could not fetch one.
    pub(in crate::cluster) failed: BTreeSet<NodeName>,
    pub(in crate::cluster) rounds: u32,
    /// Checkpoints that were committed in this epoch, as far as they are known, in their order.
    pub(in crate::cluster) committed: Vec<CheckpointNumber>,
    is_hasty: bool,
    /// When the job is parked whatever is still to come.
    pub(in crate::cluster) until: u64,
    /// All is there for the checkpoint after the next one; until the next is committed nothing is to be done. What was
    /// known then: the newest committed one, and the one in flight.
    pub(in crate::cluster) waits: Option<(CheckpointNumber, Option<CheckpointNumber>)>,
    /// Whether the next checkpoint was brought forward since the last round.
    pub(in crate::cluster) hurried: bool,
}

impl Ahead {
    /// Of an epoch with these checkpoints.
    pub(in crate::cluster) fn new(
        now: Now,
        errand: Errand,
        base: CheckpointNumber,
        committed: Vec<CheckpointNumber>,
    ) -> Self {
        Self {
            errand,
            base,
            awaited: BTreeSet::new(),
            failed: BTreeSet::new(),
            rounds: 0,
            committed,
            is_hasty: false,
            until: now.nanos.saturating_add(PATIENCE),
            waits: None,
            hurried: false,
        }
    }

    /// A machine leaves.
    pub(in crate::cluster) fn hasten(&mut self, now: Now) {
        if !std::mem::replace(&mut self.is_hasty, true) {
            self.until = self.until.min(now.nanos.saturating_add(HASTE));
        }
    }

    /// Whether a checkpoint refers to what was sent already: there are two chains, and each checkpoint is of the other one
    /// than the one before.
    pub(in crate::cluster) fn goes_on(&self, base: CheckpointNumber) -> bool {
        let place = |wanted| self.committed.iter().position(|number| *number == wanted);
        match (place(self.base), place(base)) {
            (Some(sent), Some(base)) => sent.abs_diff(base) % 2 == 0,
            _ => true,
        }
    }

    /// The checkpoint that is kept for it.
    pub(in crate::cluster) fn base(&self) -> CheckpointNumber {
        self.base
    }

    /// When it wants the time: to be given up.
    pub(in crate::cluster) fn deadline(&self) -> Option<u64> {
        (!self.awaited.is_empty() || self.waits.is_some()).then_some(self.until)
    }

    /// Whether it has taken too long.
    pub(in crate::cluster) fn is_late(&self, now: Now) -> bool {
        now.nanos >= self.until
    }

    /// Whether there has been a round too many, or with the checkpoint that one was for.
    pub(in crate::cluster) fn has_had(&self, more: u32) -> bool {
        self.rounds >= MOST_ROUNDS + more
    }

    /// "2 images to node3, 1 to node4"
    pub(in crate::cluster) fn describe(&self) -> Option<String> {
        let mut counts: BTreeMap<&NodeName, usize> = BTreeMap::new();
        for (_, node) in &self.awaited {
            *counts.entry(node).or_default() += 1;
        }
        let texts: Vec<String> = counts
            .into_iter()
            .map(|(node, count)| {
                format!("{count} {} to {node}", if count == 1 { "image" } else { "images" })
            })
            .collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }
}
