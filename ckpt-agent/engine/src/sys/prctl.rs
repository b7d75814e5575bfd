//! prctl(2): nix has it for `target_os = "linux"` only.

use std::ffi::CStr;

use libc::{c_int, c_ulong};
use nix::errno::Errno;
use nix::sys::signal::Signal;

/// Options that other processes are asked and told by injected calls (include/uapi/linux/prctl.h): the libc crate lacks
/// some of them for some targets.
pub mod option {
    /// x86: whether RDTSC may be executed.
    pub const GET_TSC: u64 = 25;
    /// Sets it.
    pub const SET_TSC: u64 = 26;
    /// What becomes of the thread when memory fails.
    pub const MCE_KILL: u64 = 33;
    /// Asks.
    pub const MCE_KILL_GET: u64 = 34;
    /// Huge pages for none of the process's memory.
    pub const SET_THP_DISABLE: u64 = 41;
    /// Asks; the answer has the flags of Linux 6.18 in it.
    pub const GET_THP_DISABLE: u64 = 42;
    /// Whether the thread's processor may speculate.
    pub const GET_SPECULATION_CTRL: u64 = 52;
    /// Sets it.
    pub const SET_SPECULATION_CTRL: u64 = 53;
    /// The thread writes out what memory waits for.
    pub const SET_IO_FLUSHER: u64 = 57;
    /// Asks.
    pub const GET_IO_FLUSHER: u64 = 58;
    /// No memory becomes code that could be written.
    pub const SET_MDWE: u64 = 65;
    /// Asks.
    pub const GET_MDWE: u64 = 66;
    /// Equal pages of all memory are merged.
    pub const SET_MEMORY_MERGE: u64 = 67;
    /// Asks.
    pub const GET_MEMORY_MERGE: u64 = 68;
    /// timer_create(2) takes the number that it is given.
    pub const TIMER_CREATE_RESTORE_IDS: u64 = 77;
    /// Names of anonymous memory and the like.
    pub const SET_VMA: u64 = 0x5356_4d41;
}

/// The signal that the caller gets when its parent ends; `None`: none (PR_SET_PDEATHSIG).
///
/// # Errors
/// As prctl(2).
pub fn set_pdeathsig(signal: impl Into<Option<Signal>>) -> nix::Result<()> {
    set(libc::PR_SET_PDEATHSIG, signal.into().map_or(0, |signal| signal as c_ulong))
}

/// Whether the caller gets a signal when its parent ends (PR_GET_PDEATHSIG).
///
/// # Errors
/// As prctl(2).
pub fn has_pdeathsig() -> nix::Result<bool> {
    get(libc::PR_GET_PDEATHSIG).map(|signal| signal != 0)
}

/// From now on orphans below the caller fall to it, or do no more (PR_SET_CHILD_SUBREAPER).
///
/// # Errors
/// As prctl(2).
pub fn set_child_subreaper(on: bool) -> nix::Result<()> {
    set(libc::PR_SET_CHILD_SUBREAPER, on.into())
}

/// Whether orphans below the caller fall to it (PR_GET_CHILD_SUBREAPER).
///
/// # Errors
/// As prctl(2).
pub fn is_child_subreaper() -> nix::Result<bool> {
    get(libc::PR_GET_CHILD_SUBREAPER).map(|on| on != 0)
}

/// Whether the caller may leave a core file (PR_SET_DUMPABLE).
///
/// # Errors
/// As prctl(2).
pub fn set_dumpable(on: bool) -> nix::Result<()> {
    set(libc::PR_SET_DUMPABLE, on.into())
}

/// Whether the caller may leave a core file, and /proc shows its files as its user's (PR_GET_DUMPABLE).
///
/// # Errors
/// As prctl(2).
pub fn is_dumpable() -> nix::Result<bool> {
    // SAFETY: takes numbers only, and answers with one.
    let answer = unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) };
    Errno::result(answer).map(|answer| answer == 1)
}

/// Nothing that the caller executes gives it privileges (PR_SET_NO_NEW_PRIVS).
///
/// # Errors
/// As prctl(2).
pub fn set_no_new_privs() -> nix::Result<()> {
    set(libc::PR_SET_NO_NEW_PRIVS, 1)
}

/// Names the calling thread; what is beyond 15 bytes is cut off (PR_SET_NAME).
///
/// # Errors
/// As prctl(2).
pub fn set_name(name: &CStr) -> nix::Result<()> {
    set(libc::PR_SET_NAME, name.as_ptr().expose_provenance() as c_ulong)
}

fn set(option: c_int, value: c_ulong) -> nix::Result<()> {
    let none: c_ulong = 0;
    // SAFETY: the options of this file take a number, but for PR_SET_NAME, whose string lives across the call.
    Errno::result(unsafe { libc::prctl(option, value, none, none, none) }).map(drop)
}

fn get(option: c_int) -> nix::Result<c_int> {
    let none: c_ulong = 0;
    let mut found: c_int = 0;
    // SAFETY: the options of this file write one int, which lives across the call.
    Errno::result(unsafe { libc::prctl(option, &raw mut found, none, none, none) })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_understands_what_is_set() {
        // They are the thread's or taken back: other tests have threads of their own.
        set_name(c"named").unwrap();
        assert_eq!(std::fs::read_to_string("/proc/thread-self/comm").unwrap(), "named\n");
        let before = is_child_subreaper().unwrap();
        set_child_subreaper(!before).unwrap();
        assert_eq!(is_child_subreaper(), Ok(!before));
        set_child_subreaper(before).unwrap();
    }
}
