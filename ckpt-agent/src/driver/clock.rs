//! The clock of leases.

use ckpt_node::BootTime;
use nix::time::{ClockId, clock_gettime};

/// Now, on CLOCK_BOOTTIME, which goes on while a machine sleeps (clock_gettime(2)).
#[must_use]
pub fn boot_time() -> BootTime {
    // Every kernel since 2.6.39 has this clock.
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .map(|time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
        .unwrap_or_default()
}
