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

/// Milliseconds since 1970 UTC.
#[must_use]
pub fn wall_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
