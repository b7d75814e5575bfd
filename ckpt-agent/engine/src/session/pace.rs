//! What a write reports as done.

use std::time::Duration;

/// How much longer than a snapshot a write may take nothing: a disk that is told to make all durable. The coordinator
/// gives a snapshot ten seconds and a write sixty.
const PATIENCE: Duration = Duration::from_secs(50);

/// The bytes that a write reports. One that is done while the job stands is part of the snapshot for the coordinator, which
/// takes for progress only what exceeds what was told in that step before, and would give up sooner.
#[derive(Debug, Default)]
pub struct Pace {
    /// Added to what is written.
    more: u64,
    /// Until which a write that takes nothing goes on.
    patience: Duration,
    written: u64,
    waited: Duration,
}

impl Pace {
    /// While the job stands, in whose snapshot as much has been `told`.
    pub fn standing(told: u64) -> Self {
        Self { more: told, patience: PATIENCE, ..Self::default() }
    }

    /// What to report where as much is `written`, and time has passed since the last report.
    pub fn report(&mut self, written: u64, passed: Duration) -> u64 {
        if written > self.written {
            self.written = written;
            self.waited = Duration::ZERO;
        } else {
            self.waited = self.waited.saturating_add(passed);
            if self.waited <= self.patience {
                self.more = self.more.saturating_add(1);
            }
        }
        written.saturating_add(self.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_write_while_the_job_stands_exceeds_what_the_snapshot_told() {
        let mut pace = Pace::standing(500);
        assert_eq!(pace.report(1, SECOND), 501);
        assert_eq!(pace.report(40, SECOND), 540);
    }

    #[test]
    fn a_disk_that_takes_nothing_is_waited_for_as_in_a_write_and_no_longer() {
        let mut pace = Pace::standing(0);
        let mut last = pace.report(10, SECOND);
        let reports: Vec<bool> = (0..60)
            .map(|_| {
                let told = pace.report(10, SECOND);
                std::mem::replace(&mut last, told) < told
            })
            .collect();
        assert!(reports[..50].iter().all(|more| *more));
        assert!(!reports[50..].iter().any(|more| *more));
        // And then again.
        assert!(pace.report(11, SECOND) > last);
    }

    #[test]
    fn other_writes_report_what_is_written() {
        let mut pace = Pace::default();
        assert_eq!((pace.report(7, SECOND), pace.report(7, SECOND)), (7, 7));
    }
}
