//! Time, as it is handed to what decides without a clock of its own.

use std::time::{SystemTime, UNIX_EPOCH};

/// An instant, as the caller's clocks show it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Nanoseconds on a clock that never goes back.
    pub nanos: u64,
    /// Milliseconds since 1970 UTC, for the record only.
    pub unix_ms: u64,
}

/// Nanoseconds since this machine was started, also while it slept: the same for all its processes, whatever becomes of its
/// calendar (CLOCK_BOOTTIME, clock_gettime(2)).
#[must_use]
pub fn boot_nanos() -> u64 {
    // Every kernel since 2.6.39 has this clock.
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .map(|time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
        .unwrap_or_default()
}

/// The same, in milliseconds.
#[must_use]
pub fn boot_ms() -> u64 {
    boot_nanos() / 1_000_000
}

/// Milliseconds since 1970 UTC.
#[must_use]
pub fn wall_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
