//! What waits to be sent over a line of the command tree.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::cluster::tree::TreeMessage;
use tokio::sync::Notify;

/// Messages that may wait for a line; one that takes none of so many is as good as gone.
const MOST_WAITING: usize = 1024;

/// What waits to be sent over a line. The line is closed by dropping it.
#[derive(Debug)]
pub struct Queue(Arc<Waiting>);

#[derive(Debug, Default)]
pub(super) struct Waiting {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<TreeMessage>,
    closed: bool,
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is complete before the lock is given back.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None: nothing more comes.
    pub(super) async fn next(&self) -> Option<TreeMessage> {
        loop {
            {
                let mut state = self.state();
                if state.closed {
                    return None;
                }
                if let Some(message) = state.messages.pop_front() {
                    return Some(message);
                }
            }
            self.changed.notified().await;
        }
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_one();
    }
}

impl Queue {
    /// The sending side of what waits.
    pub(super) fn of(waiting: Arc<Waiting>) -> Self {
        Self(waiting)
    }

    /// Has a message sent behind those that wait.
    pub fn push(&self, message: TreeMessage) {
        let mut state = self.0.state();
        state.messages.push_back(message);
        state.closed |= state.messages.len() > MOST_WAITING;
        drop(state);
        self.0.changed.notify_one();
    }

    /// Drops what waits.
    pub fn clear(&self) {
        self.0.state().messages.clear();
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.0.close();
    }
}
