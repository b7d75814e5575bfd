//! For how long jobs may run without a word from the coordinator: until some time after the *sending* of
//! the newest heartbeat that it has acknowledged. Counted on CLOCK_BOOTTIME, which goes on while a
//! machine sleeps (clock_gettime(2)).

use std::collections::VecDeque;
use std::time::Duration;

/// Heartbeats that may be unanswered before the oldest is forgotten.
const REMEMBERED: usize = 256;

/// An instant on CLOCK_BOOTTIME, ns.
pub type BootTime = u64;

/// The lease of all instances on this node.
#[derive(Debug, Default)]
pub struct Lease {
    length: Duration,
    sent: VecDeque<(u64, BootTime)>,
    sequence: u64,
    answered: Option<u64>,
    until: BootTime,
}

impl Lease {
    /// A new connection: its heartbeats are numbered on, and answers over the older one do not come any
    /// more. The welcome itself answers the hello that was sent at `hello_sent`.
    pub fn welcome(&mut self, length: Duration, hello_sent: BootTime) {
        self.length = length;
        self.sent.clear();
        self.extend(hello_sent);
    }

    /// The number of a heartbeat that is about to be sent.
    pub fn beat(&mut self, now: BootTime) -> u64 {
        self.sequence += 1;
        if self.sent.len() == REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back((self.sequence, now));
        self.sequence
    }

    /// The newest heartbeat that was acknowledged.
    pub fn answered(&self) -> Option<u64> {
        self.answered
    }

    /// A heartbeat was acknowledged. Whether the lease was extended.
    pub fn heard(&mut self, sequence: u64) -> bool {
        let before = self.until;
        while let Some((number, sent)) = self.sent.front().copied() {
            if number > sequence {
                break;
            }
            self.sent.pop_front();
            if number == sequence {
                self.answered = Some(number);
                self.extend(sent);
            }
        }
        self.until > before
    }

    fn extend(&mut self, from: BootTime) {
        let length = u64::try_from(self.length.as_nanos()).unwrap_or(u64::MAX);
        self.until = self.until.max(from.saturating_add(length));
    }

    /// Until when it is good.
    #[must_use]
    pub fn until(&self) -> BootTime {
        self.until
    }

    /// Whether it has run out.
    #[must_use]
    pub fn is_over(&self, now: BootTime) -> bool {
        now >= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn lease() -> Lease {
        let mut lease = Lease::default();
        lease.welcome(Duration::from_millis(100), 1000 * MS);
        lease
    }

    #[test]
    fn counts_from_the_sending_of_what_was_acknowledged() {
        let mut lease = lease();
        assert_eq!(lease.until(), 1100 * MS);
        let first = lease.beat(1020 * MS);
        let second = lease.beat(1040 * MS);
        assert!(!lease.is_over(1099 * MS) && lease.is_over(1100 * MS));
        assert!(lease.heard(second));
        assert_eq!(lease.until(), 1140 * MS);
        assert!(!lease.heard(first));
        assert_eq!(lease.until(), 1140 * MS);
    }

    #[test]
    fn unknown_and_old_answers_extend_nothing() {
        let mut lease = lease();
        let before = lease.beat(1050 * MS);
        assert!(!lease.heard(before + 7));
        assert_eq!(lease.until(), 1100 * MS);
        let other = lease.beat(1060 * MS);
        lease.welcome(Duration::from_millis(100), 1010 * MS);
        assert!(!lease.heard(other));
        assert_eq!(lease.until(), 1110 * MS);
    }
}
