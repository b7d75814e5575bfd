//! What the pager's threads have to do.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::super::restore::Image;
use super::context::{Context, Stretch};

/// How long a thread waits for something to do before it looks by itself.
const LOOK: Duration = Duration::from_millis(25);

/// What the pager's threads have in common.
#[derive(Debug, Default)]
pub(super) struct Shared {
    work: Mutex<Work>,
    pub(super) changed: Condvar,
    pub(super) failure: OnceLock<String>,
    pub(super) is_failed: AtomicBool,
    pub(super) image: OnceLock<Image>,
}

#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) faults: VecDeque<(Arc<Context>, u64)>,
    /// Those of the job first, children behind their parents.
    pub(super) contexts: Vec<Arc<Context>>,
    /// Whether to fill what nobody waits for.
    pub(super) is_let_go: bool,
}

/// Something to be filled.
enum Task {
    Fault(Arc<Context>, u64),
    Rest(Arc<Context>, Stretch),
}

impl Shared {
    pub(super) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page can't be had: nothing is filled any more.
    pub(super) fn fail(&self, why: String) {
        let _ = self.failure.set(why);
        self.is_failed.store(true, Ordering::Release);
    }

    /// The next thing to do; `None`: nothing any more.
    fn next(&self) -> Option<Task> {
        let mut work = self.work();
        loop {
            if self.is_failed.load(Ordering::Acquire) {
                return None;
            }
            if let Some((context, address)) = work.faults.pop_front() {
                return Some(Task::Fault(context, address));
            }
            if work.is_let_go {
                let next = work
                    .contexts
                    .iter()
                    .find_map(|context| Some(Task::Rest(context.clone(), context.next()?)));
                if next.is_some() {
                    return next;
                }
            }
            let waited = self.changed.wait_timeout(work, LOOK);
            work = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A thread's life.
    pub(super) fn run(&self) {
        let Some(Image { reader, .. }) = self.image.get() else { return };
        let mut bytes = Vec::new();
        while let Some(task) = self.next() {
            let done = match task {
                Task::Fault(context, address) => context.serve(address, reader, &mut bytes),
                Task::Rest(context, stretch) => context.fill(stretch, reader, &mut bytes),
            };
            if let Err(error) = done {
                self.fail(error.to_string());
            }
        }
    }
}
