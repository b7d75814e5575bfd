//! What became of a job's rehearsals.

use protocol::control::Rehearsal;

/// What a job knows of rehearsals that were due.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Rehearsed {
    /// Checkpoints since the last one began.
    pub(in crate::cluster) since: u32,
    /// The newest one.
    pub(in crate::cluster) newest: Option<Rehearsal>,
    /// Why the last one failed, or came to nothing.
    pub(in crate::cluster) failure: Option<String>,
}

impl Rehearsed {
    pub(in crate::cluster) fn goes_on(&self) -> bool {
        self.newest.as_ref().is_some_and(|newest| newest.outcome.is_none())
    }
}
