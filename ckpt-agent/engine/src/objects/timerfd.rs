//! timerfd_create(2): a timer that is read as a count of expirations.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::super::dump::clocks;
use super::super::error::{EngineError, Result};
use super::probe::FdInfo;
use super::{DumpContext, Fate, ObjectKind, Probe, RestoreContext, Saved};

/// _IOW('T', 0, __u64) (include/uapi/linux/timerfd.h); needs CONFIG_CHECKPOINT_RESTORE.
const TFD_IOC_SET_TICKS: u64 = 0x4008_5400;

/// How late the interrupt of a timer may be that is due: those that are off are asked for so long.
const DUE_LIMIT: Duration = Duration::from_millis(1);

/// How often they are asked at least: this process may stand still as well.
const LEAST_LOOKS: u32 = 5;

/// A timer descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// CLOCK_*
    pub clock: i32,
    /// TFD_TIMER_* that it was last armed with.
    pub flags: i32,
    /// Expirations not yet read.
    pub ticks: u64,
    /// Until it next expires, ns; 0: disarmed.
    pub remaining_ns: u64,
    /// Period, ns; 0: expires once.
    pub interval_ns: u64,
    /// When it next expires by a wall clock that it was armed on absolutely, ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<i64>,
}

impl Timer {
    fn on_wall_clock(&self) -> bool {
        matches!(self.clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_ALARM)
            && self.flags & libc::TFD_TIMER_ABSTIME != 0
    }

    /// A timer as it says that it is.
    fn read(copy: BorrowedFd<'_>) -> Result<Self> {
        let (remaining_ns, interval_ns, now) = get_and_now(copy)?;
        let info = FdInfo::of_own(copy)?;
        let clock = info.number("clockid", 10)? as i32;
        let flags = info.number("settime flags", 8)? as i32;
        let ticks = info.number("ticks", 10)?;
        let mut timer = Self { clock, flags, ticks, remaining_ns, interval_ns, deadline_ns: None };
        timer.set_deadline(now);
        Ok(timer)
    }

    /// Whether it has nothing left, and nothing has come of it.
    fn may_be_due(&self) -> bool {
        self.remaining_ns == 0 && (self.interval_ns > 0 || self.ticks == 0)
    }

    /// Asks it again. A periodic one that has expired is not running until it is read or asked (fs/timerfd.c,
    /// do_timerfd_gettime()): so it is asked first, then its count is read. One that expires again and again before it can be asked
    /// is about to expire.
    fn ask(&mut self, copy: BorrowedFd<'_>) -> Result<()> {
        let before = self.ticks;
        let now;
        (self.remaining_ns, self.interval_ns, now) = get_and_now(copy)?;
        self.ticks = FdInfo::of_own(copy)?.number("ticks", 10)?;
        if self.may_be_due() && self.interval_ns > 0 && before < self.ticks {
            self.remaining_ns = 1;
        }
        self.set_deadline(now);
        Ok(())
    }

    /// `now`: what the wall clock showed when the rest was asked for.
    fn set_deadline(&mut self, now: i64) {
        if self.on_wall_clock() && self.remaining_ns > 0 {
            let remaining = i64::try_from(self.remaining_ns).unwrap_or(i64::MAX);
            self.deadline_ns = Some(now.saturating_add(remaining));
        }
    }

    fn create(&self, context: &mut RestoreContext) -> Result<OwnedFd> {
        match create(self.clock) {
            // Clocks that wake a sleeping machine need CAP_WAKE_ALARM.
            Err(nix::errno::Errno::EPERM) if self.clock == libc::CLOCK_REALTIME_ALARM => {
                context.warn("a timer that wakes the machine was restored as one that does not");
                create(libc::CLOCK_REALTIME)
            }
            Err(nix::errno::Errno::EPERM) if self.clock == libc::CLOCK_BOOTTIME_ALARM => {
                context.warn("a timer that wakes the machine was restored as one that does not");
                create(libc::CLOCK_BOOTTIME)
            }
            other => other,
        }
        .map_err(|errno| {
            EngineError::system("timerfd_create", format!("clock {}", self.clock), errno)
        })
    }

    /// Lets it run with what was left of it.
    ///
    /// # Errors
    /// Failed timerfd_settime(2).
    pub fn arm(&self, timer: BorrowedFd<'_>) -> Result<()> {
        if let Some(first) = self.first_of_unread() {
            let now = clocks::now(nix::time::ClockId::CLOCK_REALTIME)?;
            // Not where the clock is behind that of the checkpoint by more than that.
            if i64::try_from(first).is_ok_and(|first| first < now) {
                return set(timer, first, self.interval_ns, self.flags);
            }
        }
        let mut first = self.remaining_ns;
        let mut flags = self.flags & !libc::TFD_TIMER_ABSTIME;
        if let (Some(deadline), true) = (self.deadline_ns, self.on_wall_clock()) {
            // A deadline that has passed expires at once, and 0 would disarm.
            first = u64::try_from(deadline).unwrap_or(0).max(1);
            flags = self.flags;
        }
        if first > 0 {
            set(timer, first, self.interval_ns, flags)?;
        }
        if self.ticks == 0 {
            return Ok(());
        }
        // SAFETY: the kernel reads the 8 bytes of the count, which outlives the call.
        let told = unsafe {
            libc::ioctl(timer.as_raw_fd(), TFD_IOC_SET_TICKS as _, &raw const self.ticks)
        };
        if told < 0 {
            self.let_expire(timer)?;
        }
        Ok(())
    }

    /// Of a periodic timer that was armed on a wall clock absolutely and has unread expirations: when the first of them was. Those
    /// since the checkpoint count as well. Armed for that moment, the kernel counts both (fs/timerfd.c, timerfd_read_iter()),
    /// while a count that is set loses one that comes between.
    fn first_of_unread(&self) -> Option<u64> {
        let deadline = self.deadline_ns.filter(|_| self.on_wall_clock())?;
        let back = self.ticks.checked_mul(self.interval_ns).filter(|back| *back > 0)?;
        u64::try_from(deadline).ok()?.checked_sub(back).filter(|first| *first > 0)
    }

    /// Brings the expirations about by a first one that lies so far back: without the ioctl, as in a 32-bit process of
    /// a 64-bit kernel (fs/timerfd.c has none for those).
    fn let_expire(&self, timer: BorrowedFd<'_>) -> Result<()> {
        let running = self.interval_ns.saturating_sub(self.remaining_ns);
        let back = (self.ticks - 1).saturating_mul(self.interval_ns).saturating_add(running);
        let now = clocks::now(nix::time::ClockId::from_raw(self.clock))?;
        match u64::try_from(now).unwrap_or(0).saturating_sub(back) {
            first @ 1.. if self.interval_ns > 0 => {
                set(timer, first, self.interval_ns, libc::TFD_TIMER_ABSTIME)
            }
            // One, at once.
            _ => set(timer, 1, self.interval_ns, 0),
        }
    }
}

impl ObjectKind for Timer {
    fn recognise(probe: &Probe) -> bool {
        probe.is_anonymous("[timerfd]")
    }

    fn dump(probe: &Probe, _context: &mut DumpContext) -> Result<Self> {
        Self::read(probe.copy.as_fd())
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        for saved in all {
            let timer = saved.object.create(context)?;
            saved.object.arm(timer.as_fd())?;
            context.park(saved.id, timer)?;
        }
        Ok(())
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Again
    }
}

fn create(clock: i32) -> nix::Result<OwnedFd> {
    // SAFETY: plain numbers; the answer is checked before it is used.
    let fd = unsafe { libc::timerfd_create(clock, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
    let fd = nix::errno::Errno::result(fd)?;
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Asks the timers again that may be due. One that is due, but whose interrupt has yet to come, has nothing left, as one has that is off
/// (fs/timerfd.c, timerfd_get_remaining()): so those are asked again until they can't be due. All of them are asked in turn, so
/// that a job with many that are off stands no longer than one with one.
///
/// # Errors
/// Failed timerfd_gettime(2).
pub fn settle<'a>(timers: impl Iterator<Item = (&'a mut Timer, BorrowedFd<'a>)>) -> Result<()> {
    let mut open: Vec<_> = timers.filter(|(timer, _)| timer.may_be_due()).collect();
    let since = Instant::now();
    let mut looks = 0;
    while !open.is_empty() && (looks < LEAST_LOOKS || since.elapsed() < DUE_LIMIT) {
        std::thread::sleep(DUE_LIMIT / LEAST_LOOKS);
        for (timer, copy) in &mut open {
            timer.ask(*copy)?;
        }
        open.retain(|(timer, _)| timer.may_be_due());
        looks += 1;
    }
    Ok(())
}

/// How far apart the clock's times before and after a look at a timer may be: the deadline is as inexact.
const CLOSE_NS: i64 = 20_000;

/// How often a timer is looked at for that: whoever looks may lose its processor each time.
const MOST_LOOKS: u32 = 10;

/// (remaining, interval, the wall clock as it was asked) in ns.
fn get_and_now(timer: BorrowedFd<'_>) -> Result<(u64, u64, i64)> {
    let clock = || clocks::now(nix::time::ClockId::CLOCK_REALTIME);
    let mut looks = 0;
    loop {
        let before = clock()?;
        let (remaining, interval) = get(timer)?;
        let after = clock()?;
        looks += 1;
        // The last look counts: expirations are counted as of that one. No timer expires before its time.
        if looks == MOST_LOOKS || after.saturating_sub(before) <= CLOSE_NS {
            return Ok((remaining, interval, after));
        }
    }
}

/// (remaining, interval) in ns.
fn get(timer: BorrowedFd<'_>) -> Result<(u64, u64)> {
    let mut value = libc::itimerspec { it_interval: timespec(0), it_value: timespec(0) };
    // SAFETY: the kernel fills the structure, which outlives the call.
    let answer = unsafe { libc::timerfd_gettime(timer.as_raw_fd(), &raw mut value) };
    if answer < 0 {
        return Err(EngineError::last_os("timerfd_gettime", "a timer"));
    }
    Ok((nanoseconds(value.it_value), nanoseconds(value.it_interval)))
}

fn set(timer: BorrowedFd<'_>, first_ns: u64, interval_ns: u64, flags: i32) -> Result<()> {
    let value =
        libc::itimerspec { it_interval: timespec(interval_ns), it_value: timespec(first_ns) };
    // SAFETY: the kernel reads the structure, which outlives the call; no old value is wanted.
    let answer = unsafe {
        libc::timerfd_settime(timer.as_raw_fd(), flags, &raw const value, std::ptr::null_mut())
    };
    if answer < 0 {
        return Err(EngineError::last_os("timerfd_settime", format!("{first_ns} ns")));
    }
    Ok(())
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ }
}

fn nanoseconds(time: libc::timespec) -> u64 {
    (time.tv_sec.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_expirations_of_a_wall_clock_go_on_counting() {
        const PERIOD: u64 = 10_000_000_000;
        let now = clocks::now(nix::time::ClockId::CLOCK_REALTIME).unwrap();
        for passed in [0, 7] {
            // It was to expire next half a period after the last of the expirations that have passed.
            let next = now - (PERIOD * passed) as i64 + (PERIOD / 2) as i64;
            let timer = Timer {
                clock: libc::CLOCK_REALTIME,
                flags: libc::TFD_TIMER_ABSTIME,
                ticks: 3,
                remaining_ns: PERIOD / 2,
                interval_ns: PERIOD,
                deadline_ns: Some(next),
            };
            let made = create(timer.clock).unwrap();
            timer.arm(made.as_fd()).unwrap();
            // However late this looks, the count fits when it expires next.
            let mut found = Timer::read(made.as_fd()).unwrap();
            found.ask(made.as_fd()).unwrap();
            let grid = found.deadline_ns.unwrap() - next;
            let expired = 3 + (grid + PERIOD as i64 / 2) as u64 / PERIOD;
            assert_eq!(found.ticks, expired, "{found:?}");
            assert!(expired >= 3 + passed && found.flags == libc::TFD_TIMER_ABSTIME);
        }
    }

    #[test]
    fn one_that_is_due_is_told_from_one_that_is_off() {
        let timer = create(libc::CLOCK_MONOTONIC).unwrap();
        let look = || {
            let mut found = Timer::read(timer.as_fd()).unwrap();
            settle([(&mut found, timer.as_fd())].into_iter()).unwrap();
            found
        };
        assert_eq!((look().remaining_ns, look().ticks), (0, 0));
        // They are asked at any moment of their periods.
        for period in [3_000, 20_000, 70_000] {
            set(timer.as_fd(), 1, period, 0).unwrap();
            for _ in 0..5_000 {
                let found = look();
                assert!(found.remaining_ns > 0, "{} {period}", found.ticks);
            }
        }
        for count in 0..5_000 {
            set(timer.as_fd(), 1 + count % 9_000, 0, 0).unwrap();
            let found = look();
            assert!(found.remaining_ns > 0 || found.ticks > 0);
        }
        // Off, with a period (timerfd_settime(2)).
        set(timer.as_fd(), 0, 3_000, 0).unwrap();
        assert_eq!((look().remaining_ns, look().interval_ns), (0, 3_000));
    }
}
