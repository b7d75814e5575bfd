//! So many at a time do something.

use std::sync::{Condvar, Mutex, PoisonError};

/// How many more may begin.
#[derive(Debug)]
pub struct Turns {
    left: Mutex<usize>,
    given_back: Condvar,
}

/// Given back when it is dropped.
#[derive(Debug)]
pub struct Turn<'a>(&'a Turns);

impl Turns {
    /// So many at a time.
    pub fn of(most: usize) -> Self {
        Self { left: Mutex::new(most), given_back: Condvar::new() }
    }

    /// Waits for a turn.
    pub fn take(&self) -> Turn<'_> {
        // What a panic elsewhere has left is still true.
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = self.given_back.wait_while(left, |left| *left == 0);
        *wait.unwrap_or_else(PoisonError::into_inner) -= 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.left.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.given_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn no_more_than_that_are_at_it() {
        let (turns, at_it, most) = (Turns::of(3), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let _turn = turns.take();
                    most.fetch_max(at_it.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    at_it.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert!((1..=3).contains(&most.load(Ordering::SeqCst)));
        assert_eq!(*turns.left.lock().unwrap(), 3);
    }
}
