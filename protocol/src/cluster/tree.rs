//! The command tree: steps of a checkpoint that agents pass on to each other, and their answers, put
//! together on the way back.
//!
//! The coordinator calls the first member. Whoever is called keeps the front half of its places, rounded up,
//! calls the first of the back half with these, and does so again until only its own place is left. So
//! no member knows more of an operation than its own subtree, and `n` members are reached in
//! `ceil(log2 n)` hops, where a hop is the time in which a member sends one message.

use super::{Epoch, NodeName};
use crate::agent::{AgentCommand, CheckpointNumber, InstanceId, Step};
use crate::text;
use crate::transport::{Seal, Sealer, TransportError, Trust};
use serde::{Deserialize, Serialize};

/// Failures that one answer names; more are left out.
pub const MOST_FAILURES: usize = 16;
/// Bytes of a failure's reason; what is longer is cut.
pub const LONGEST_REASON: usize = 512;
/// Places of one call.
pub const MOST_PLACES: usize = 16_384;

/// One operation of a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Operation {
    /// Grows with each reset. Of an older one nothing counts.
    pub generation: u64,
    /// Grows with each operation of a generation.
    pub number: u64,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.generation, self.number)
    }
}

/// The steps that may come from another agent: those for which a job stands still, and no other order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreeStep {
    /// [`AgentCommand::Freeze`].
    Freeze,
    /// [`AgentCommand::Quiesce`].
    Quiesce,
    /// [`AgentCommand::Snapshot`].
    Snapshot,
    /// [`AgentCommand::Resume`].
    Resume,
}

impl TreeStep {
    /// The step and checkpoint of a command, if it may go by the tree.
    #[must_use]
    pub fn of(command: &AgentCommand) -> Option<(Self, CheckpointNumber)> {
        match command {
            AgentCommand::Freeze { checkpoint } => Some((Self::Freeze, *checkpoint)),
            AgentCommand::Quiesce { checkpoint } => Some((Self::Quiesce, *checkpoint)),
            AgentCommand::Snapshot { checkpoint } => Some((Self::Snapshot, *checkpoint)),
            AgentCommand::Resume { checkpoint } => Some((Self::Resume, *checkpoint)),
            _ => None,
        }
    }

    /// What an instance is told.
    #[must_use]
    pub fn command(self, checkpoint: CheckpointNumber) -> AgentCommand {
        match self {
            Self::Freeze => AgentCommand::Freeze { checkpoint },
            Self::Quiesce => AgentCommand::Quiesce { checkpoint },
            Self::Snapshot => AgentCommand::Snapshot { checkpoint },
            Self::Resume => AgentCommand::Resume { checkpoint },
        }
    }

    /// As a step of a checkpoint.
    #[must_use]
    pub fn step(self) -> Step {
        match self {
            Self::Freeze => Step::Freeze,
            Self::Quiesce => Step::Quiesce,
            Self::Snapshot => Step::Snapshot,
            Self::Resume => Step::Resume,
        }
    }
}

/// What is to be done: what the coordinator seals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeOrder {
    /// Its number.
    pub operation: Operation,
    /// The job.
    pub job: String,
    /// The job's epoch.
    pub epoch: Epoch,
    /// The checkpoint in flight.
    pub checkpoint: CheckpointNumber,
    /// The step.
    pub step: TreeStep,
}

/// One member, and its instances that take part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreePlace {
    /// The node.
    pub node: NodeName,
    /// Those of its instances that take the step.
    pub instances: Vec<InstanceId>,
}

/// An order on its way down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeCall {
    /// The order.
    pub order: TreeOrder,
    /// By which it is known to be the coordinator's; None only before that has sealed it.
    pub seal: Option<Seal>,
    /// The subtree: the one who is called first.
    pub places: Vec<TreePlace>,
    /// Milliseconds that the subtree has for its answer.
    pub limit_ms: u64,
    /// By how much less each level has than the one above, so that it is the lowest one that tells who is
    /// silent.
    pub margin_ms: u64,
}

/// What the instances of a subtree have answered, put together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeSum {
    /// Instances that have done it.
    pub instances: u32,
    /// Processes, of a freeze.
    pub processes: u32,
    /// Threads, of a freeze.
    pub threads: u32,
    /// The longest pause, of a resume, in microseconds.
    pub pause_us: u64,
}

impl TreeSum {
    /// Adds another part of the tree.
    pub fn add(&mut self, other: &TreeSum) {
        self.instances = self.instances.saturating_add(other.instances);
        self.processes = self.processes.saturating_add(other.processes);
        self.threads = self.threads.saturating_add(other.threads);
        self.pause_us = self.pause_us.max(other.pause_us);
    }
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreeCause {
    /// The member, or the way to it, is gone or silent: of the tree, not of the job.
    Lost,
    /// The step failed there, and the job has been let go there.
    Step {
        /// Whether the checkpoint may well succeed a moment later.
        passing: bool,
    },
}

/// Who failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeFailure {
    /// The member.
    pub node: NodeName,
    /// How.
    pub cause: TreeCause,
    /// One line.
    pub reason: String,
}

impl TreeFailure {
    /// One whose reason is short enough to be sent.
    #[must_use]
    pub fn new(node: NodeName, cause: TreeCause, mut reason: String) -> Self {
        reason.truncate(text::cut(&reason, LONGEST_REASON).len());
        Self { node, cause, reason }
    }
}

/// The answer of a subtree: of all its instances, or, at once, of the first failures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeAnswer {
    /// The operation.
    pub operation: Operation,
    /// Who failed, at most [`MOST_FAILURES`]; none: everybody has done it.
    pub failures: Vec<TreeFailure>,
    /// What those who have done it say.
    pub sum: TreeSum,
}

/// Nothing that was sent before it over the same connection counts any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeMark {
    /// The generation that begins.
    pub generation: u64,
    /// By which it is known to be the coordinator's; None for 0, in which nothing has been ordered yet.
    pub seal: Option<Seal>,
}

impl TreeMark {
    /// The same with a seal.
    ///
    /// # Errors
    /// As [`Sealer::seal`].
    pub fn sealed(&self, sealer: &Sealer) -> Result<Self, TransportError> {
        let seal = Some(sealer.seal(&("generation", self.generation))?);
        Ok(Self { generation: self.generation, seal })
    }
}

impl TreeMessage {
    /// Whether what only the coordinator may say is sealed by it.
    ///
    /// # Errors
    /// Where it is not.
    pub fn check(&self, trust: &Trust) -> Result<(), TransportError> {
        match self {
            Self::Call(call) => trust.check(call.seal.as_ref(), &call.order),
            // In which nothing has been ordered.
            Self::Mark(TreeMark { generation: 0, .. }) => Ok(()),
            Self::Mark(mark) => trust.check(mark.seal.as_ref(), &("generation", mark.generation)),
            Self::Answer(_) | Self::Progress(_) => Ok(()),
        }
    }
}

/// Between the members of the tree, over a connection that serves nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreeMessage {
    /// From whoever made the connection.
    Call(TreeCall),
    /// Back to it.
    Answer(TreeAnswer),
    /// Back to it: below, the operation goes on.
    Progress(Operation),
    /// The first message of both sides, and of each generation.
    Mark(TreeMark),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{Authority, Role};

    /// What only the coordinator may say is its own in every field.
    #[test]
    fn what_is_sealed_cannot_be_changed() {
        let folder = tempfile::tempdir().unwrap();
        let credentials =
            Authority::open(folder.path()).unwrap().issue(&Role::Coordinator).unwrap();
        let sealer = Sealer::new(&credentials).unwrap();
        let trust = Trust::in_authority(credentials.authority().clone());
        let operation = Operation { generation: 9, number: 4 };
        let (job, step) = ("job-1".to_owned(), TreeStep::Freeze);
        let order = TreeOrder { operation, job, epoch: 3, checkpoint: 4, step };
        let seal = Some(sealer.seal(&order).unwrap());
        let call = |order| {
            let (seal, places) = (seal.clone(), Vec::new());
            TreeMessage::Call(TreeCall { order, seal, places, limit_ms: 1, margin_ms: 1 })
        };
        call(order.clone()).check(&trust).unwrap();
        for changed in [
            TreeOrder { operation: Operation { number: 5, ..operation }, ..order.clone() },
            TreeOrder { operation: Operation { generation: 8, ..operation }, ..order.clone() },
            TreeOrder { job: "job-2".into(), ..order.clone() },
            TreeOrder { epoch: 4, ..order.clone() },
            TreeOrder { checkpoint: 5, ..order.clone() },
            TreeOrder { step: TreeStep::Resume, ..order },
        ] {
            call(changed).check(&trust).unwrap_err();
        }
        let mark = TreeMark { generation: 9, seal: None };
        TreeMessage::Mark(mark.clone()).check(&trust).unwrap_err();
        let mark = mark.sealed(&sealer).unwrap();
        TreeMessage::Mark(mark.clone()).check(&trust).unwrap();
        let later = TreeMark { generation: 10, ..mark };
        TreeMessage::Mark(later).check(&trust).unwrap_err();
    }
}
