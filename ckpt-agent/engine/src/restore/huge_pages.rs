//! Private memory of huge pages: of MAP_HUGETLB, and over files of hugetlbfs. Where a machine has not enough of such
//! pages, ordinary ones take their place, which the kernel may make large by itself.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::uio::pread;

use super::super::arch::{Call, calls as numbers};
use super::super::error::{EngineError, Result};
use super::super::graph::{Area, Backing, ProcessImage, Protection, WINDOW_PAGES};
use super::super::sys::abi;
use super::super::sys::huge_memory;
use super::super::trace::Remote;

/// MADV_POPULATE_WRITE (include/uapi/asm-generic/mman-common.h), since Linux 5.14.
const MADV_POPULATE_WRITE: u64 = 23;
/// Where the size of a page stands in the flags of mmap(2), as the logarithm of its bytes.
const MAP_HUGE_SHIFT: u32 = 26;
/// Bytes of a file that are copied at once.
const PIECE: usize = 1 << 20;

/// What has become of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// It has its huge pages.
    Huge,
    /// It has ordinary ones, with a copy of the file's content.
    Copied,
    /// Nothing is mapped.
    Nothing,
}

/// Maps an area of huge pages, with all those that the image fills. `file`: what it shows where it has no pages of its
/// own.
///
/// # Errors
/// Damage; [`EngineError::Gone`].
pub fn map(
    remote: &mut Remote<'_>,
    area: &Area,
    file: Option<BorrowedFd<'_>>,
    image: &ProcessImage,
    huge: u64,
    page: u64,
) -> Result<Made> {
    let aligned = |address: u64| address % huge == 0;
    if !huge.is_power_of_two() || huge <= page || !aligned(area.start) || !aligned(area.end) {
        return Err(EngineError::Damaged(format!("an area of pages of {huge} bytes")));
    }
    let kind = match file {
        // A file that has ordinary pages here is mapped as any other.
        Some(file) if huge_memory::page_of(file) != Some(huge) => return Ok(Made::Nothing),
        Some(_) => 0,
        None => {
            (libc::MAP_ANONYMOUS | libc::MAP_HUGETLB) as u64
                | u64::from(huge.trailing_zeros()) << MAP_HUGE_SHIFT
        }
    };
    let made = place(remote, area, file, kind)? && populate(remote, area, image, huge, page)?;
    if !made {
        let Some(file) = file else { return Ok(Made::Nothing) };
        place_copy(remote, area, file)?;
    }
    let is_narrower = u64::from(area.protection.0) != both(area);
    if is_narrower && !image.fills_unwritable(area, page) {
        let arguments = [area.start, area.end - area.start, u64::from(area.protection.0)];
        remote.call("mprotect", libc::SYS_mprotect, &arguments)?;
    }
    Ok(if made { Made::Huge } else { Made::Copied })
}

/// What an area allows while it is filled.
fn both(area: &Area) -> u64 {
    u64::from(area.protection.0 | Protection::READ | Protection::WRITE)
}

/// Makes the mapping; whether the kernel has it.
fn place(
    remote: &mut Remote<'_>,
    area: &Area,
    file: Option<BorrowedFd<'_>>,
    kind: u64,
) -> Result<bool> {
    let no_reserve = if area.advice.no_reserve { libc::MAP_NORESERVE } else { 0 };
    let flags = kind | (libc::MAP_PRIVATE | no_reserve | abi::MAP_FIXED_NOREPLACE) as u64;
    let fd = file.map_or(u64::MAX, |file| file.as_raw_fd() as u64);
    let offset = if file.is_some() { offset(area) } else { 0 };
    let length = area.end - area.start;
    let Call { number, arguments } =
        numbers::map(area.start, length, both(area), flags, fd, offset);
    Ok(remote.raw(number, &arguments)? >= 0)
}

/// Gives it the pages that the image fills; `false`: there are not enough, and it is gone. Without a reservation, or
/// within a limit of the cgroup, a page may be lacking only when it is touched.
fn populate(
    remote: &mut Remote<'_>,
    area: &Area,
    image: &ProcessImage,
    huge: u64,
    page: u64,
) -> Result<bool> {
    for at in filled(area, image, huge, page) {
        let answer = remote.raw(libc::SYS_madvise, &[at, huge, MADV_POPULATE_WRITE])?;
        // An older kernel does not know the advice: there it turns out when they are filled.
        if answer < 0 && answer != -(Errno::EINVAL as i64) {
            let arguments = [area.start, area.end - area.start];
            remote.call("munmap", libc::SYS_munmap, &arguments)?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Ordinary memory with what the file has by now.
fn place_copy(remote: &mut Remote<'_>, area: &Area, file: BorrowedFd<'_>) -> Result<()> {
    if !place(remote, area, None, libc::MAP_ANONYMOUS as u64)? {
        let what = format!("{:#x}-{:#x}", area.start, area.end);
        return Err(EngineError::system("mmap", what, Errno::ENOMEM));
    }
    let length = area.end - area.start;
    let mut bytes = vec![0; PIECE];
    let mut at = 0;
    while at < length {
        let wanted = usize::try_from(length - at).unwrap_or(PIECE).min(PIECE);
        let from =
            libc::off_t::try_from(offset(area).saturating_add(at)).unwrap_or(libc::off_t::MAX);
        let read = pread(file, &mut bytes[..wanted], from)
            .map_err(|errno| EngineError::system("read", "a file of huge pages", errno))?;
        let read = &bytes[..read];
        if read.is_empty() {
            break;
        }
        if read.iter().any(|byte| *byte != 0) {
            remote.memory().write(area.start + at, read)?;
        }
        at += read.len() as u64;
    }
    Ok(())
}

fn offset(area: &Area) -> u64 {
    match area.backing {
        Backing::File { offset, .. } | Backing::Carried { offset, .. } => offset,
        _ => 0,
    }
}

/// The huge pages of an area into which the image puts something.
fn filled(area: &Area, image: &ProcessImage, huge: u64, page: u64) -> BTreeSet<u64> {
    let runs = image
        .pages
        .iter()
        .filter(|window| window.address < area.end)
        .filter(|window| window.address + WINDOW_PAGES * page > area.start)
        .flat_map(|window| window.runs(page));
    runs.flat_map(|(start, length)| {
        let (start, end) = (start.max(area.start), (start + length).min(area.end));
        (start / huge..end.div_ceil(huge)).map(move |index| index * huge)
    })
    .collect()
}
