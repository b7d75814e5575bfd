//! The clock of leases.

use ckpt_node::BootTime;
use protocol::clock::boot_nanos;

/// Now, on CLOCK_BOOTTIME, which goes on while a machine sleeps (clock_gettime(2)).
#[must_use]
pub fn boot_time() -> BootTime {
    boot_nanos()
}
