//! The memory of one process that is filled while it runs.
//!
//! Two rules make it exact. No page is filled while a message of the kernel is read and applied (`gate`): what was decided
//! by the table of before has happened before. And the kernel fills nothing (EAGAIN) from the moment when the program
//! changes its mappings until the message of that has been read.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::super::error::{EngineError, Result};
use super::super::graph::{Pid, StoredWindow, WINDOW_PAGES, too_short};
use super::super::sys::userfault::{MissingPages, Told};
use super::order::Change;
use super::table::Table;
use ckpt_store::ChunkReader;

/// How long a fill waits for a message to be read that it has to wait for.
const MOMENT: Duration = Duration::from_micros(50);
/// How long a change of mappings may take from its beginning until it is told.
const WITHOUT_A_WORD: Duration = Duration::from_secs(30);
/// How long the machine may have no memory for a page.
const WITHOUT_MEMORY: Duration = Duration::from_secs(10);
/// So often in a row a page that is not watched must be found so: the first time it may have been on its way elsewhere.
const SURELY: u32 = 3;

/// Where the image has the pages of a process.
#[derive(Debug)]
pub(super) struct Windows {
    /// Ascending.
    pub(super) all: Vec<StoredWindow>,
    pub(super) page: u64,
}

impl Windows {
    /// The window that has a page.
    fn of(&self, origin: u64) -> Result<&StoredWindow> {
        let span = WINDOW_PAGES * self.page;
        let address = origin / span * span;
        let bit = 1 << ((origin - address) / self.page);
        let from = self.all.partition_point(|window| window.address < address);
        let here = self.all[from..].iter().take_while(|window| window.address == address);
        let none = || EngineError::Damaged(format!("it has no page for {origin:#x}"));
        here.into_iter().find(|window| window.pages & bit != 0).ok_or_else(none)
    }
}

/// What a context's locks hold.
#[derive(Debug)]
struct State {
    table: Table,
    /// Behind which nobody has begun to fill what nobody waits for.
    cursor: u64,
    /// How many fill that now.
    busy: usize,
    /// The process has other memory, or none; or all is filled, and the watch ends.
    is_gone: bool,
}

/// One process's memory.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) id: u32,
    pid: Pid,
    missing: MissingPages,
    windows: Arc<Windows>,
    gate: RwLock<()>,
    state: Mutex<State>,
    /// Counts who is not closed yet. The last field: it goes behind the descriptor.
    open: Arc<()>,
}

/// What the kernel has told.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Pages for which somebody waits.
    pub(super) faults: Vec<u64>,
    /// Children, each with what was to be filled in its parent when it was forked.
    pub(super) children: Vec<(MissingPages, Table)>,
}

/// A run of pages that nobody waits for: start and end.
pub(super) type Stretch = (u64, u64);

impl Context {
    pub(super) fn new(
        id: u32,
        pid: Pid,
        missing: MissingPages,
        (windows, table): (Arc<Windows>, Table),
        open: Arc<()>,
    ) -> Self {
        let state = Mutex::new(State { table, cursor: 0, busy: 0, is_gone: false });
        Self { id, pid, missing, windows, gate: RwLock::new(()), state, open }
    }

    /// That of a child.
    pub(super) fn child(&self, id: u32, missing: MissingPages, table: Table) -> Self {
        Self::new(id, self.pid, missing, (self.windows.clone(), table), self.open.clone())
    }

    /// Bytes that are still to be filled.
    pub(super) fn bytes(&self) -> u64 {
        self.state().table.bytes()
    }

    /// A copy of its descriptor.
    pub(super) fn copy_of_descriptor(&self) -> std::io::Result<std::os::fd::OwnedFd> {
        self.missing.try_clone()
    }

    /// Whether nothing is left to do for it.
    pub(super) fn is_done(&self) -> bool {
        let state = self.state();
        state.is_gone || (state.table.is_done() && state.busy == 0)
    }

    /// Nobody takes what the kernel tells of it any more: who still fills anything in it must not wait for that, but let go
    /// of it. With the last one the kernel ends the watch.
    pub(super) fn close(&self) {
        self.state().is_gone = true;
    }

    /// Whether the process still has this memory.
    pub(super) fn lives(&self) -> bool {
        if self.state().is_gone {
            return false;
        }
        self.missing.look(self.nowhere(), &self.zeros()) != Err(Errno::ESRCH)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the kernel has to tell. What the program has done to its memory is taken over once nothing else is on its way:
    /// threads are told of in another order than they came, and only then all are there.
    ///
    /// # Errors
    /// A message that is not understood, or that leaves unknown what is where.
    pub(super) fn news(&self) -> Result<News> {
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut news = News::default();
        let mut changes = Vec::new();
        let begun = Instant::now();
        loop {
            self.listen(&mut news.faults, &mut changes)?;
            if changes.is_empty() {
                return Ok(news);
            }
            match self.missing.look(self.nowhere(), &self.zeros()) {
                Err(Errno::EAGAIN) => self.wait_for(Errno::EAGAIN, 0, begun)?,
                _ => break,
            }
        }
        let mut state = self.state();
        let applied = state.table.apply(changes, |child, table| news.children.push((child, table)));
        let doubtful = applied.map_err(|error| {
            EngineError::odd(format!("the memory of process {}", self.pid), error.to_string())
        })?;
        for (start, end) in doubtful {
            let Some((at, ..)) = state.table.first_within(start, end) else { continue };
            if self.missing.is_absent(at, self.windows.page, self.nowhere()) {
                state.table.forget(start, end);
            }
        }
        // What has moved to below it is found as well.
        state.cursor = 0;
        Ok(news)
    }

    /// Reads all messages that are there.
    fn listen(&self, faults: &mut Vec<u64>, changes: &mut Vec<Change<MissingPages>>) -> Result<()> {
        loop {
            let told = self.missing.next().map_err(|errno| {
                EngineError::system("read", format!("a userfaultfd of process {}", self.pid), errno)
            })?;
            match told {
                None => return Ok(()),
                Some(Told::Fault(address)) => {
                    faults.push(address / self.windows.page * self.windows.page);
                }
                Some(Told::Forked(child)) => changes.push(Change::Forked(child)),
                Some(Told::Removed(start, end)) => changes.push(Change::Removed(start, end)),
                Some(Told::Unmapped(start, end)) => changes.push(Change::Unmapped(start, end)),
                Some(Told::Moved { from, to, length }) => {
                    changes.push(Change::Moved { from, to, length });
                }
            }
        }
    }

    /// An address that is nobody's.
    fn nowhere(&self) -> u64 {
        16 * self.windows.page
    }

    fn zeros(&self) -> Vec<u8> {
        vec![0; self.windows.page as usize]
    }

    /// The next pages that nobody has begun to fill. Whoever takes them fills them ([`fill`](Self::fill)).
    pub(super) fn next(&self) -> Option<Stretch> {
        let mut state = self.state();
        if state.is_gone {
            return None;
        }
        let mut found = state.table.first_within(state.cursor, u64::MAX);
        if found.is_none() && state.busy == 0 {
            state.cursor = 0;
            found = state.table.first_within(0, u64::MAX);
        }
        let (start, end, origin) = found?;
        let span = WINDOW_PAGES * self.windows.page;
        let end = end.min(start + (span - origin % span));
        state.cursor = end;
        state.busy += 1;
        Some((start, end))
    }

    /// Fills such pages.
    ///
    /// # Errors
    /// Pages that can't be had.
    pub(super) fn fill(
        &self,
        (start, end): Stretch,
        reader: &ChunkReader,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let mut run = || {
            while let Some((at, _, _)) = self.first_within(start, end) {
                self.bring(at, reader, bytes)?;
            }
            Ok(())
        };
        let filled = run();
        self.state().busy -= 1;
        filled
    }

    fn first_within(&self, start: u64, end: u64) -> Option<(u64, u64, u64)> {
        let state = self.state();
        if state.is_gone { None } else { state.table.first_within(start, end) }
    }

    /// Fills a page that somebody waits for, or has waited for, and wakes them.
    ///
    /// # Errors
    /// A page that can't be had.
    pub(super) fn serve(
        &self,
        address: u64,
        reader: &ChunkReader,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        while !self.bring(address, reader, bytes)? && !self.put_zeros(address)? {}
        // Whoever still finds nothing asks again.
        self.missing.wake(address, self.windows.page);
        Ok(())
    }

    /// Fills the page at an address, with all of the image's chunk that it is in. False: there is nothing to be filled.
    fn bring(&self, address: u64, reader: &ChunkReader, bytes: &mut Vec<u8>) -> Result<bool> {
        let Some((_, _, origin)) = self.first_within(address, address + self.windows.page) else {
            return Ok(self.state().is_gone);
        };
        let window = self.windows.of(origin)?;
        reader.read(&window.chunk, bytes)?;
        self.deliver(window, bytes, address.wrapping_sub(origin))?;
        Ok(true)
    }

    /// Puts zeros where the image has nothing. False: it has something by now.
    fn put_zeros(&self, address: u64) -> Result<bool> {
        let page = self.windows.page;
        let begun = Instant::now();
        loop {
            let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
            if self.state().is_gone {
                return Ok(true);
            }
            if self.first_within(address, address + page).is_some() {
                return Ok(false);
            }
            match self.missing.zero(address, page) {
                // Somebody has put something there; it is no more, or is not watched.
                Ok(()) | Err(Errno::EEXIST | Errno::ENOENT) => return Ok(true),
                Err(Errno::ESRCH) => {
                    self.state().is_gone = true;
                    return Ok(true);
                }
                Err(errno) => {
                    drop(gate);
                    self.wait_for(errno, address, begun)?;
                }
            }
        }
    }

    /// Copies all pages of a window that are still to be filled and lie as far from their place in the image as `shift` says.
    fn deliver(&self, window: &StoredWindow, bytes: &[u8], shift: u64) -> Result<()> {
        let page = self.windows.page;
        let (mut most, mut absent) = (WINDOW_PAGES * page, 0);
        let begun = Instant::now();
        loop {
            let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
            let Some((start, end)) = self.run_of(window, shift) else { return Ok(()) };
            let length = (end - start).min(most);
            let index = (start.wrapping_sub(shift) - window.address) / page;
            let first = window.place(index, page);
            let part = bytes.get(first..first + length as usize).ok_or_else(too_short)?;
            let (done, answer) = self.missing.copy(start, part);
            let mut state = self.state();
            state.table.forget(start, start + done);
            if done > 0 {
                absent = 0;
                continue;
            }
            match answer {
                Ok(()) => {}
                // Another thread was faster.
                Err(Errno::EEXIST) => state.table.forget(start, start + page),
                Err(Errno::ESRCH) => {
                    state.is_gone = true;
                    return Ok(());
                }
                // Parts of it are other mappings by now (mprotect), or are about to be.
                Err(Errno::ENOENT) if length > page => most = page,
                Err(Errno::ENOENT) if absent < SURELY => {
                    absent += 1;
                    drop((state, gate));
                    std::thread::sleep(MOMENT);
                }
                // It is not there any more, and no message of it is on its way: that would have been EAGAIN.
                Err(Errno::ENOENT) => {
                    state.table.forget(start, start + page);
                    absent = 0;
                }
                Err(errno) => {
                    drop((state, gate));
                    self.wait_for(errno, start, begun)?;
                }
            }
        }
    }

    /// The first run of a window's pages that is to be filled, and lies together in its chunk: start and end.
    fn run_of(&self, window: &StoredWindow, shift: u64) -> Option<Stretch> {
        let state = self.state();
        if state.is_gone {
            return None;
        }
        window.runs(self.windows.page).into_iter().find_map(|(origin, length)| {
            let from = origin.wrapping_add(shift);
            let mut at = from;
            while let Some((start, end, found)) =
                state.table.first_within(at, from.wrapping_add(length))
            {
                if start.wrapping_sub(found) == shift {
                    return Some((start, end));
                }
                at = end;
            }
            None
        })
    }

    /// Waits for what passes.
    fn wait_for(&self, errno: Errno, address: u64, begun: Instant) -> Result<()> {
        let passes = match errno {
            // Until a message is read that is on its way.
            Errno::EAGAIN => begun.elapsed() < WITHOUT_A_WORD,
            Errno::ENOMEM => begun.elapsed() < WITHOUT_MEMORY,
            _ => false,
        };
        if passes {
            std::thread::sleep(MOMENT);
            return Ok(());
        }
        let what = format!("memory of process {} at {address:#x}", self.pid);
        Err(EngineError::system("fill", what, errno))
    }
}

impl AsFd for Context {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.missing.as_fd()
    }
}
