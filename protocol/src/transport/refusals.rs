//! Lines in the log about who was refused: a stranger can't fill the disk with them, nor with the words of one.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::task;

/// How long refusals are counted together.
const PERIOD: Duration = Duration::from_secs(60);
/// Lines within it, of one port.
const MOST_LINES: u32 = 30;
/// Of a reason, which may have a name in it that the other side made up.
const MOST_CHARACTERS: usize = 300;

/// Tells of refusals at one port. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Refusals(Arc<Mutex<Tally>>);

impl Refusals {
    /// Logs a refusal; after many, counts it for the line that ends the period. Within a tokio run time.
    pub fn tell(&self, remote: SocketAddr, reason: &dyn Display) {
        let counted = self.tally().count();
        if counted.begins {
            let tally = self.clone();
            task::spawn(async move {
                tokio::time::sleep(PERIOD).await;
                tally.end();
            });
        }
        if counted.is_told {
            let reason: String = reason.to_string().chars().take(MOST_CHARACTERS).collect();
            tracing::warn!("refused {remote}: {reason}");
        }
    }

    fn end(&self) {
        let silent = self.tally().end();
        if silent > 0 {
            tracing::warn!("refused {silent} more connections in {} s", PERIOD.as_secs());
        }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The refusals of a period, which begins with the first.
#[derive(Debug, Default)]
struct Tally {
    told: u32,
    silent: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    /// Whether it is the first of a period.
    begins: bool,
    is_told: bool,
}

impl Tally {
    fn count(&mut self) -> Counted {
        let (begins, is_told) = (self.told == 0, self.told < MOST_LINES);
        match is_told {
            true => self.told += 1,
            false => self.silent += 1,
        }
        Counted { begins, is_told }
    }

    /// Ends the period; how many were not told.
    fn end(&mut self) -> u64 {
        std::mem::take(self).silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_told_and_the_rest_counted() {
        let mut tally = Tally::default();
        for _ in 0..2 {
            assert_eq!(tally.count(), Counted { begins: true, is_told: true });
            let told = (0..1000).filter(|_| tally.count().is_told).count();
            assert_eq!(told as u32 + 1, MOST_LINES);
            assert_eq!(tally.end(), 1001 - u64::from(MOST_LINES));
        }
        assert_eq!(tally.end(), 0);
    }
}
