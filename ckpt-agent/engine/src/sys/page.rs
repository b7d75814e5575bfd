//! Pages of memory.

/// Bytes per page of this machine.
pub fn page_size() -> u64 {
    // SAFETY: takes a number only.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}
