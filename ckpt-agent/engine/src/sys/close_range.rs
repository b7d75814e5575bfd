//! close_range(2).

use super::super::error::{EngineError, Result};
use super::abi;

/// Closes the descriptors `first` to `last`, both included; numbers that are not open are
/// passed over.
///
/// # Safety
/// Nothing may use or close a descriptor of the range afterwards: for helpers that have handed
/// all of their own descriptors over.
///
/// # Errors
/// Failed close_range(2): `first` above `last`, or a kernel before Linux 5.9.
pub unsafe fn close(first: u32, last: u32) -> Result<()> {
    call(first, last, 0)
}

/// Sets FD_CLOEXEC on the descriptors `first` to `last`, both included.
///
/// # Errors
/// As [`close`]; the flag needs Linux 5.11.
pub fn close_on_exec(first: u32, last: u32) -> Result<()> {
    call(first, last, abi::CLOSE_RANGE_CLOEXEC)
}

fn call(first: u32, last: u32, flags: u32) -> Result<()> {
    // SAFETY: plain numbers. That nobody misses the descriptors is `close`'s own condition.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if answer < 0 {
        return Err(EngineError::last_os("close_range", format!("{first} to {last}")));
    }
    Ok(())
}
