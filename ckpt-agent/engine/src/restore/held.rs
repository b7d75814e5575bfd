//! Numbers that are kept from others until the threads that are to have them are made.
//!
//! A thread in a user namespace of the job's own can't ask for its number. It gets the next one, and the kernel is told
//! which that is (`threads`). From then on the numbers behind it come next, too, for everybody on the machine, and these
//! are the other threads' as a rule, since threads are born one after another. So each of the numbers is first given to a
//! child of this process that ends at once, and keeps it until it is waited for.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::super::graph::Pid;
use super::super::sys::clone3::{Shared, Side, SingleThreaded, fork_exact};
use super::super::sys::trial::Call;

/// How long all numbers together are waited for that somebody else was quicker to get.
const LIMIT: Duration = Duration::from_secs(3);
/// Pause before a look whether a number is free again.
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// The numbers that are held; each is given back at the latest when this is dropped.
#[derive(Debug)]
pub struct Held {
    by: BTreeSet<Pid>,
    until: Instant,
}

impl Held {
    /// None yet.
    pub fn new() -> Self {
        Self { by: BTreeSet::new(), until: Instant::now() + LIMIT }
    }

    /// Holds a number, if it is free and this process may ask for it.
    pub fn hold(&mut self, number: Pid) -> bool {
        if !Call::Clone3.may_be_made() {
            return false;
        }
        let Ok(proof) = SingleThreaded::check() else { return false };
        match fork_exact(&proof, number, 0, Shared::default()) {
            // SAFETY: ends the child at once, without running anything of its parent's.
            Ok(Side::Child) => unsafe { libc::_exit(0) },
            Ok(Side::Parent(child)) => {
                // It has ended before anybody waits for the number.
                let ended = libc::WEXITED | libc::WNOWAIT | libc::__WALL;
                // SAFETY: siginfo_t is plain data, for which zeros are a value.
                let mut told = unsafe { std::mem::zeroed() };
                // SAFETY: `told` lives across the call; the child is this process's, and stays.
                unsafe { libc::waitid(libc::P_PID, child.unsigned_abs(), &mut told, ended) };
                self.by.insert(child);
                true
            }
            Err(_) => false,
        }
    }

    /// Whether a number is held.
    pub fn has(&self, number: Pid) -> bool {
        self.by.contains(&number)
    }

    /// Frees a number. It is free when this returns (kernel/exit.c, release_task).
    pub fn give_back(&mut self, number: Pid) {
        if self.by.remove(&number) {
            // SAFETY: takes numbers and a null pointer, which waitpid(2) allows; the child is this process's.
            unsafe { libc::waitpid(number, std::ptr::null_mut(), libc::__WALL) };
        }
    }

    /// Holds a number that has slipped away, as soon as whoever has got it ends; false if that takes too long.
    pub fn hold_again(&mut self, number: Pid) -> bool {
        while Instant::now() < self.until {
            if self.hold(number) {
                return true;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        false
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        while let Some(number) = self.by.first().copied() {
            self.give_back(number);
        }
    }
}
