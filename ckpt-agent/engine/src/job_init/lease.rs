//! The time until which processes may run with no agent there.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::super::dump::clocks;
use super::super::error::{EngineError, Result};
use super::super::sys::stat::time;

/// A timer on CLOCK_BOOTTIME, which goes on while the machine sleeps.
#[derive(Debug)]
pub struct Lease {
    timer: TimerFd,
    until_ns: u64,
    /// This process's clock minus the agent's, ns: the job may be in a time namespace of its own.
    shift: i64,
}

impl Lease {
    /// A lease until then, as the agent reads the clock.
    ///
    /// # Errors
    /// Failed timerfd_create(2).
    pub fn until(until_ns: u64, shift: i64) -> Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)
            .map_err(|errno| EngineError::system("timerfd_create", "the lease", errno))?;
        let mut lease = Self { timer, until_ns: 0, shift };
        lease.renew(until_ns)?;
        Ok(lease)
    }

    /// Another end, as the agent reads the clock.
    ///
    /// # Errors
    /// Failed timerfd_settime(2).
    pub fn renew(&mut self, until_ns: u64) -> Result<()> {
        // One nanosecond at least: zero disarms.
        self.until_ns = until_ns.saturating_add_signed(self.shift).max(1);
        let time = time(i64::try_from(self.until_ns).unwrap_or(i64::MAX));
        self.timer
            .set(Expiration::OneShot(time), TimerSetTimeFlags::TFD_TIMER_ABSTIME)
            .map_err(|errno| EngineError::system("timerfd_settime", "the lease", errno))
    }

    /// Its end, as the agent reads the clock, ns.
    pub fn end(&self) -> u64 {
        self.until_ns.saturating_add_signed(self.shift.saturating_neg())
    }

    /// Whether it has run out.
    ///
    /// # Errors
    /// Failed clock_gettime(2).
    pub fn is_over(&self) -> Result<bool> {
        let now = clocks::now(nix::time::ClockId::CLOCK_BOOTTIME)?;
        Ok(u64::try_from(now).is_ok_and(|now| now >= self.until_ns))
    }

    /// Readable once it has run out.
    pub fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
