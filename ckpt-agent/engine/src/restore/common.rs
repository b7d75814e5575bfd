//! Private memory that several processes have in common since a fork. It is put in place in the init before that forks them,
//! so that they have it in common again until one of them writes. What differs in a process is written to that one alone.
//!
//! All of this only saves memory: an area that cannot be had here (something of the init's own is in the way) is made in each
//! process by itself, as any other.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::error::Result;
use super::super::graph::{
    Area, Backing, Pid, ProcessImage, Protection, StoredWindow, WINDOW_PAGES, too_short,
};
use super::super::job_init::World;
use super::super::sys::abi;
use super::super::sys::memory_map::Means;
use super::super::sys::page::page_size;
use super::super::trace::ProcessMemory;
use super::image::Processes;
use super::mapped::MappedFiles;
use ckpt_store::{ChunkReader, ChunkRef};

/// Anonymous memory of the init.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    no_reserve: bool,
}

impl Range {
    fn holds(self, area: &Area) -> bool {
        self.no_reserve == area.advice.no_reserve
            && self.start <= area.start
            && area.end <= self.end
    }
}

/// What is put in place. The init's own part of it ends with this.
#[derive(Debug)]
pub struct Common {
    ranges: Vec<Range>,
    /// By address: which pages there are, and what of.
    windows: BTreeMap<u64, StoredWindow>,
    page: u64,
}

impl Common {
    /// Finds it, and fills it from the store.
    ///
    /// # Errors
    /// Damage.
    pub fn prepare(
        processes: &Processes,
        reader: &ChunkReader,
        files: &MappedFiles,
    ) -> Result<Self> {
        let page = page_size();
        let mut common = Self { ranges: Vec::new(), windows: BTreeMap::new(), page };
        // Without numbers of their own processes are forked over and over until theirs is due, each time with all that there
        // is; where heaps have to be walked to, nothing may be in their way.
        let may = World::of_this_init() == World::Own && files.means() != Means::Nothing;
        if !may || processes.len() < 2 || is_commitment_strict() {
            return Ok(common);
        }
        let ranges = ranges(processes);
        let windows = in_common(processes, &ranges, page);
        for (range, windows) in ranges.into_iter().zip(windows) {
            if !windows.is_empty() && map(range) {
                common.ranges.push(range);
                common.windows.extend(windows);
            }
        }
        common.ranges.sort_unstable_by_key(|range| range.start);
        common.fill(reader)?;
        Ok(common)
    }

    /// Fills it with as many threads as there are cores; they have ended when this returns.
    fn fill(&self, reader: &ChunkReader) -> Result<()> {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let windows: Vec<&StoredWindow> = self.windows.values().collect();
        let next = AtomicUsize::new(0);
        let run = || -> Result<()> {
            let mut memory = ProcessMemory::of(std::process::id() as i32);
            let mut bytes = Vec::new();
            while let Some(window) = windows.get(next.fetch_add(1, Ordering::Relaxed)) {
                reader.read(&window.chunk, &mut bytes)?;
                bytes = window.taken(bytes, self.page)?;
                let mut from = 0;
                for (address, length) in window.runs(self.page) {
                    let from_here = self.ranges.partition_point(|range| range.end <= address);
                    for range in &self.ranges[from_here..] {
                        if range.start >= address + length {
                            break;
                        }
                        let (start, end) =
                            (address.max(range.start), (address + length).min(range.end));
                        let first = from + (start - address) as usize;
                        let part = bytes.get(first..first + (end - start) as usize);
                        memory.write(start, part.ok_or_else(too_short)?)?;
                    }
                    from += length as usize;
                }
            }
            Ok(())
        };
        on_all_cores(windows.len(), run)
    }

    /// Whether a process has the area by inheritance.
    pub fn has(&self, area: &Area) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= area.start);
        is_eligible(area) && self.ranges.get(at).is_some_and(|range| range.holds(area))
    }

    /// Where a process has inherited pages that it does not have: runs of them (address, bytes).
    pub fn surplus(&self, image: &ProcessImage) -> Vec<(u64, u64)> {
        let span = WINDOW_PAGES * self.page;
        let mut own: BTreeMap<u64, u64> = BTreeMap::new();
        for window in &image.pages {
            *own.entry(window.address).or_default() |= window.pages;
        }
        let mut runs = Vec::new();
        for area in image.areas.iter().filter(|area| self.has(area)) {
            let first = area.start / span * span;
            for (address, window) in self.windows.range(first..area.end) {
                let pages = window.pages & !own.get(address).copied().unwrap_or(0);
                let pages = pages & within(area, *address, self.page);
                runs.extend(window.only(pages).runs(self.page));
            }
        }
        runs
    }

    /// Which pages of one of a process's windows it has inherited, and whether these are all of them, with their content.
    pub fn inherited(&self, image: &ProcessImage, window: &StoredWindow) -> (u64, bool) {
        let Some(here) = self.windows.get(&window.address) else { return (0, false) };
        let span = WINDOW_PAGES * self.page;
        let (start, end) = (window.address, window.address + span);
        let from = image.areas.partition_point(|area| area.end <= start);
        let areas = image.areas[from..].iter().take_while(|area| area.start < end);
        let kept = areas
            .filter(|area| self.has(area))
            .fold(0, |pages, area| pages | within(area, start, self.page));
        let pages = here.pages & window.pages & kept;
        let same = here.chunk == window.chunk && here.has == window.has;
        (pages, same && pages == window.pages)
    }
}

impl Drop for Common {
    fn drop(&mut self) {
        for range in &self.ranges {
            // SAFETY: `map` has made it at a place where nothing was, and this process keeps nothing in it.
            unsafe { libc::munmap(range.start as *mut _, (range.end - range.start) as usize) };
        }
    }
}

/// Fills so many windows: by as many threads as there are cores, which have ended when this returns, or here where they are few.
///
/// # Errors
/// Of `run`.
pub fn on_all_cores(windows: usize, run: impl Fn() -> Result<()> + Sync) -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    if windows < 64 || threads == 1 {
        return run();
    }
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(&run)).collect();
        handles.into_iter().try_for_each(|handle| {
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

/// Pages of a window that lie in an area.
pub(super) fn within(area: &Area, window: u64, page: u64) -> u64 {
    let place = |address: u64| address.saturating_sub(window) / page;
    let (first, last) = (place(area.start), place(area.end).min(WINDOW_PAGES));
    let below = |count: u64| 1_u64.checked_shl(count as u32).map_or(u64::MAX, |bit| bit - 1);
    below(last) & !below(first)
}

/// What a fork hands down as it is, and may be written to by whoever fills it.
fn is_eligible(area: &Area) -> bool {
    let advice = &area.advice;
    let special = [libc::MADV_DONTFORK, libc::MADV_WIPEONFORK, libc::MADV_NOHUGEPAGE];
    area.backing == Backing::Anonymous
        && !area.shared
        && area.protection.0 & Protection::EXEC == 0
        && !advice.grows_down
        && !advice.locked
        && !advice.droppable
        && advice.huge.is_none()
        && !advice.advise.iter().any(|value| special.contains(value))
}

/// Where areas of several processes overlap, or touch each other: ascending, those that memory is reserved for first. Each
/// of them lies in one range as a whole: it must be one mapping, or mremap(2) would fail in it.
fn ranges(processes: &Processes) -> Vec<Range> {
    let areas = processes
        .values()
        .filter(|image| !image.thp_disable)
        .flat_map(|image| image.areas.iter().filter(|area| is_eligible(area)));
    let mut all: Vec<Range> = areas
        .map(|area| {
            let no_reserve = area.advice.no_reserve;
            Range { start: area.start, end: area.end, no_reserve }
        })
        .collect();
    all.sort_unstable_by_key(|range| (range.no_reserve, range.start));
    let mut joined: Vec<Range> = Vec::new();
    for range in all {
        match joined.last_mut() {
            Some(last) if last.no_reserve == range.no_reserve && range.start <= last.end => {
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// What processes have in one window.
#[derive(Debug, Default)]
struct Contents {
    /// Each chunk once, in the order in which they were found, with all pages that any process takes from it, and how many
    /// processes do.
    found: Vec<(StoredWindow, u32)>,
    /// By chunk and the pages that it has.
    places: HashMap<(ChunkRef, u64), usize>,
    /// How many processes have anything here.
    holders: u32,
    last: Option<Pid>,
}

impl Contents {
    fn count(&mut self, pid: Pid, window: &StoredWindow) {
        if self.last.replace(pid) != Some(pid) {
            self.holders += 1;
        }
        let next = self.found.len();
        let place = *self.places.entry((window.chunk, window.has)).or_insert(next);
        match self.found.get_mut(place) {
            Some((known, count)) => {
                known.pages |= window.pages;
                *count += 1;
            }
            None => self.found.push((*window, 1)),
        }
    }

    fn are_any_alike(&self) -> bool {
        self.found.iter().any(|(_, count)| *count > 1)
    }

    /// The chunk that most processes take pages from, or the first, where it is more than one process that has something.
    fn of_several(&self) -> Option<StoredWindow> {
        let most = self.found.iter().map(|(_, count)| *count).max()?;
        let first = self.found.iter().find(|(_, count)| *count == most)?;
        (self.holders > 1).then_some(first.0)
    }
}

/// The windows that more than one process has in each range: of each the chunk that most of them take pages from, or the
/// first. None, where no two processes take any from the same chunk: then they are no relatives, or have nothing left in
/// common.
fn in_common(processes: &Processes, ranges: &[Range], page: u64) -> Vec<Vec<(u64, StoredWindow)>> {
    let mut found: Vec<BTreeMap<u64, Contents>> = ranges.iter().map(|_| BTreeMap::new()).collect();
    for image in processes.values().filter(|image| !image.thp_disable) {
        // Several areas may lie in one window.
        let mut counted = HashSet::new();
        for area in image.areas.iter().filter(|area| is_eligible(area)) {
            let key = (area.advice.no_reserve, area.start);
            let place = ranges.partition_point(|range| (range.no_reserve, range.end) <= key);
            if !ranges.get(place).is_some_and(|range| range.holds(area)) {
                continue;
            }
            let first = area.start / (WINDOW_PAGES * page) * (WINDOW_PAGES * page);
            let from = image.pages.partition_point(|window| window.address < first);
            let windows = image.pages.iter().enumerate().skip(from);
            for (index, window) in windows.take_while(|(_, window)| window.address < area.end) {
                let here = window.pages & within(area, window.address, page) != 0;
                if here && counted.insert(index) {
                    let contents = found[place].entry(window.address).or_default();
                    contents.count(image.pid, window);
                }
            }
        }
    }
    let several =
        |windows: BTreeMap<u64, Contents>| match windows.values().any(Contents::are_any_alike) {
            true => windows.iter().filter_map(|(at, one)| Some((*at, one.of_several()?))).collect(),
            false => Vec::new(),
        };
    found.into_iter().map(several).collect()
}

/// Makes a range in this process, if nothing is there.
fn map(range: Range) -> bool {
    let length = (range.end - range.start) as usize;
    let reserve = if range.no_reserve { libc::MAP_NORESERVE } else { 0 };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | abi::MAP_FIXED_NOREPLACE | reserve;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let wanted = range.start as *mut libc::c_void;
    // SAFETY: MAP_FIXED_NOREPLACE replaces nothing; a kernel that does not know it takes the address for a hint.
    let made = unsafe { libc::mmap(wanted, length, protection, flags, -1, 0) };
    if made != wanted && made != libc::MAP_FAILED {
        // SAFETY: the mapping made right above, which nobody knows of.
        unsafe { libc::munmap(made, length) };
    }
    made == wanted
}

/// Whether the kernel promises all memory in advance: then each fork would count all of it once more.
fn is_commitment_strict() -> bool {
    std::fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.trim() == "2")
}
