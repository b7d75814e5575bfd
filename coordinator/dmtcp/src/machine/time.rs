//! Intervals, and who is waited for too long.

use super::{Machine, Worker};
use protocol::clock::Time;

const SECOND: u64 = 1_000_000_000;

/// How many are named of those who are waited for.
const NAMED: usize = 5;

impl Machine {
    /// When [`super::Event::Clock`] is to come, in nanoseconds; None: it need not.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        [self.next_checkpoint, self.round.deadline(&self.settings)].into_iter().flatten().min()
    }

    /// Sets the next checkpoint's time.
    pub(super) fn schedule(&mut self, now: Time) {
        self.next_checkpoint = (self.interval > 0 && !self.workers.is_empty())
            .then(|| now.nanos.saturating_add(u64::from(self.interval) * SECOND));
    }

    pub(super) fn set_interval(&mut self, now: Time, interval: u32) {
        self.interval = interval;
        self.schedule(now);
    }

    pub(super) fn clock(&mut self, now: Time) {
        if self.next_checkpoint.is_some_and(|due| due <= now.nanos) {
            self.next_checkpoint = None;
            if !self.begin_checkpoint(now, false) {
                // Somebody is being launched, or the last one is not recorded yet.
                self.next_checkpoint = Some(now.nanos.saturating_add(SECOND));
            }
        }
        self.round_clock(now);
    }

    /// Says who is waited for.
    pub(super) fn name_missing(&mut self, seconds: u64) {
        let absent = self.round.not_connected();
        if absent > 0 {
            let text = format!(
                "the restart waits since {seconds} s for {absent} of {} processes that have not connected: start \
                 them, or end it with dmtcp_command -k",
                self.round.expected()
            );
            return self.warn(text);
        }
        let what = self.round.awaited();
        let missing: Vec<&Worker> =
            self.workers.values().filter(|worker| self.round.is_missing(&worker.part)).collect();
        let count = missing.len();
        let mut names: Vec<String> =
            missing.into_iter().take(NAMED).map(|worker| worker.label()).collect();
        if names.is_empty() {
            return;
        }
        if count > names.len() {
            names.push(format!("{} others", count - names.len()));
        }
        self.warn(format!("since {seconds} s {what} waits for {}", names.join(", ")));
    }
}
