//! The table: memory that init shares with all helpers. Init writes the phase on it, the helpers
//! tick off what they have done, and the first who fails writes down why.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use super::super::super::graph::Pid;
use super::super::super::sys::futex;
use super::super::super::sys::rounds::Counter;

/// Longest error text in bytes; a longer one is cut.
const TEXT: usize = 1024;
/// The phase that ends everybody.
const ABORTED: u32 = u32::MAX;
/// How long a sleeper sleeps at most before it looks again.
const NAP: Duration = Duration::from_millis(200);

#[repr(C)]
struct Head {
    phase: AtomicU32,
    done: AtomicU32,
    target: AtomicU32,
    failed: AtomicU32,
    written: AtomicU32,
    turn: AtomicU32,
    counter: Counter,
    text: [AtomicU8; TEXT],
}

/// The shared memory. Never unmapped by helpers: they leave by _exit(2).
pub(super) struct NumberTable {
    head: NonNull<Head>,
    slots: NonNull<AtomicU32>,
    /// The numbers that helpers have got; 0: not born yet.
    numbers: NonNull<AtomicU32>,
    count: usize,
}

impl NumberTable {
    /// A table for `count` helpers.
    pub(super) fn new(count: usize) -> io::Result<Self> {
        let length = Self::length(count);
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let head = NonNull::new(memory.cast::<Head>())
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY: one Head further lies within the mapping, and is aligned for an AtomicU32.
        let slots: NonNull<AtomicU32> = unsafe { head.add(1) }.cast();
        // SAFETY: as many atomics further lies within the mapping, too.
        let numbers = unsafe { slots.add(count) };
        Ok(Self { head, slots, numbers, count })
    }

    fn length(count: usize) -> usize {
        size_of::<Head>() + 2 * count * size_of::<AtomicU32>()
    }

    fn head(&self) -> &Head {
        // SAFETY: mapped as long as self lives, zeroed by the kernel (valid for atomics), and only
        // ever accessed through atomics, by this process and by others.
        unsafe { self.head.as_ref() }
    }

    fn slots(&self) -> &[AtomicU32] {
        // SAFETY: `count` atomics behind the head are mapped; otherwise as in `head`.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr(), self.count) }
    }

    fn numbers(&self) -> &[AtomicU32] {
        // SAFETY: `count` atomics behind the slots are mapped; otherwise as in `head`.
        unsafe { std::slice::from_raw_parts(self.numbers.as_ptr(), self.count) }
    }

    /// The number that a helper has got, once it has been born.
    pub(super) fn number(&self, helper: usize) -> Option<Pid> {
        Pid::try_from(self.numbers()[helper].load(SeqCst)).ok().filter(|number| *number > 0)
    }

    /// How far the kernel has come with its numbers: for whoever's turn it is.
    pub(super) fn counter(&self) -> &Counter {
        &self.head().counter
    }

    /// Sleeps until it is this one's turn; false if everybody is to end instead.
    pub(super) fn await_turn(&self, rank: u32) -> bool {
        loop {
            let turn = self.head().turn.load(SeqCst);
            if self.is_aborted() {
                return false;
            }
            if turn >= rank {
                return true;
            }
            futex::wait(&self.head().turn, turn, NAP);
        }
    }

    /// The turn after this one has come.
    pub(super) fn end_turn(&self, rank: u32) {
        self.head().turn.store(rank + 1, SeqCst);
        futex::wake_all(&self.head().turn);
    }

    /// Notes that a helper has been born, and its number.
    pub(super) fn born(&self, helper: usize, number: Pid) {
        self.numbers()[helper].store(number.unsigned_abs(), SeqCst);
        let _ = self.slots()[helper].compare_exchange(0, 1, SeqCst, SeqCst);
    }

    /// Helpers that have been born, whether they live or not.
    pub(super) fn all_born(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.count).filter(|helper| self.slots()[*helper].load(SeqCst) != 0)
    }

    /// Opens a phase, in which `target` helpers are to tick.
    pub(super) fn open(&self, phase: u32, target: usize) {
        self.head().done.store(0, SeqCst);
        self.head().target.store(u32::try_from(target).unwrap_or(u32::MAX), SeqCst);
        self.head().phase.store(phase, SeqCst);
        futex::wake_all(&self.head().phase);
    }

    /// Tells everybody to end.
    pub(super) fn abort(&self) {
        self.head().phase.store(ABORTED, SeqCst);
        futex::wake_all(&self.head().phase);
    }

    /// Whether everybody is to end.
    pub(super) fn is_aborted(&self) -> bool {
        self.head().phase.load(SeqCst) == ABORTED
    }

    /// Sleeps until the phase is open; false if everybody is to end instead.
    pub(super) fn await_phase(&self, phase: u32) -> bool {
        loop {
            match self.head().phase.load(SeqCst) {
                ABORTED => return false,
                open if open >= phase => return true,
                open => futex::wait(&self.head().phase, open, NAP),
            }
        }
    }

    /// A helper's tick for a phase.
    pub(super) fn tick(&self, helper: usize, phase: u32) {
        // Slot values are one more than the phase: 1 is "born".
        self.slots()[helper].store(phase + 1, SeqCst);
        let done = self.head().done.fetch_add(1, SeqCst) + 1;
        if done == self.head().target.load(SeqCst) {
            futex::wake_all(&self.head().done);
        }
    }

    /// Sleeps a little, until all have ticked or somebody failed: whether one of these is true.
    pub(super) fn nap(&self) -> bool {
        let done = self.head().done.load(SeqCst);
        let over =
            || self.head().failed.load(SeqCst) != 0 || done >= self.head().target.load(SeqCst);
        if !over() {
            futex::wait(&self.head().done, done, NAP);
        }
        over() || self.head().done.load(SeqCst) >= self.head().target.load(SeqCst)
    }

    /// What changes whenever somebody gets on in the open phase: births, ticks and turns.
    pub(super) fn progress(&self) -> (usize, u32, u32) {
        let head = self.head();
        (self.all_born().count(), head.done.load(SeqCst), head.turn.load(SeqCst))
    }

    /// Whether a helper has ticked for this phase.
    pub(super) fn has_ticked(&self, helper: usize, phase: u32) -> bool {
        self.slots()[helper].load(SeqCst) > phase
    }

    /// Writes down why a helper failed, if it is the first.
    pub(super) fn fail(&self, text: &str) {
        self.head().fail(text);
    }

    /// For a helper, which keeps the table to its end, to tell of its failure from anywhere.
    pub(super) fn witness(&self) -> Witness {
        Witness(self.head)
    }

    /// The first failure's text.
    pub(super) fn failure(&self) -> Option<String> {
        let head = self.head();
        if head.failed.load(SeqCst) == 0 {
            return None;
        }
        // Its writer may be in the middle of it, or killed there: a short while must do.
        for _ in 0..50 {
            if head.written.load(SeqCst) != 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let bytes: Vec<u8> =
            head.text.iter().map(|byte| byte.load(SeqCst)).take_while(|byte| *byte != 0).collect();
        Some(String::from_utf8_lossy(&bytes).replace('\n', " "))
    }
}

impl Head {
    fn fail(&self, text: &str) {
        if self.failed.swap(1, SeqCst) != 0 {
            return;
        }
        for (place, byte) in self.text.iter().zip(text.bytes().chain([0])) {
            place.store(byte, SeqCst);
        }
        self.written.store(1, SeqCst);
        // Init sleeps on `done`, whose value has to change for a sleeper about to fall asleep.
        self.done.fetch_add(1, SeqCst);
        futex::wake_all(&self.done);
    }
}

/// A table, in the hands of a helper.
pub(super) struct Witness(NonNull<Head>);

// SAFETY: helpers never unmap the table, and all access is through atomics.
unsafe impl Send for Witness {}
// SAFETY: as above.
unsafe impl Sync for Witness {}

impl Witness {
    /// Writes down why it failed, if it is the first.
    pub(super) fn fail(&self, text: &str) {
        // SAFETY: mapped until the helper ends, zeroed by the kernel, and only ever accessed through atomics.
        unsafe { self.0.as_ref() }.fail(text);
    }
}

impl Drop for NumberTable {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, with the same length; no reference outlives self.
        unsafe {
            libc::munmap(self.head.as_ptr().cast(), Self::length(self.count));
        }
    }
}
