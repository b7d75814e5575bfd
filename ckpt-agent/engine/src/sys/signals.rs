//! Signal actions and masks by the kernel's own calls: the C library keeps signals 32 and 33 to
//! itself.

use std::io;

use super::super::arch::words::{ACTION, action_from_bytes, action_to_bytes};

/// Highest signal number (SIGRTMAX).
pub const LAST: i32 = 64;
/// SIG_DFL as an action.
pub const DEFAULT: Action = [0; 4];
/// SIG_IGN as an action.
pub const IGNORE: Action = [libc::SIG_IGN as u64, 0, 0, 0];

/// What the kernel's struct sigaction holds: handler, flags, restorer, mask.
pub type Action = [u64; 4];

/// Sets the action of a signal; returns the one before (rt_sigaction(2)).
///
/// # Errors
///
/// EINVAL for SIGKILL, SIGSTOP and what is no signal.
///
/// # Safety
///
/// An action with a handler must be one that the kernel gave for this very process.
pub unsafe fn set_action(signal: i32, action: Action) -> io::Result<Action> {
    let action = action_to_bytes(action);
    let mut before = [0u8; ACTION];
    // SAFETY: both arrays are as large as the kernel's struct sigaction and live during the call; the caller
    // vouches for the handler.
    let result = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            action.as_ptr(),
            before.as_mut_ptr(),
            size_of::<u64>(),
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    action_from_bytes(&before).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Has a signal do what it does by itself.
///
/// # Errors
///
/// EINVAL for SIGKILL, SIGSTOP and what is no signal.
pub fn take_default(signal: i32) -> io::Result<()> {
    // SAFETY: the default has no handler.
    unsafe { set_action(signal, DEFAULT) }.map(drop)
}

/// Sends a signal, a real-time one too, to one process.
///
/// # Errors
///
/// ESRCH, EPERM, and EINVAL for what is no signal (kill(2)); EINVAL for a process number that stands for several.
pub fn send(process: i32, signal: i32) -> io::Result<()> {
    if process <= 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: two numbers; no memory is touched.
    match unsafe { libc::kill(process, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the signals that the calling thread blocks (bit N-1: signal N); returns those before.
///
/// # Errors
///
/// None are known (rt_sigprocmask(2)).
pub fn set_blocked(mask: u64) -> io::Result<u64> {
    let mut before = 0u64;
    // SAFETY: both masks are 64 bits, as the kernel's sigset_t, and live during the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            &raw mut before,
            size_of::<u64>(),
        )
    };
    if result == 0 { Ok(before) } else { Err(io::Error::last_os_error()) }
}
