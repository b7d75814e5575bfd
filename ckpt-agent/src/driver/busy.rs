//! Images that are being copied or fetched: nothing may remove them meanwhile, and nobody fetches one
//! twice.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::agent::CheckpointNumber;
use tokio::sync::OwnedMutexGuard;

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

    /// A copy comes, or waits for its commit. It takes the place of an older one. Waits for whoever removes or
    /// fetches something there.
    pub async fn take(&self, folder: &Path, checkpoint: CheckpointNumber) {
        let lock = self.fetching(folder);
        let _alone = lock.lock().await;
        self.state().taken.insert(folder.to_owned(), checkpoint);
    }

    /// An image that is here is being marked as committed. A newer copy that comes keeps its place.
    pub fn await_commit(&self, folder: &Path, checkpoint: CheckpointNumber) {
        self.state().taken.entry(folder.to_owned()).or_insert(checkpoint);
    }

    /// It is committed, or could not be made.
    pub fn end_commit(&self, folder: &Path, checkpoint: CheckpointNumber) {
        let mut state = self.state();
        if state.taken.get(folder) == Some(&checkpoint) {
            state.taken.remove(folder);
        }
    }

    /// To be held from the decision what goes there until it is gone: who comes in between would lose what is
    /// not complete yet. None: a copy there must not be touched.
    #[must_use]
    pub fn removing(&self, folder: &Path) -> Option<OwnedMutexGuard<()>> {
        let mut state = self.state();
        if state.taken.contains_key(folder) {
            return None;
        }
        state.fetching.entry(folder.to_owned()).or_default().clone().try_lock_owned().ok()
    }

    /// To be held while an image is fetched into that folder.
    #[must_use]
    pub fn fetching(&self, folder: &Path) -> Arc<tokio::sync::Mutex<()>> {
        let mut state = self.state();
        state.fetching.retain(|_, lock| Arc::strong_count(lock) > 1);
        state.fetching.entry(folder.to_owned()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn nothing_comes_while_something_is_removed_and_nothing_is_removed_while_something_comes()
    {
        let (busy, folder) = (Busy::default(), Path::new("/nowhere/1"));
        let removal = busy.removing(folder).unwrap();
        assert!(busy.removing(folder).is_none());
        assert!(timeout(SHORT, busy.take(folder, 3)).await.is_err());
        let lock = busy.fetching(folder);
        assert!(timeout(SHORT, lock.lock()).await.is_err());
        drop(removal);
        {
            let _fetched = lock.lock().await;
            assert!(busy.removing(folder).is_none());
        }
        busy.take(folder, 3).await;
        busy.end_commit(folder, 2);
        assert!(busy.removing(folder).is_none());
        assert!(busy.removing(Path::new("/nowhere/2")).is_some());
        busy.end_commit(folder, 3);
        assert!(busy.removing(folder).is_some());
    }
}
