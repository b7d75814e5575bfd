//! Who wants to know of each checkpoint while a job runs.

use protocol::agent::CheckpointNumber;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

/// Is called with the number of each checkpoint that is committed. It must not block: the job's output waits for it.
#[derive(Clone)]
pub struct OnCommit(Arc<dyn Fn(CheckpointNumber) + Send + Sync>);

impl OnCommit {
    /// By a function.
    pub fn new(tell: impl Fn(CheckpointNumber) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// One is committed.
    pub fn tell(&self, checkpoint: CheckpointNumber) {
        (self.0)(checkpoint);
    }
}

impl Debug for OnCommit {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str("OnCommit")
    }
}
