//! How much memory is free, and what is said where it is too little.

use super::super::error::{EngineError, Refusal};

/// Bytes of memory that can be had without swapping. `None`: this machine does not tell.
pub fn available_memory() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib = line.trim().trim_end_matches(" kB").parse::<u64>().ok()?;
    Some(kib.saturating_mul(1024))
}

/// A refusal of what has no place.
pub(super) fn too_large(wanted: u64) -> EngineError {
    Refusal::new(
        format!("its content of {wanted} bytes fits neither into free memory nor onto the disk"),
        "free memory or the disk, or keep the file outside of the session directories",
    )
    .into()
}
