//! Which pages of a process are its own and have to be stored.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;

use super::super::error::{EngineError, Result};

/// Page categories of PAGEMAP_SCAN (include/uapi/linux/fs.h).
mod category {
    /// In memory whose writes are watched without waiting (UFFD_FEATURE_WP_ASYNC).
    pub const WATCHED: u64 = 1;
    /// Written since it was protected, or not protected at all.
    pub const WRITTEN: u64 = 1 << 1;
    pub const FILE: u64 = 1 << 2;
    pub const PRESENT: u64 = 1 << 3;
    pub const SWAPPED: u64 = 1 << 4;
    pub const ZERO: u64 = 1 << 5;
    /// Guard regions, since Linux 6.15, which has them in memory of files, too.
    pub const GUARD: u64 = 1 << 8;
}

/// Bits of /proc/PID/pagemap (Documentation/admin-guide/mm/pagemap.rst).
mod bit {
    pub const PRESENT: u64 = 1 << 63;
    pub const SWAPPED: u64 = 1 << 62;
    pub const FILE: u64 = 1 << 61;
    pub const GUARD: u64 = 1 << 58;
}

/// struct page_region
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// struct pm_scan_arg
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// _IOWR('f', 16, struct pm_scan_arg)
const PAGEMAP_SCAN: u64 = 0xc060_6610;
/// PM_SCAN_WP_MATCHING: protects what it finds.
const PROTECTS: u64 = 1;
/// Regions asked for at once.
const REGIONS: usize = 4096;

/// What a range holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// Ranges (start, end) of private pages.
    pub pages: Vec<(u64, u64)>,
    /// Ranges of guard regions (MADV_GUARD_INSTALL).
    pub guards: Vec<(u64, u64)>,
}

/// What is known of a process's own pages by the watch of its writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watched {
    /// Pages that were not written since they were protected.
    pub unwritten: Vec<(u64, u64)>,
    /// Pages of memory that is not watched.
    pub unwatched: Vec<(u64, u64)>,
    /// Those of them that bear the mark of protection all the same.
    pub marked: Vec<(u64, u64)>,
}

/// Looks into the page tables of one process.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    path: String,
    page: u64,
    scans: bool,
}

impl Pagemap {
    /// Of the process with this number on this machine.
    ///
    /// # Errors
    /// Where it cannot be opened.
    pub fn of(host_pid: i32, page: u64) -> Result<Self> {
        let path = format!("/proc/{host_pid}/pagemap");
        let file = File::open(&path).map_err(|error| EngineError::system("open", &path, error))?;
        Ok(Self { file, path, page, scans: true })
    }

    /// Private pages between two addresses. Zero pages that were only read are left out where the
    /// kernel tells them.
    ///
    /// # Errors
    /// Failed reads.
    pub fn stored(&mut self, start: u64, end: u64) -> Result<Stored> {
        if self.scans {
            match self.by_scan(start, end) {
                Ok(found) => return Ok(found),
                Err(error) if is_unknown(&error) => self.scans = false,
                Err(error) => return Err(error),
            }
        }
        self.by_entries(start, end)
    }

    /// Pages between two addresses that are the kernel's page of zeros. `None`: this kernel does not tell.
    ///
    /// # Errors
    /// Failed reads.
    pub fn zeros(&self, start: u64, end: u64) -> Result<Option<Vec<(u64, u64)>>> {
        self.of_category(category::ZERO, start, end)
    }

    /// What is of this category between two addresses. `None`: this kernel does not tell.
    fn of_category(&self, category: u64, start: u64, end: u64) -> Result<Option<Vec<(u64, u64)>>> {
        let wanted = ScanArguments {
            category_mask: category,
            return_mask: category,
            ..ScanArguments::default()
        };
        let mut found = Vec::new();
        let scanned = self.scan(wanted, &[(start, end)], |region| {
            join(&mut found, region.start, region.end);
            Ok(())
        });
        match scanned {
            Ok(()) => Ok(Some(found)),
            Err(error) if is_unknown(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the watch of the process's writes tells of the pages of private memory that is no file's, between these addresses:
    /// of others it would have to be asked whether they show a file's content, for which the kernel looks at each page
    /// itself, not at the page table alone, and takes four times as long. Pages that are the kernel's page of zeros are
    /// nobody's own and not told: a write makes new ones of them.
    ///
    /// # Errors
    /// Failed reads; a kernel before Linux 6.7.
    pub fn watched(&self, memory: &[(u64, u64)]) -> Result<Watched> {
        let wanted = ScanArguments {
            category_inverted: category::ZERO,
            category_mask: category::ZERO,
            category_anyof_mask: category::PRESENT | category::SWAPPED,
            return_mask: category::WATCHED | category::WRITTEN,
            ..ScanArguments::default()
        };
        let mut found = Watched::default();
        self.scan(wanted, memory, |region| {
            let is_watched = region.categories & category::WATCHED != 0;
            let is_marked = region.categories & category::WRITTEN == 0;
            if !is_watched {
                join(&mut found.unwatched, region.start, region.end);
            }
            if is_marked {
                let kind = if is_watched { &mut found.unwritten } else { &mut found.marked };
                join(kind, region.start, region.end);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Protects pages of the same kind of memory, as far as their writes are watched: from now on it is known which of them
    /// are written. Which ones they are is told: all that are watched and were not protected already. Pages on swap are
    /// left out, since marks of other kinds lie there, too.
    ///
    /// # Errors
    /// As for [`watched`](Self::watched).
    pub fn protect(&self, memory: &[(u64, u64)]) -> Result<Vec<(u64, u64)>> {
        let wanted = ScanArguments {
            flags: PROTECTS,
            category_inverted: category::ZERO,
            category_mask: category::ZERO
                | category::PRESENT
                | category::WATCHED
                | category::WRITTEN,
            return_mask: category::PRESENT,
            ..ScanArguments::default()
        };
        let mut protected = Vec::new();
        self.scan(wanted, memory, |region| {
            join(&mut protected, region.start, region.end);
            Ok(())
        })?;
        Ok(protected)
    }

    /// Guard regions between these addresses, in memory of any kind. None where the kernel knows none in memory of files.
    ///
    /// # Errors
    /// Failed calls.
    pub fn guards(&self, start: u64, end: u64) -> Result<Vec<(u64, u64)>> {
        self.of_category(category::GUARD, start, end).map(Option::unwrap_or_default)
    }

    /// Whether the kernel has PAGEMAP_SCAN, as far as has been seen.
    pub fn scans(&self) -> bool {
        self.scans
    }

    fn by_scan(&self, start: u64, end: u64) -> Result<Stored> {
        let wanted = ScanArguments {
            category_inverted: category::FILE | category::ZERO,
            category_mask: category::FILE | category::ZERO,
            category_anyof_mask: category::PRESENT | category::SWAPPED,
            return_mask: category::PRESENT | category::SWAPPED,
            ..ScanArguments::default()
        };
        let mut found = Stored::default();
        self.scan(wanted, &[(start, end)], |region| {
            if region.categories & category::PRESENT != 0 {
                join(&mut found.pages, region.start, region.end);
                return Ok(());
            }
            // Guard markers are told as swapped here (mm/madvise.c, fs/proc/task_mmu.c).
            let swapped = self.by_entries(region.start, region.end)?;
            for range in swapped.pages {
                join(&mut found.pages, range.0, range.1);
            }
            for range in swapped.guards {
                join(&mut found.guards, range.0, range.1);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Has the kernel look for pages of the wanted categories between these addresses.
    fn scan(
        &self,
        wanted: ScanArguments,
        memory: &[(u64, u64)],
        mut each: impl FnMut(&Region) -> Result<()>,
    ) -> Result<()> {
        let mut regions = vec![Region::default(); REGIONS];
        memory.iter().try_for_each(|range| self.scan_one(wanted, *range, &mut regions, &mut each))
    }

    fn scan_one(
        &self,
        wanted: ScanArguments,
        (start, end): (u64, u64),
        regions: &mut [Region],
        each: &mut impl FnMut(&Region) -> Result<()>,
    ) -> Result<()> {
        let mut arguments = ScanArguments {
            size: size_of::<ScanArguments>() as u64,
            end,
            vec_len: regions.len() as u64,
            walk_end: start,
            ..wanted
        };
        while arguments.walk_end < end {
            arguments.start = arguments.walk_end;
            arguments.vec = regions.as_mut_ptr() as u64;
            // SAFETY: the arguments and the vector that they point to live across the call.
            let answer = unsafe {
                libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut arguments)
            };
            let count = Errno::result(answer)
                .map_err(|errno| EngineError::system("PAGEMAP_SCAN", &self.path, errno))?;
            regions.iter().take(count as usize).try_for_each(&mut *each)?;
            if arguments.walk_end <= arguments.start {
                break;
            }
        }
        Ok(())
    }

    fn by_entries(&self, start: u64, end: u64) -> Result<Stored> {
        const AT_ONCE: u64 = 4096;
        let mut found = Stored::default();
        let mut at = start;
        while at < end {
            let count = ((end - at) / self.page).min(AT_ONCE);
            let mut bytes = vec![0; count as usize * 8];
            self.file
                .read_exact_at(&mut bytes, at / self.page * 8)
                .map_err(|error| EngineError::system("read", &self.path, error))?;
            for (index, chunk) in bytes.chunks_exact(8).enumerate() {
                let mut word = [0; 8];
                word.copy_from_slice(chunk);
                let entry = u64::from_ne_bytes(word);
                let address = at + index as u64 * self.page;
                if entry & bit::GUARD != 0 && entry & bit::PRESENT == 0 {
                    join(&mut found.guards, address, address + self.page);
                } else if entry & (bit::PRESENT | bit::SWAPPED) != 0 && entry & bit::FILE == 0 {
                    join(&mut found.pages, address, address + self.page);
                }
            }
            at += count * self.page;
        }
        Ok(found)
    }
}

/// Whether an error says that the kernel has no such call: before Linux 6.7.
fn is_unknown(error: &EngineError) -> bool {
    let EngineError::System { source, .. } = error else { return false };
    matches!(source.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL))
}

/// Adds a range behind the others, joined to the last where they touch.
pub fn join(ranges: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    match ranges.last_mut() {
        Some(last) if last.1 == start => last.1 = end,
        _ => ranges.push((start, end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::userfault::WriteWatch;

    /// Fresh memory of so many pages, its address, and how to write to one of them.
    fn fresh(pages: usize) -> (u64, impl Fn(usize)) {
        let page = crate::sys::page::page_size() as usize;
        // SAFETY: a fresh anonymous mapping at a place of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                pages * page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        } as *mut u8;
        let write = move |index: usize| {
            assert!(index < pages);
            // SAFETY: within the mapping, which is never unmapped.
            unsafe { base.add(index * page).write_volatile(1) }
        };
        (base as u64, write)
    }

    #[test]
    fn what_is_written_is_told_by_page() {
        let Ok(watch) = WriteWatch::of_this_process() else { return };
        let page = crate::sys::page::page_size();
        let (start, write) = fresh(64);
        let at = |index: u64| start + index * page;
        (0..20).for_each(&write);
        let map = Pagemap::of(std::process::id() as i32, page).unwrap();
        let found = || map.watched(&[(at(0), at(64))]).unwrap();
        let protect = || map.protect(&[(at(0), at(64))]).unwrap();
        assert_eq!(found(), Watched { unwatched: vec![(at(0), at(20))], ..Watched::default() });
        watch.watch(at(0), at(64)).unwrap();
        assert_eq!(found(), Watched::default());
        assert_eq!(protect(), [(at(0), at(20))]);
        assert_eq!(found().unwritten, [(at(0), at(20))]);
        // One that was there, and one that comes.
        write(7);
        write(30);
        assert_eq!(found().unwritten, [(at(0), at(7)), (at(8), at(20))]);
        // SAFETY: pages of the mapping made above, which nothing else knows.
        let thrown_away =
            unsafe { libc::madvise(at(10) as *mut _, page as usize * 2, libc::MADV_DONTNEED) };
        assert_eq!(thrown_away, 0);
        write(11);
        assert_eq!(found().unwritten, [(at(0), at(7)), (at(8), at(10)), (at(12), at(20))]);
        assert_eq!(protect(), [(at(7), at(8)), (at(11), at(12)), (at(30), at(31))]);
        let all = [(at(0), at(10)), (at(11), at(20)), (at(30), at(31))];
        assert_eq!(found().unwritten, all);
        drop(watch);
        assert_eq!(found(), Watched { unwatched: all.to_vec(), ..Watched::default() });
    }

    #[test]
    fn both_ways_find_the_same() {
        let page = crate::sys::page::page_size();
        let length = 64 * page as usize;
        // SAFETY: a fresh anonymous mapping at a place of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        } as *mut u8;
        for index in [1usize, 2, 3, 40] {
            // SAFETY: within the mapping.
            unsafe { base.add(index * page as usize).write(1) };
        }
        let start = base as u64;
        let pid = std::process::id() as i32;
        let mut map = Pagemap::of(pid, page).unwrap();
        let expected =
            vec![(start + page, start + 4 * page), (start + 40 * page, start + 41 * page)];
        assert_eq!(map.by_entries(start, start + length as u64).unwrap().pages, expected);
        assert_eq!(map.stored(start, start + length as u64).unwrap().pages, expected);
        // SAFETY: the mapping made above.
        unsafe { libc::munmap(base.cast(), length) };
    }
}
