//! What the kernel lets a process do with its memory.

use nix::errno::Errno;

use super::super::dump::page_size;
use super::super::dump::pages::Pagemap;
use super::super::sys::userfault::WriteWatch;
use super::child::in_child;
use super::error::ProbeError;

/// MADV_GUARD_INSTALL (include/uapi/asm-generic/mman-common.h), since Linux 6.13.
const MADV_GUARD_INSTALL: i32 = 102;
/// UFFD_USER_MODE_ONLY (include/uapi/linux/userfaultfd.h)
const USER_MODE_ONLY: i32 = 1;

/// One fresh page, writable, of the calling process; never unmapped: for children that end.
fn fresh_page() -> Result<(*mut libc::c_void, usize), ProbeError> {
    let length = page_size() as usize;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping at a place of the kernel's choice.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED { Err(Errno::last().into()) } else { Ok((page, length)) }
}

/// Memory that was data becomes code (W^X policies forbid it).
///
/// # Errors
/// Why not.
pub fn executable_memory() -> Result<(), ProbeError> {
    in_child(|| {
        let (page, length) = fresh_page()?;
        // SAFETY: the page made above, which nothing else knows.
        let changed = unsafe {
            page.cast::<u8>().write(0);
            libc::mprotect(page, length, libc::PROT_READ | libc::PROT_EXEC)
        };
        Errno::result(changed)?;
        Ok(())
    })
}

/// MADV_GUARD_INSTALL.
///
/// # Errors
/// Why not.
pub fn guard_regions() -> Result<(), ProbeError> {
    in_child(|| {
        let (page, length) = fresh_page()?;
        // SAFETY: the page made above, which nothing else knows.
        let advised = unsafe { libc::madvise(page, length, MADV_GUARD_INSTALL) };
        Errno::result(advised)?;
        Ok(())
    })
}

/// PAGEMAP_SCAN.
///
/// # Errors
/// Why not.
pub fn pagemap_scan() -> Result<(), ProbeError> {
    in_child(|| {
        let (page, length) = fresh_page()?;
        let (start, page) = (page as u64, page_size());
        let own = std::process::id() as i32;
        let mut map = Pagemap::of(own, page)?;
        map.stored(start, start + length as u64)?;
        if map.scans() { Ok(()) } else { Err(ProbeError::Absent) }
    })
}

/// Which pages a process writes: a userfaultfd that nobody waits for, and PAGEMAP_SCAN.
///
/// # Errors
/// Why not.
pub fn write_tracking() -> Result<(), ProbeError> {
    in_child(|| {
        let (page, length) = fresh_page()?;
        let (start, end) = (page as u64, page as u64 + length as u64);
        // SAFETY: the page made above, which nothing else knows.
        let write = |value| unsafe { page.cast::<u8>().write_volatile(value) };
        write(1);
        let watch = WriteWatch::of_this_process()?;
        watch.watch(start, end)?;
        let map = Pagemap::of(std::process::id() as i32, page_size())?;
        let memory = [(start, end)];
        map.protect(&memory)?;
        let before = map.watched(&memory)?.unwritten;
        write(2);
        let after = map.watched(&memory)?.unwritten;
        let is_told = before == memory && after.is_empty();
        if is_told { Ok(()) } else { Err(ProbeError::Absent) }
    })
}

fn open_userfaultfd(flags: i32) -> Result<(), ProbeError> {
    in_child(|| {
        // SAFETY: takes numbers only; the child that owns the descriptor ends.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags | libc::O_CLOEXEC) };
        Errno::result(fd)?;
        Ok(())
    })
}

/// userfaultfd(2), at least for faults of programs.
///
/// # Errors
/// Why not.
pub fn userfaultfd() -> Result<(), ProbeError> {
    open_userfaultfd(USER_MODE_ONLY)
}

/// userfaultfd(2) for faults in system calls too.
///
/// # Errors
/// Why not.
pub fn privileged_userfaultfd() -> Result<(), ProbeError> {
    open_userfaultfd(0)
}
