//! An epoch that is being made: its stage, what instances have brought to it, and what was learnt before it.

use super::damaged::DamagedCopies;
use crate::cluster::entry::{Cause, DepartedDaemon, RollbackRecord};
use crate::cluster::event::Now;
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::agent::{OuterSocket, RelaySide};
use std::collections::{BTreeMap, BTreeSet};
use tracing::Span;

/// What instances bring to a stage, one by one.
#[derive(Debug)]
pub(super) struct Gathering<T> {
    awaited: BTreeSet<InstanceId>,
    brought: BTreeMap<InstanceId, T>,
}

impl<T> Gathering<T> {
    /// Of all of these.
    pub(super) fn of(awaited: impl Iterator<Item = InstanceId>) -> Self {
        Self { awaited: awaited.collect(), brought: BTreeMap::new() }
    }

    /// One that has not brought its part yet.
    pub(super) fn next_awaited(&self) -> Option<InstanceId> {
        self.awaited.first().copied()
    }

    fn arrive(&mut self, instance: InstanceId, part: T) -> Arrival<T> {
        if !self.awaited.remove(&instance) {
            return Arrival::Stale;
        }
        self.brought.insert(instance, part);
        match self.awaited.is_empty() {
            true => Arrival::Last(std::mem::take(&mut self.brought)),
            false => Arrival::Counted,
        }
    }
}

/// What an instance's part has led to.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cluster) enum Arrival<T> {
    /// Nobody waits for it: agents say a thing once more after a reconnection, and may say it after the epoch was
    /// given up.
    Stale,
    /// Others are still awaited.
    Counted,
    /// It was the last: what all of them have brought.
    Last(BTreeMap<InstanceId, T>),
}

/// How far the making of an epoch is.
#[derive(Debug)]
pub(super) enum Stage {
    /// Machines that have not said yet that nothing older is left on them.
    Killing { awaited: BTreeSet<NodeName>, warned: bool },
    /// For machines or images.
    Waiting { reason: String },
    /// The first instance is being started.
    Launching,
    /// Images are on their way. Each brings the sockets whose peers are elsewhere.
    Preparing(Gathering<Vec<OuterSocket>>),
    /// Instances are being restored. Each brings the sides of relays that it has.
    Restoring(Gathering<RelayEnds>),
    /// Instances are being let go.
    Starting(Gathering<()>),
}

/// What the attempts at an epoch have taught; the next one begins with it.
#[derive(Debug, Clone, Default)]
pub(super) struct Attempts {
    /// Times in a row that machines failed to make it.
    pub(super) failed: u32,
    /// Machines that failed: others are taken, where there are any.
    pub(super) avoid: BTreeSet<NodeName>,
    /// Copies of images that turned out to be damaged.
    pub(super) damaged: DamagedCopies,
    /// Of whom the user was told last that they are not restored: a second try need not repeat it.
    pub(super) told_departed: Vec<DepartedDaemon>,
    /// Whether the user wants it even where files differ from those of the checkpoint.
    pub(super) force: bool,
}

/// What an epoch begins with.
#[derive(Debug)]
pub(in crate::cluster) struct Beginning {
    pub(in crate::cluster) cause: Cause,
    pub(in crate::cluster) checkpoint: Option<CheckpointNumber>,
    /// Rollbacks without a commit, this one included.
    pub(in crate::cluster) failures: u32,
    /// What is known of the way so far.
    pub(in crate::cluster) record: RollbackRecord,
    /// What is known from attempts before.
    pub(super) attempts: Attempts,
}

impl Beginning {
    /// For a cause that came to be known just now.
    pub(in crate::cluster) fn of(
        now: Now,
        cause: Cause,
        checkpoint: Option<CheckpointNumber>,
    ) -> Self {
        let expected = cause.expected();
        let nodes = Some(cause.nodes()).filter(|nodes| nodes.len() > 1).unwrap_or_default();
        let record = RollbackRecord {
            reason: cause.word().to_owned(),
            node: cause.node().cloned(),
            nodes,
            expected,
            checkpoint,
            lost_at_ms: now.unix_ms,
            declared_ms: now.unix_ms,
            ..RollbackRecord::default()
        };
        Self { cause, checkpoint, failures: 0, record, attempts: Attempts::default() }
    }

    /// The same, where the user may want it even if files differ from those of the checkpoint.
    pub(in crate::cluster) fn forced(mut self, force: bool) -> Self {
        self.attempts.force = force;
        self
    }
}

/// An epoch that is being made.
#[derive(Debug)]
pub(in crate::cluster) struct Making {
    pub(super) stage: Stage,
    /// When the stage has taken too long.
    pub(super) deadline: Option<u64>,
    pub(super) record: RollbackRecord,
    pub(super) attempts: Attempts,
    /// What traces show of it.
    pub(super) span: Span,
}

/// The sides of relays that an instance has.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cluster) struct RelayEnds {
    /// All of them.
    pub(in crate::cluster) sides: Vec<RelaySide>,
    /// Those out of which comes what processes have written.
    pub(in crate::cluster) outputs: Vec<RelaySide>,
}

impl Making {
    /// When the stage has taken too long, by the coordinator's clock.
    pub(in crate::cluster) fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    /// Whether whoever is attached has seen output that this epoch takes back: not where the job stood still behind
    /// its checkpoint, and not where a user starts it again.
    pub(in crate::cluster) fn takes_back_output(&self) -> bool {
        self.record.reason != "restart" && !self.record.is_move()
    }

    /// One more attempt, which knows what this one has learnt.
    pub(super) fn again(
        &self,
        cause: Cause,
        checkpoint: Option<CheckpointNumber>,
        failures: u32,
    ) -> Beginning {
        let (record, attempts) = (self.record.clone(), self.attempts.clone());
        Beginning { cause, checkpoint, failures, record, attempts }
    }

    /// A machine has nothing older any more, or is gone.
    pub(super) fn killed(&mut self, node: &NodeName) {
        if let Stage::Killing { awaited, .. } = &mut self.stage {
            awaited.remove(node);
        }
    }

    /// Whether nothing older is left anywhere, and nothing more was done yet.
    pub(super) fn has_killed(&self) -> bool {
        matches!(&self.stage, Stage::Killing { awaited, .. } if awaited.is_empty())
    }

    /// Whether machines or images are waited for.
    pub(in crate::cluster) fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting { .. })
    }

    /// Whether the job moves away from members that are drained.
    pub(in crate::cluster) fn leaves_drained(&self) -> bool {
        self.record.leaves_drained()
    }

    /// Whether the job's first process is being started.
    pub(super) fn is_launching(&self) -> bool {
        matches!(self.stage, Stage::Launching)
    }

    /// An image is where it is needed; its sockets whose peers are elsewhere.
    pub(super) fn prepared(
        &mut self,
        instance: InstanceId,
        sockets: Vec<OuterSocket>,
    ) -> Arrival<Vec<OuterSocket>> {
        match &mut self.stage {
            Stage::Preparing(images) => images.arrive(instance, sockets),
            _ => Arrival::Stale,
        }
    }

    /// An instance is complete and stands still; the sides of relays that it has.
    pub(super) fn restored(&mut self, instance: InstanceId, ends: RelayEnds) -> Arrival<RelayEnds> {
        match &mut self.stage {
            Stage::Restoring(instances) => instances.arrive(instance, ends),
            _ => Arrival::Stale,
        }
    }

    /// An instance runs.
    pub(super) fn runs(&mut self, instance: InstanceId) -> Arrival<()> {
        match &mut self.stage {
            Stage::Starting(instances) => instances.arrive(instance, ()),
            _ => Arrival::Stale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Arrival, Gathering};
    use protocol::agent::InstanceId;
    use std::collections::BTreeMap;

    #[test]
    fn each_part_counts_once_and_the_last_brings_all() {
        let (one, two) = (InstanceId(1), InstanceId(2));
        let mut gathering = Gathering::of([one, two].into_iter());
        assert_eq!(gathering.arrive(InstanceId(3), "stranger"), Arrival::Stale);
        assert_eq!(gathering.arrive(one, "first"), Arrival::Counted);
        assert_eq!(gathering.arrive(one, "again"), Arrival::Stale);
        assert_eq!(gathering.next_awaited(), Some(two));
        let all = BTreeMap::from([(one, "first"), (two, "second")]);
        assert_eq!(gathering.arrive(two, "second"), Arrival::Last(all));
        assert_eq!(gathering.next_awaited(), None);
        assert_eq!(gathering.arrive(two, "second"), Arrival::Stale);
    }
}
