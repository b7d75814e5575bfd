//! Waiting on a word of memory that processes share (futex(2)).

use std::io;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` holds `value`, for `limit` at most. May return early; the caller looks at the
/// word again.
pub fn wait(word: &AtomicU32, value: u32, limit: Duration) {
    // The call's own timespec: two words of the kernel, whatever the C library calls by that name.
    let long = |value: u64| libc::c_long::try_from(value).unwrap_or(libc::c_long::MAX);
    let limit = [long(limit.as_secs()), long(limit.subsec_nanos().into())];
    // SAFETY: the word and the timespec live during the call; the kernel only reads both. Not
    // FUTEX_PRIVATE: the word is shared between processes.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, limit.as_ptr());
    }
}

/// Wakes everyone who sleeps on `word`.
pub fn wake_all(word: &AtomicU32) {
    // SAFETY: the address of a live word; the kernel does not touch its content.
    let woken = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, libc::c_int::MAX)
    };
    debug_assert!(woken >= 0, "futex: {}", io::Error::last_os_error());
}
