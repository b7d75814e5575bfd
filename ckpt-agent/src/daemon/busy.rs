//! Images that are being copied or fetched: nothing may remove them meanwhile, and nobody fetches one
//! twice.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::agent::CheckpointNumber;

/// Which images.
#[derive(Debug, Clone, Default)]
pub struct Busy {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Copies that are being taken, or wait for their commit, by their instance's folder.
    taken: HashMap<PathBuf, CheckpointNumber>,
    fetching: HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>,
}

impl Busy {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is complete before the lock is given back.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy comes, or waits for its commit. It takes the place of an older one.
    pub fn take(&self, folder: &Path, checkpoint: CheckpointNumber) {
        self.state().taken.insert(folder.to_owned(), checkpoint);
    }

    /// It is committed, or could not be made.
    pub fn settle(&self, folder: &Path, checkpoint: CheckpointNumber) {
        let mut state = self.state();
        if state.taken.get(folder) == Some(&checkpoint) {
            state.taken.remove(folder);
        }
    }

    /// Whether a copy there must not be touched.
    #[must_use]
    pub fn is_taken(&self, folder: &Path) -> bool {
        let state = self.state();
        state.taken.contains_key(folder)
            || state.fetching.get(folder).is_some_and(|lock| lock.try_lock().is_err())
    }

    /// To be held while an image is fetched into that folder.
    #[must_use]
    pub fn fetching(&self, folder: &Path) -> Arc<tokio::sync::Mutex<()>> {
        let mut state = self.state();
        state.fetching.retain(|_, lock| Arc::strong_count(lock) > 1);
        state.fetching.entry(folder.to_owned()).or_default().clone()
    }
}
