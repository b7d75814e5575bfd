//! Keeping a job whose machines are about to go: a store that fails, such as one that is full, is tried again while there is
//! time.

use super::{Store, Unkept};
use crate::commands::Context;
use crate::interrupts::Interrupts;
use std::time::{Duration, Instant};

/// How long the last checkpoint of a job is tried to be kept: nothing else is left to do.
const LAST: Duration = Duration::from_secs(600);
/// How long after the first failure; twice as long after each more.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// But never longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Between two looks for a signal.
const LOOK: Duration = Duration::from_millis(100);

/// Keeps the job's newest checkpoint, its last one. A signal that would end the process ends the attempts.
///
/// # Errors
/// As the last attempt had it.
pub fn keep_last(context: &Context, store: &Store) -> Result<(), Unkept> {
    let mut interrupts = Interrupts::hold()?;
    let wait = |pause: Duration| {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if interrupts.came().is_some() {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    };
    persist(LAST, || store.keep(context), wait)
}

/// Has something kept by attempts within that time. `wait`: waits so long before another attempt, if there is to be one.
///
/// # Errors
/// As the last attempt had it.
fn persist(
    limit: Duration,
    mut attempt: impl FnMut() -> Result<(), Unkept>,
    mut wait: impl FnMut(Duration) -> bool,
) -> Result<(), Unkept> {
    let (begun, mut pause, mut is_told) = (Instant::now(), FIRST_PAUSE, false);
    loop {
        let failure = match attempt() {
            Err(Unkept::Failed(failure)) => failure,
            done => return done,
        };
        let left = limit.saturating_sub(begun.elapsed());
        if left <= pause {
            return Err(Unkept::Failed(failure));
        }
        if !std::mem::replace(&mut is_told, true) {
            eprintln!("ckptd: {failure}; it is tried again for {} s", left.as_secs());
        }
        if !wait(pause) {
            return Err(Unkept::Failed(failure));
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    fn full() -> Unkept {
        Unkept::Failed(Failure::of("keep it", "No space left on device"))
    }

    #[test]
    fn what_fails_is_tried_again_until_it_succeeds() {
        let (mut attempts, mut pauses) = (0, Vec::new());
        let attempt = || {
            attempts += 1;
            if attempts < 7 { Err(full()) } else { Ok(()) }
        };
        let wait = |pause: Duration| {
            pauses.push(pause.as_secs());
            true
        };
        persist(LAST, attempt, wait).unwrap();
        assert_eq!(pauses, [1, 2, 4, 8, 15, 15]);
    }

    #[test]
    fn attempts_end_with_the_time_or_a_signal() {
        let mut attempts = 0;
        let mut attempt = || {
            attempts += 1;
            Err(full())
        };
        persist(Duration::ZERO, &mut attempt, |_| panic!("there is no time for it")).unwrap_err();
        persist(LAST, &mut attempt, |_| false).unwrap_err();
        assert_eq!(attempts, 2);
        let interrupted = || Err(Unkept::Interrupted(Failure::of("keep it", "a signal")));
        persist(LAST, interrupted, |_| panic!("nobody wants it any more")).unwrap_err();
    }
}
