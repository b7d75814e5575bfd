//! What traces show of a checkpoint as the coordinator sees it: a span of the whole, and one of each step within it.
//!
//! They are never entered, since a step ends on another event than the one on which it began. Nothing is decided by them.

use protocol::agent::{CheckpointNumber, Step};
use tracing::field::Empty;
use tracing::{Span, debug_span};

/// Those of one checkpoint; they end when this is dropped.
#[derive(Debug)]
pub(super) struct Spans {
    whole: Span,
    step: Span,
}

/// Where checkpoints stand is the same whoever watches.
impl PartialEq for Spans {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Spans {}

impl Spans {
    pub(super) fn begin(job: &str, number: CheckpointNumber, step: Step) -> Self {
        let whole =
            debug_span!(parent: None, "coordinate checkpoint", job, number, given_up = Empty);
        let step = of(step, &whole);
        Self { whole, step }
    }

    /// The step before has ended.
    pub(super) fn enter(&mut self, step: Step) {
        self.step = of(step, &self.whole);
    }

    /// There will be no such checkpoint.
    pub(super) fn give_up(&self, reason: &str) {
        self.whole.record("given_up", reason);
    }
}

/// The names of spans are constants.
fn of(step: Step, whole: &Span) -> Span {
    match step {
        Step::Freeze => debug_span!(parent: whole, "freeze"),
        Step::Drain => debug_span!(parent: whole, "drain"),
        Step::Quiesce => debug_span!(parent: whole, "quiesce"),
        Step::Snapshot => debug_span!(parent: whole, "snapshot"),
        Step::Resume => debug_span!(parent: whole, "resume"),
        Step::Write => debug_span!(parent: whole, "write"),
        Step::Commit => debug_span!(parent: whole, "commit"),
    }
}
