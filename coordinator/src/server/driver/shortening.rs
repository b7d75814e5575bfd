//! When the log is made shorter: whenever it is twice as long as it was then, and not short anyway; sooner where it comes near to
//! what can be read. A thread makes the shorter one while the loop goes on; the log's place it takes while nothing waits to be
//! written or copied.

use super::{Driver, Ending, disk, order};
use crate::journal::MAX_LOG;
use crate::server::shortening::{Draft, NotShorter, Outcome};
use crate::settings::SECOND;
use tokio::task::JoinHandle;

/// After a failure, in nanoseconds.
const AGAIN: u64 = 600 * SECOND;

/// Where that stands.
#[derive(Debug, Default)]
pub struct Shortening {
    /// Shorter logs are left as they are; 0: all are.
    above: u64,
    /// Nor is one that is not this long, since it would not become much shorter.
    next: u64,
    making: Option<JoinHandle<Result<Option<Draft>, NotShorter>>>,
    made: Option<Draft>,
    /// Nothing is tried before then, on the clock of [`crate::Time::nanos`]: something failed.
    not_before: u64,
}

impl Shortening {
    /// Of logs that are longer than that, in bytes.
    pub fn above(bytes: u64) -> Self {
        Self { above: bytes, ..Self::default() }
    }

    fn is_due(&self, length: u64, now: u64) -> bool {
        let idle = self.making.is_none() && self.made.is_none();
        idle && self.above > 0 && now >= self.not_before && length > self.above.max(self.next)
    }

    /// Of a log that has this length, and can't be much shorter.
    fn wait_from(&mut self, length: u64) {
        let room = MAX_LOG.saturating_sub(length);
        self.next = length.saturating_add(length.min(room / 2));
    }
}

impl Driver {
    /// Begins to make the log shorter where that is due, and hears how it went. Called at least twice a second; never waits.
    pub(super) async fn shorten_log(&mut self) {
        if let Some(making) = self.shortening.making.take_if(|making| making.is_finished()) {
            match making.await {
                Ok(Ok(made)) => self.shortening.made = made,
                Ok(Err(kept)) => self.is_kept(&kept),
                Err(error) => tracing::error!("the log is not made shorter: {error}"),
            }
        }
        let length = self.journal.length();
        let is_due = self.shortening.is_due(length, self.clock.now().nanos);
        if is_due && !self.disk.is_exchanging() {
            // Until it is known how short it becomes.
            self.shortening.wait_from(length);
            let (log, path) = (self.journal.file(), self.journal.path().to_owned());
            let now = self.clock.now();
            let make = move || Draft::make(&log, &path, length, now);
            self.shortening.making = Some(tokio::task::spawn_blocking(make));
        }
    }

    /// Has the shorter log take the place of the log, if there is one. The disk is idle, and nothing is to be written.
    pub(super) fn exchange_log(&mut self) {
        if let Some(draft) = self.shortening.made.take() {
            let (log, path) = (self.journal.file(), self.journal.path().to_owned());
            let order = disk::Order::Exchange { draft, log, path, end: self.journal.length() };
            self.disk.begin(order, order::Written::default());
        }
    }

    pub(super) fn is_exchanged(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Done { file, length } => {
                tracing::info!(
                    "the log is made shorter: {} bytes, now {length}",
                    self.journal.length()
                );
                self.journal.go_on_in(file, length);
                self.shortening.wait_from(length);
                self.copies(|replication, send| replication.begin_anew(send));
            }
            Outcome::Not(kept) => self.is_kept(&kept),
            Outcome::Unsure(error) => {
                let path = self.journal.path().display();
                self.ending = Some(Ending::Unrecorded(format!("sync {path}: {error}")));
            }
        }
    }

    /// It is tried again a while later.
    fn is_kept(&mut self, kept: &NotShorter) {
        tracing::warn!("the log is not made shorter: {kept}");
        (self.shortening.next, self.shortening.not_before) =
            (0, self.clock.now().nanos.saturating_add(AGAIN));
    }
}
