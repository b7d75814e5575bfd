//! Numbers of processes and threads without the right to choose them. The kernel hands them out in rising order and
//! begins again at the lowest, so one that is free comes round once the others up to it have been taken and given back.
//! Where there are 32768 (proc_sys_kernel(5), pid_max), as on phones, that takes less than a second; where a machine has
//! millions, it is not tried.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::super::graph::Pid;

/// Numbers that are given out in the first round only (kernel/pid.c, RESERVED_PIDS).
pub const RESERVED: Pid = 300;
/// Numbers that are taken and given back at most, in all: some rounds where there are 32768.
const MOST: u32 = 200_000;
/// How long that may take in all, however slow the machine is.
const LONGEST: Duration = Duration::from_secs(4);
/// Numbers that are taken and given back between two looks at how far the kernel is, which other processes drive, too.
const AT_ONCE: Pid = 256;
/// So near to a number it is looked whether all between are taken.
const NEAR: Pid = 32;
/// Bytes of stack for a process that does nothing.
const STACK: usize = 16 << 10;
/// No address of a process: the kernel's.
const NOWHERE: libc::c_long = -8;
/// How often a number that slipped away is tried again.
pub const TRIES: u32 = 3;

/// How far the kernel has come. Can lie in memory that several processes share, which then must not act at the same
/// time.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Counter {
    /// The last number that was given out; 0: not known yet.
    last: AtomicU32,
    spent: AtomicU32,
}

impl Counter {
    /// The number that was given out last.
    pub fn last(&self) -> Option<Pid> {
        match self.last.load(SeqCst) {
            0 => newest().or_else(take_one).inspect(|last| self.note(*last)),
            last => Pid::try_from(last).ok(),
        }
    }

    /// Notes that the kernel has given out this number.
    pub fn note(&self, number: Pid) {
        self.last.store(number.unsigned_abs(), SeqCst);
    }

    /// Takes numbers and gives them back until the next one is most likely `wanted`: another process may be quicker. False:
    /// it is taken or too far away.
    pub fn approach(&self, wanted: Pid) -> bool {
        self.approach_within(wanted, Pid::MAX)
    }

    /// As [`Counter::approach`], but false, too, if the kernel hands out more than `limit` numbers before.
    pub fn approach_within(&self, wanted: Pid, limit: Pid) -> bool {
        let Some(end) = end() else { return false };
        if wanted < RESERVED || wanted >= end || is_taken(wanted) {
            return false;
        }
        // What was noted may be old.
        self.last.store(0, SeqCst);
        let begun = Instant::now();
        while let Some(last) = self.last() {
            let distance = distance(last, wanted, end);
            if distance <= NEAR && (1..distance).all(|step| is_taken(after(last, step, end))) {
                return true;
            }
            let left = MOST.saturating_sub(self.spent.load(SeqCst));
            let limit = limit.unsigned_abs().min(left.max(AT_ONCE.unsigned_abs()));
            if distance.unsigned_abs() > limit || begun.elapsed() > LONGEST {
                return false;
            }
            self.spend((distance - NEAR).clamp(1, AT_ONCE));
        }
        false
    }

    /// Takes the next numbers and gives them back.
    fn spend(&self, count: Pid) {
        self.spent.fetch_add(count.unsigned_abs(), SeqCst);
        if (0..count).all(|_| pass_one()) {
            self.note(newest().unwrap_or(0));
        } else if let Some(number) = take_one() {
            self.note(number);
        }
    }
}

/// How many numbers the kernel hands out from after `last` until `wanted` has come.
pub fn distance(last: Pid, wanted: Pid, end: Pid) -> Pid {
    if wanted > last { wanted - last } else { (end - last - 1).max(0) + wanted - RESERVED + 1 }
}

/// The number that comes `steps` after `last`, if none is taken.
pub fn after(last: Pid, steps: Pid, end: Pid) -> Pid {
    let number = last + steps;
    if number < end { number } else { number - end + RESERVED }
}

/// One more than the highest number.
pub fn end() -> Option<Pid> {
    std::fs::read_to_string("/proc/sys/kernel/pid_max").ok()?.trim().parse().ok()
}

/// Whether so many numbers come round in a time that a restart can take.
pub fn is_worth_waiting(end: Pid) -> bool {
    end.unsigned_abs() <= MOST
}

/// Whether a process, thread or process group has the number.
pub fn is_taken(number: Pid) -> bool {
    let nobody = |number| {
        // SAFETY: takes numbers only; signal 0 is sent to nobody.
        let answer = unsafe { libc::kill(number, 0) };
        answer < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
    };
    !(nobody(number) && nobody(-number))
}

/// The number that this PID namespace has given out last (proc_loadavg(5)).
fn newest() -> Option<Pid> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_ascii_whitespace().next_back()?.parse().ok()
}

/// Passes one number by: has a process made whose making fails after it has got its number, since the kernel can't write
/// its descriptor to an address of its own (kernel/fork.c, copy_process). Nothing is ever run or waited for, which on a
/// busy machine is a hundred times faster. False: the kernel has no such descriptors, before 5.2.
fn pass_one() -> bool {
    let none: libc::c_long = 0;
    // No copy of anything.
    let shared = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_FS | libc::CLONE_SIGHAND;
    let flags = libc::c_long::from(libc::CLONE_PIDFD | shared);
    // SAFETY: takes numbers only; the address for the descriptor is no place that a process could have, so that no child
    // is made that would go on here, on this very stack.
    let made = unsafe { libc::syscall(libc::SYS_clone, flags, none, NOWHERE, none, none) };
    made == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

/// The number of a process that ends at once and has been waited for.
fn take_one() -> Option<Pid> {
    extern "C" fn end(_: *mut libc::c_void) -> libc::c_int {
        0
    }
    let mut stack = vec![0u128; STACK / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end;
    // No copy of anything, which makes it ten times faster than a fork.
    let shared = libc::CLONE_VM
        | libc::CLONE_VFORK
        | libc::CLONE_FILES
        | libc::CLONE_FS
        | libc::CLONE_SIGHAND;
    // SAFETY: with CLONE_VFORK the child has ended when this returns, so that it uses the stack, which grows down from
    // its end (aligned to 16 bytes), and the shared memory only while this process waits. It calls nothing.
    let child = unsafe { libc::clone(end, top.cast(), shared, std::ptr::null_mut()) };
    if child <= 0 {
        return None;
    }
    // SAFETY: takes numbers and a null pointer, which waitpid(2) allows; the child is this process's.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::__WALL) };
    Some(child)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_go_round() {
        assert_eq!(distance(1000, 1001, 32768), 1);
        assert_eq!(distance(32767, 300, 32768), 1);
        assert_eq!(distance(32766, 300, 32768), 2);
        assert_eq!(distance(1000, 1000, 32768), 32768 - 300);
        assert_eq!(after(32767, 1, 32768), 300);
        assert_eq!(after(1000, 5, 32768), 1005);
    }

    #[test]
    fn who_is_there_has_taken_a_number() {
        let own = std::process::id() as i32;
        assert!(is_taken(own) && is_taken(1));
        let number = take_one().unwrap();
        assert!(number > 0 && number != own);
    }

    #[test]
    fn numbers_pass_by() {
        if pass_one() {
            let before = newest().unwrap();
            assert!((0..100).all(|_| pass_one()));
            let end = end().unwrap();
            assert!(distance(before, newest().unwrap(), end) >= 100);
        }
    }
}
