//! Bounds the bytes that are inside the pipeline, and remembers its first failure.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::error::StoreError;

/// A number of bytes that may be in use at once.
pub(super) struct Budget {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    free: usize,
    failure: Option<StoreError>,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self { state: Mutex::new(State { free: bytes, failure: None }), changed: Condvar::new() }
    }

    /// Waits until `bytes` are free and takes them; an error once the pipeline has failed.
    pub(super) fn take(&self, bytes: usize) -> Result<(), StoreError> {
        let mut state = self.state();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.free >= bytes {
                state.free -= bytes;
                return Ok(());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.state().free += bytes;
        self.changed.notify_all();
    }

    /// Ends all waiting. The first failure is the one that is told.
    pub(super) fn fail(&self, failure: StoreError) {
        self.state().failure.get_or_insert(failure);
        self.changed.notify_all();
    }

    pub(super) fn failure(&self) -> Option<StoreError> {
        self.state().failure.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fails the pipeline if a thread ends without saying that it is done.
pub(super) struct EndsEarly<'a>(Option<&'a Budget>);

impl<'a> EndsEarly<'a> {
    pub(super) fn watch(budget: &'a Budget) -> Self {
        Self(Some(budget))
    }

    pub(super) fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for EndsEarly<'_> {
    fn drop(&mut self) {
        if let Some(budget) = self.0 {
            budget.fail(StoreError::ThreadLost);
        }
    }
}
