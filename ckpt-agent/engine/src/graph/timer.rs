//! Timers of timer_create(2).

use serde::{Deserialize, Serialize};

use super::Pid;

/// One timer of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PosixTimer {
    /// The kernel's number for it, which the program holds as its timer_t.
    pub id: i32,
    /// CLOCK_*, or the number of a clock of CPU time as clock_getcpuclockid(3) makes them.
    pub clock: i32,
    /// Whose CPU time it counts, where that is a thread's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<Pid>,
    /// SIGEV_*
    pub notify: i32,
    /// The signal that tells of its expirations.
    pub signal: i32,
    /// The thread that gets the signal (SIGEV_THREAD_ID).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Pid>,
    /// sigev_value
    pub value: u64,
    /// Until it next expires, ns; 0: disarmed.
    pub remaining_ns: u64,
    /// Period, ns; 0: expires once.
    pub interval_ns: u64,
    /// What timer_getoverrun(2) tells.
    #[serde(default)]
    pub overrun: i32,
    /// It has expired, and its signal is pending.
    #[serde(default)]
    pub due: bool,
}
