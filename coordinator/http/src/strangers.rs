//! Connections over which nobody has shown a secret yet. Everybody on the machine can make them, so they have few places, and
//! whoever comes when all are taken is given that of the one that has been there longest: those who know the secret come in, unless
//! a crowd comes before they have said it, and stay.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The connections of strangers.
#[derive(Debug)]
pub struct Strangers {
    most: usize,
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    /// The one that has been there longest comes first.
    waiting: VecDeque<(u64, oneshot::Sender<()>)>,
}

/// A connection among them, until it is known or ends.
#[derive(Debug)]
pub struct Stranger {
    all: Arc<Strangers>,
    number: u64,
}

impl Strangers {
    /// With so many places.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, inside: Mutex::default() })
    }

    /// Takes a place. What is returned besides is ready once another needs it.
    pub fn enter(self: &Arc<Self>) -> (Stranger, oneshot::Receiver<()>) {
        let (leave, left) = oneshot::channel();
        let mut inside = self.inside();
        while inside.waiting.len() >= self.most {
            if let Some((_, longest)) = inside.waiting.pop_front() {
                // It may have ended just now.
                let _ = longest.send(());
            }
        }
        let number = inside.next;
        inside.next += 1;
        inside.waiting.push_back((number, leave));
        (Stranger { all: Arc::clone(self), number }, left)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No stranger any more. Its sender is gone then, which is no message to leave.
    fn forget(&self, number: u64) {
        self.inside().waiting.retain(|(other, _)| *other != number);
    }
}

impl Stranger {
    /// It has shown a secret.
    pub fn is_known(&self) {
        self.all.forget(self.number);
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.all.forget(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_known_keeps_its_place() {
        let strangers = Strangers::new(2);
        let (known, mut known_left) = strangers.enter();
        known.is_known();
        let (_first, mut first_left) = strangers.enter();
        let (second, mut second_left) = strangers.enter();
        let (_third, mut third_left) = strangers.enter();
        assert_eq!(first_left.try_recv(), Ok(()));
        drop(second);
        let (_fourth, mut fourth_left) = strangers.enter();
        for left in [&mut known_left, &mut second_left, &mut third_left, &mut fourth_left] {
            assert!(left.try_recv().is_err());
        }
    }
}
