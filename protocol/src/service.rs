//! What a coordinator or an agent tells the manager that started it as a service: sd_notify(3). Without
//! one, nothing is told.

use sd_notify::{NotifyState, notify};
use std::time::{Duration, Instant};

/// A process as a service.
#[derive(Debug)]
pub struct Service {
    /// How often the manager wants a sign of life, and when the last one was given.
    watchdog: Option<(Duration, Instant)>,
}

impl Service {
    /// Says that the work has begun, and how it stands, in one line.
    #[must_use]
    pub fn ready(status: &str) -> Self {
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
        let limit = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero());
        // Four chances before the manager loses its patience.
        Self { watchdog: limit.map(|limit| (limit / 4, Instant::now())) }
    }

    /// How long the event loop may sleep, so that its signs of life are not late.
    #[must_use]
    pub fn longest_sleep(&self) -> Option<Duration> {
        self.watchdog.map(|(every, _)| every)
    }

    /// A sign of life, to be given by the event loop itself at each turn: one that hangs gives none, and
    /// the manager ends the process.
    pub fn alive(&mut self) {
        if let Some((every, last)) = &mut self.watchdog {
            if last.elapsed() >= *every {
                *last = Instant::now();
                tell(&[NotifyState::Watchdog]);
            }
        }
    }

    /// How the work stands, in one line.
    pub fn status(&self, status: &str) {
        tell(&[NotifyState::Status(status)]);
    }

    /// Says that the end has begun.
    pub fn stopping(&self, status: &str) {
        tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
    }
}

fn tell(what: &[NotifyState<'_>]) {
    if let Err(error) = notify(what) {
        tracing::warn!("failed to tell the service manager: {error}");
    }
}
