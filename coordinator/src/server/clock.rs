//! The machine's clock: it does not count time in which this process could hear nobody.

use crate::event::Time;
use std::time::{Duration, Instant};

/// What one round of the loop may take beside its sleep. A process that was stopped, or waited
/// longer for its disk, would else find all nodes silent and declare them gone.
const ROUND: Duration = Duration::from_millis(250);

/// Stands still while the process does.
#[derive(Debug)]
pub struct Clock {
    began: Instant,
    last: Instant,
    lost: Duration,
}

impl Clock {
    /// From now on.
    pub fn new() -> Self {
        let now = Instant::now();
        Self { began: now, last: now, lost: Duration::ZERO }
    }

    /// Ends a round that was to sleep at most that long.
    pub fn round(&mut self, slept: Duration) {
        self.round_at(slept, Instant::now());
    }

    fn round_at(&mut self, slept: Duration, now: Instant) {
        let took = now.saturating_duration_since(self.last);
        self.lost += took.saturating_sub(slept + ROUND);
        self.last = now;
    }

    /// The time.
    pub fn now(&self) -> Time {
        let nanos = self.began.elapsed().saturating_sub(self.lost).as_nanos();
        Time { nanos: u64::try_from(nanos).unwrap_or(u64::MAX), unix_ms: super::wall_ms() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_of_the_process_does_not_count() {
        let mut clock = Clock::new();
        let start = clock.last;
        clock.round_at(Duration::from_secs(1), start + Duration::from_millis(1100));
        assert_eq!(clock.lost, Duration::ZERO);
        clock.round_at(Duration::from_secs(1), start + Duration::from_millis(61_100));
        assert_eq!(clock.lost, Duration::from_millis(58_750));
    }
}
