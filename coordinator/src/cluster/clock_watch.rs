//! How far a member's clock on the wall is from the coordinator's, by its heartbeats. Each was sent between the answer to one
//! before, which it names, and now: within that time nothing is said of the clock.

use super::event::Now;

/// Clocks that are farther apart are told of, in milliseconds; one that goes wrong by more at once has jumped.
const FAR: i64 = 5_000;
/// For how long it is told that a clock has jumped, in nanoseconds.
const TOLD: u64 = 3600 * 1_000_000_000;

/// What is known of a member's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ClockWatch {
    /// By how much it is ahead of the coordinator's: at least, at most; in milliseconds.
    ahead: Option<(i64, i64)>,
    jumped: Option<Jump>,
}

/// A clock that has jumped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Jump {
    /// When, on the clock of [`crate::Time::nanos`].
    pub(super) at: u64,
    /// By how much, at least, in milliseconds; below 0: back.
    pub(super) by_ms: i64,
}

impl ClockWatch {
    /// A heartbeat that was sent after that time shows that time.
    pub(super) fn see(&mut self, now: Now, sent_after: Now, wall_ms: u64) {
        let number = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let ahead_of = |time: Now| number(wall_ms).saturating_sub(number(time.unix_ms));
        let (least, most) = (ahead_of(now), ahead_of(sent_after));
        if least > most {
            // The coordinator's own clock was set back meanwhile.
            self.ahead = None;
            return;
        }
        if let Some((was_least, was_most)) = self.ahead.replace((least, most)) {
            let forth = least.saturating_sub(was_most);
            let back = most.saturating_sub(was_least);
            let by_ms = match (forth, back) {
                (forth, _) if forth > FAR => Some(forth),
                (_, back) if back < -FAR => Some(back),
                _ => None,
            };
            if let Some(by_ms) = by_ms {
                self.jumped = Some(Jump { at: now.nanos, by_ms });
            }
        }
    }

    /// By how much it is ahead, at least, where that is far; below 0: behind.
    pub(super) fn off_by_ms(&self) -> Option<i64> {
        match self.ahead? {
            (least, _) if least > FAR => Some(least),
            (_, most) if most < -FAR => Some(most),
            _ => None,
        }
    }

    /// How it has jumped of late.
    pub(super) fn jumped(&self, now: Now) -> Option<Jump> {
        self.jumped.filter(|jump| now.nanos.saturating_sub(jump.at) < TOLD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn at(ms: u64) -> Now {
        Now { nanos: ms * 1_000_000, unix_ms: HOUR + ms }
    }

    #[test]
    fn a_clock_is_far_off_only_if_no_delay_explains_it() {
        let mut watch = ClockWatch::default();
        watch.see(at(1_100), at(0), HOUR + 1_000);
        assert_eq!(watch.off_by_ms(), None);
        // A heartbeat that was nine seconds on its way.
        watch.see(at(10_000), at(500), HOUR + 1_000);
        assert_eq!((watch.off_by_ms(), watch.jumped(at(10_000))), (None, None));
        watch.see(at(11_000), at(10_000), HOUR + 11_000);
        assert_eq!(watch.jumped(at(11_000)), None);
        watch.see(at(12_000), at(11_000), HOUR + 42_000);
        assert_eq!(watch.off_by_ms(), Some(30_000));
        assert_eq!(watch.jumped(at(12_000)).map(|jump| jump.by_ms), Some(29_000));
        // It stays ahead, and is told to have jumped for an hour.
        watch.see(at(13_000), at(12_000), HOUR + 43_000);
        assert_eq!(watch.jumped(at(13_000)).map(|jump| jump.at), Some(12_000_000_000));
        assert_eq!(watch.jumped(at(12_000 + HOUR)), None);
        watch.see(at(14_000), at(13_000), HOUR + 14_000);
        assert_eq!(watch.off_by_ms(), None);
        assert!(watch.jumped(at(14_000)).is_some_and(|jump| jump.by_ms < -25_000));
    }

    #[test]
    fn what_a_member_says_breaks_nothing() {
        let mut watch = ClockWatch::default();
        for wall_ms in [0, u64::MAX, 1, u64::MAX] {
            watch.see(at(2_000), at(1_000), wall_ms);
            assert!(watch.off_by_ms().is_some());
        }
        // The coordinator's own clock was set back.
        watch.see(Now { nanos: 3_000_000_000, unix_ms: 0 }, at(2_000), HOUR);
        assert_eq!(watch.off_by_ms(), None);
    }
}
