//! Memory of huge pages that processes share, or have by memfd_create(2), and files of hugetlbfs. Where a machine has not enough of such pages, ordinary
//! ones take their place.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use nix::unistd::ftruncate;

use super::super::error::{EngineError, Result};
use super::super::graph::CarriedInode;
use super::super::objects::RestoreContext;
use super::super::sys::huge_memory::{self, Whole};
use super::super::sys::memfd;
use super::super::trace::ProcessMemory;

/// Makes such an inode in the kernel's own file system, with its content; `None`: it is to have ordinary pages, or always had.
///
/// # Errors
/// Damage; failed writes.
pub(super) fn make(
    name: &CStr,
    executable: bool,
    inode: &CarriedInode,
    context: &RestoreContext<'_>,
) -> Result<Option<OwnedFd>> {
    let Some(page) = inode.huge else { return Ok(None) };
    check(page, inode)?;
    let made = memfd::made_executable(executable, |flags| huge_memory::make(name, flags, page));
    match made {
        Ok(fd) => filled(fd, page, inode, context),
        Err(_) => Ok(None),
    }
}

/// Whether a file lies in a hugetlbfs with pages as an inode has them.
pub(super) fn is_on(fd: &OwnedFd, inode: &CarriedInode) -> bool {
    inode.huge.is_some() && huge_memory::page_of(fd) == inode.huge
}

/// Gives an empty file its content, if it lies in a hugetlbfs that has enough pages as the inode had them.
///
/// # Errors
/// Damage; failed writes.
pub(super) fn on_mount(
    fd: OwnedFd,
    inode: &CarriedInode,
    context: &RestoreContext<'_>,
) -> Result<Option<OwnedFd>> {
    let Some(page) = inode.huge.filter(|_| is_on(&fd, inode)) else { return Ok(None) };
    check(page, inode)?;
    filled(fd, page, inode, context)
}

fn check(page: u64, inode: &CarriedInode) -> Result<()> {
    if page.is_power_of_two() && inode.size % page == 0 {
        return Ok(());
    }
    let (origin, size) = (&inode.origin, inode.size);
    Err(EngineError::Damaged(format!("{origin}: {size} bytes in pages of {page}")))
}

/// Reserves the pages of all of it, as a process does that maps it, and writes the content; `None` where there are not enough.
fn filled(
    fd: OwnedFd,
    page: u64,
    inode: &CarriedInode,
    context: &RestoreContext<'_>,
) -> Result<Option<OwnedFd>> {
    let Ok(length @ 1..) = usize::try_from(inode.size) else { return Ok(Some(fd)) };
    let sized = libc::off_t::try_from(inode.size).map(|size| ftruncate(&fd, size));
    if !matches!(sized, Ok(Ok(()))) {
        return Ok(None);
    }
    let Ok(whole) = Whole::of(&fd, length) else { return Ok(None) };
    let mut own = ProcessMemory::of(std::process::id() as i32);
    let mut lacking = false;
    context.for_each_span(inode.content, |offset, bytes| {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > inode.size {
            return Err(EngineError::Damaged(format!("content of huge pages up to {end}")));
        }
        let first = offset / page * page;
        lacking |= whole.populate(first, end.next_multiple_of(page) - first).is_err();
        if lacking { Ok(()) } else { own.write(whole.start() + offset, bytes) }
    })?;
    drop(whole);
    Ok((!lacking).then_some(fd))
}
