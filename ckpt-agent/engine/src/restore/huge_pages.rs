//! Memory of MAP_HUGETLB. Where a machine has not enough of such pages, ordinary ones take their place, which the kernel may make
//! large by itself.

use std::collections::BTreeSet;

use nix::errno::Errno;

use super::super::arch::{Call, calls as numbers};
use super::super::error::{EngineError, Result};
use super::super::graph::{Area, ProcessImage, Protection, WINDOW_PAGES};
use super::super::sys::abi;
use super::super::trace::Remote;

/// MADV_POPULATE_WRITE (include/uapi/asm-generic/mman-common.h), since Linux 5.14.
const MADV_POPULATE_WRITE: u64 = 23;
/// Where the size of a page stands in the flags of mmap(2), as the logarithm of its bytes.
const MAP_HUGE_SHIFT: u32 = 26;

/// Maps an area of huge pages, with all those that the image fills, or nothing: whether this machine has them.
///
/// # Errors
/// Damage; [`EngineError::Gone`].
pub fn map(
    remote: &mut Remote<'_>,
    area: &Area,
    image: &ProcessImage,
    huge: u64,
    page: u64,
) -> Result<bool> {
    let aligned = |address: u64| address % huge == 0;
    if !huge.is_power_of_two() || huge <= page || !aligned(area.start) || !aligned(area.end) {
        return Err(EngineError::Damaged(format!("an area of pages of {huge} bytes")));
    }
    let no_reserve = if area.advice.no_reserve { libc::MAP_NORESERVE } else { 0 };
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
    let flags = (kind | no_reserve | abi::MAP_FIXED_NOREPLACE) as u64
        | u64::from(huge.trailing_zeros()) << MAP_HUGE_SHIFT;
    let length = area.end - area.start;
    let both = u64::from(area.protection.0 | Protection::READ | Protection::WRITE);
    let Call { number, arguments } = numbers::map(area.start, length, both, flags, u64::MAX, 0);
    if remote.raw(number, &arguments)? < 0 {
        return Ok(false);
    }
    // Without a reservation, or within a limit of the cgroup, a page may be lacking only when it is touched.
    for at in filled(area, image, huge, page) {
        let answer = remote.raw(libc::SYS_madvise, &[at, huge, MADV_POPULATE_WRITE])?;
        // An older kernel does not know the advice: there it turns out when they are filled.
        if answer < 0 && answer != -(Errno::EINVAL as i64) {
            remote.call("munmap", libc::SYS_munmap, &[area.start, length])?;
            return Ok(false);
        }
    }
    if both != u64::from(area.protection.0) && !image.fills_unwritable(area, page) {
        let arguments = [area.start, length, u64::from(area.protection.0)];
        remote.call("mprotect", libc::SYS_mprotect, &arguments)?;
    }
    Ok(true)
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
