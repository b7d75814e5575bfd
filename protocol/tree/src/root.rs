//! What the coordinator does for the command tree.

use crate::shape::hops;
use protocol::agent::CheckpointNumber;
use protocol::cluster::tree::{
    Operation, TreeAnswer, TreeCall, TreeCause, TreeFailure, TreeMark, TreeOrder, TreePlace,
    TreeStep, TreeSum,
};
use protocol::cluster::{Epoch, NodeName, Term};
use std::collections::{BTreeMap, BTreeSet};

/// Bits of a generation that are milliseconds: enough until the year 10889. Those above are the term.
const TIME_BITS: u32 = 48;

/// What is to be asked of all members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The job.
    pub job: String,
    /// Its epoch.
    pub epoch: Epoch,
    /// The checkpoint in flight.
    pub checkpoint: CheckpointNumber,
    /// The step.
    pub step: TreeStep,
}

/// How an operation came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What was asked.
    pub order: TreeOrder,
    /// What all have answered, or the first failure.
    pub result: Result<TreeSum, TreeFailure>,
}

#[derive(Debug)]
struct Flight {
    order: TreeOrder,
    /// The one whom the coordinator has called.
    first: NodeName,
    members: BTreeSet<NodeName>,
    instances: u32,
    limit_ms: u64,
    deadline: u64,
}

/// The coordinator's side of all operations. Times are nanoseconds on a clock that never goes back.
#[derive(Debug, Default)]
pub struct Root {
    generation: u64,
    number: u64,
    flights: BTreeMap<Operation, Flight>,
}

impl Root {
    /// Nothing is under way, and no generation has begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a generation: everything under way is given up without a word. The mark has still to be
    /// sealed and told to the members. The coordinator's term makes it newer than those of coordinators that
    /// were lost, `unix_ms`, from the clock on the wall, newer than those of this one before it was started
    /// again.
    pub fn reset(&mut self, term: Term, unix_ms: u64) -> TreeMark {
        let least =
            term.saturating_mul(1 << TIME_BITS).saturating_add(unix_ms.min((1 << TIME_BITS) - 1));
        self.generation = least.max(self.generation.saturating_add(1));
        self.number = 0;
        self.flights.clear();
        TreeMark { generation: self.generation, seal: None }
    }

    /// The mark of the generation that counts.
    #[must_use]
    pub fn mark(&self) -> TreeMark {
        TreeMark { generation: self.generation, seal: None }
    }

    /// Whether nothing is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    /// The generation that counts; 0 before the first reset.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Begins an operation over these places, of which there is at least one: the call that is to be sealed
    /// and sent to the first of them. They have `limit_ms` milliseconds for it; the lowest level
    /// has half of that.
    pub fn begin(
        &mut self,
        now: u64,
        wish: Wish,
        places: Vec<TreePlace>,
        limit_ms: u64,
    ) -> Option<TreeCall> {
        let first = places.first()?.node.clone();
        self.number = self.number.saturating_add(1);
        let operation = Operation { generation: self.generation, number: self.number };
        let Wish { job, epoch, checkpoint, step } = wish;
        let order = TreeOrder { operation, job, epoch, checkpoint, step };
        let instances = places.iter().map(|place| place.instances.len()).sum::<usize>();
        let margin_ms = limit_ms / (2 * (u64::from(hops(places.len())) + 1));
        let flight = Flight {
            order: order.clone(),
            first,
            members: places.iter().map(|place| place.node.clone()).collect(),
            instances: u32::try_from(instances).unwrap_or(u32::MAX),
            limit_ms,
            deadline: now.saturating_add(limit_ms.saturating_mul(1_000_000)),
        };
        self.flights.insert(operation, flight);
        let limit_ms = limit_ms.saturating_sub(margin_ms);
        Some(TreeCall { order, seal: None, places, limit_ms, margin_ms })
    }

    /// An answer has come from a node.
    pub fn answered(&mut self, node: &NodeName, answer: TreeAnswer) -> Option<Outcome> {
        let operation = answer.operation;
        let flight = self.flights.get(&operation).filter(|flight| flight.first == *node)?;
        let result = match answer.failures.into_iter().next() {
            Some(TreeFailure { node, cause, reason }) => Err(TreeFailure::new(node, cause, reason)),
            None if answer.sum.instances != flight.instances => Err(TreeFailure::new(
                node.clone(),
                TreeCause::Lost,
                format!("{} of {} instances have answered", answer.sum.instances, flight.instances),
            )),
            None => Ok(answer.sum),
        };
        let flight = self.flights.remove(&operation)?;
        Some(Outcome { order: flight.order, result })
    }

    /// A node can't be reached.
    pub fn lost(&mut self, node: &NodeName) -> Vec<Outcome> {
        let failed = |flight: &Flight| {
            flight.members.contains(node).then(|| {
                let reason = "the connection to it was lost".to_owned();
                TreeFailure::new(node.clone(), TreeCause::Lost, reason)
            })
        };
        self.fail_those(failed)
    }

    /// Those whose time is over fail.
    pub fn pass_time(&mut self, now: u64) -> Vec<Outcome> {
        self.fail_those(|flight| {
            (now >= flight.deadline).then(|| {
                let reason = format!("no answer in {} ms", flight.limit_ms);
                TreeFailure::new(flight.first.clone(), TreeCause::Lost, reason)
            })
        })
    }

    /// An instance of a job has come further with its checkpoint.
    pub fn progressed(&mut self, now: u64, job: &str, checkpoint: CheckpointNumber) {
        let flights = self.flights.values_mut();
        for flight in
            flights.filter(|known| known.order.job == job && known.order.checkpoint == checkpoint)
        {
            flight.deadline = now.saturating_add(flight.limit_ms.saturating_mul(1_000_000));
        }
    }

    /// The operation of a job is not wanted any more.
    pub fn forget(&mut self, job: &str) {
        self.flights.retain(|_, flight| flight.order.job != job);
    }

    /// When [`Root::pass_time`] is wanted.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.flights.values().map(|flight| flight.deadline).min()
    }

    fn fail_those(&mut self, failed: impl Fn(&Flight) -> Option<TreeFailure>) -> Vec<Outcome> {
        let hit: Vec<(Operation, TreeFailure)> = self
            .flights
            .iter()
            .filter_map(|(operation, flight)| Some((*operation, failed(flight)?)))
            .collect();
        hit.into_iter()
            .filter_map(|(operation, failure)| {
                let flight = self.flights.remove(&operation)?;
                Some(Outcome { order: flight.order, result: Err(failure) })
            })
            .collect()
    }
}
