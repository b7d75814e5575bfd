//! A checkpoint waits until all memory of a job is filled that was brought back on demand.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::EngineError;

/// How long nothing may be filled before a checkpoint is given up.
const WITHOUT_PROGRESS: Duration = Duration::from_secs(30);

/// How far a job's memory is filled.
#[derive(Debug, Clone, Default)]
pub struct Filling(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    is_going_on: bool,
    bytes: u64,
}

impl Filling {
    /// It goes on, or there is nothing to be filled.
    pub fn is_going_on(&self, is_going_on: bool) {
        self.state().is_going_on = is_going_on;
        self.0.1.notify_all();
    }

    /// So many bytes are filled.
    pub fn has(&self, bytes: u64) {
        self.state().bytes = bytes;
        self.0.1.notify_all();
    }

    /// Waits until it is over; `count` is told of bytes as they are filled.
    ///
    /// # Errors
    /// [`EngineError::TooLong`] where it does not get on.
    pub fn wait(&self, count: impl Fn(u64)) -> Result<(), EngineError> {
        let mut state = self.state();
        let mut seen = state.bytes;
        while state.is_going_on {
            let waited = self.0.1.wait_timeout_while(state, WITHOUT_PROGRESS, |state| {
                state.is_going_on && state.bytes <= seen
            });
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                return Err(EngineError::TooLong {
                    what: "filling the job's memory, in which it runs already,".into(),
                    limit_ms: WITHOUT_PROGRESS.as_millis() as u64,
                });
            }
            count(now.bytes.saturating_sub(seen));
            seen = now.bytes;
            state = now;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn whoever_waits_hears_of_each_byte() {
        let filling = Filling::default();
        filling.wait(|_| panic!("nothing is filled")).unwrap();
        filling.is_going_on(true);
        let other = filling.clone();
        let counted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                filling.wait(|bytes| {
                    counted.fetch_add(bytes, Ordering::Relaxed);
                })
            });
            while counted.load(Ordering::Relaxed) < 10 {
                let bytes = other.state().bytes + 1;
                other.has(bytes);
                std::thread::sleep(Duration::from_millis(1));
            }
            other.is_going_on(false);
            waiting.join().unwrap().unwrap();
        });
    }
}
