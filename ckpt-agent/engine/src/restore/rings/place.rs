//! The memory of a ring, where it was. No address can be asked for, neither by mmap(2) nor by mremap(2), since the
//! kernel chooses it itself (io_uring/memmap.c, io_uring_get_unmapped_area(), Linux 6.4). So everything else is taken
//! for a moment: then the kernel has no choice.

use super::super::super::arch::{Architecture, Call, Current, calls};
use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{Area, Backing};
use super::super::super::proc::read_maps;
use super::super::super::sys::abi;
use super::super::super::trace::{Batch, Remote};
use super::super::layout::gaps;

/// MAP_ABOVE4G (arch/x86/include/uapi/asm/mman.h), since Linux 6.6; elsewhere, and before, it means nothing.
const HIGH: i32 = if cfg!(target_arch = "x86_64") { 0x80 } else { 0 };
/// Nobody but root maps anything below (vm.mmap_min_addr), where it may be larger than usual.
const LOWEST: u64 = 64 * 1024;

/// Maps these areas, each from a descriptor of the process.
pub(super) fn place(remote: &mut Remote<'_>, wanted: &[(&Area, u64)]) -> Result<()> {
    let mut left = Vec::new();
    for one in wanted {
        // Older kernels take an address.
        let (area, _) = one;
        let made = map(remote, one, area.start, length(area), abi::MAP_FIXED_NOREPLACE)?;
        if made != Some(area.start) {
            left.push(*one);
        }
    }
    if !left.is_empty() {
        steer(remote, &left)?;
    }
    let mut batch = Batch::new();
    for (area, _) in wanted {
        for value in &area.advice.advise {
            batch.add(libc::SYS_madvise, &[area.start, length(area), *value as u64]);
        }
        if area.advice.locked {
            batch.add(libc::SYS_mlock, &[area.start, length(area)]);
        }
    }
    // Advice changes no content.
    remote.run(&batch).map(drop)
}

fn length(area: &Area) -> u64 {
    area.end - area.start
}

fn steer(remote: &mut Remote<'_>, wanted: &[(&Area, u64)]) -> Result<()> {
    let shortest = wanted.iter().map(|(area, _)| length(area)).min().unwrap_or(0);
    let current = read_maps(remote.thread().tid())?;
    let mut holes = gaps(current.iter().map(|mapping| (mapping.start, mapping.end)).collect());
    holes.retain(|(start, end)| end - start >= shortest);
    let holes = reserve(remote, &holes)?;
    for one in wanted {
        if !squeeze(remote, one, &holes)? {
            let (area, _) = one;
            return Err(EngineError::Unfit {
                what: format!("the memory of an io_uring can't be mapped at {:#x}", area.start),
                way_out: "restart it under the kernel that it ran under".into(),
            });
        }
    }
    let mut keep: Vec<(u64, u64)> = holes_between(&holes);
    keep.extend(wanted.iter().map(|(area, _)| (area.start, area.end)));
    let mut batch = Batch::new();
    for (start, end) in gaps(keep) {
        batch.add(libc::SYS_munmap, &[start, end - start]);
    }
    for answer in remote.run(&batch)? {
        remote.checked("munmap", answer)?;
    }
    Ok(())
}

/// What is not a hole.
fn holes_between(holes: &[(u64, u64)]) -> Vec<(u64, u64)> {
    gaps(holes.to_vec())
}

/// Takes these holes; those that were taken.
fn reserve(remote: &mut Remote<'_>, holes: &[(u64, u64)]) -> Result<Vec<(u64, u64)>> {
    // The lowest part by itself, since it may be forbidden.
    let page = super::super::super::sys::page::page_size();
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for (start, end) in holes {
        // Nothing is mapped in the last page of all, or in some more.
        let (start, end) = ((*start).max(page), (*end).min(Current::user_top() - LOWEST));
        if start < LOWEST && LOWEST < end {
            parts.extend([(start, LOWEST), (LOWEST, end)]);
        } else if start < end {
            parts.push((start, end));
        }
    }
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | abi::MAP_FIXED_NOREPLACE;
    let mut batch = Batch::new();
    for (start, end) in &parts {
        let Call { number, arguments } =
            calls::map(*start, end - start, libc::PROT_NONE as u64, flags as u64, u64::MAX, 0);
        batch.add(number, &arguments);
    }
    let answers = remote.run(&batch)?;
    let mut taken = Vec::new();
    for ((start, end), answer) in parts.into_iter().zip(answers) {
        match remote.checked("mmap", answer) {
            Ok(_) => taken.push((start, end)),
            Err(_) if end <= LOWEST => {}
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}

/// Opens the one hole that is wanted and has the kernel find it. What lies below what may be mapped is a hole to it
/// as well, where it could not be taken: then one that is too long for that is wanted.
fn squeeze(remote: &mut Remote<'_>, one: &(&Area, u64), holes: &[(u64, u64)]) -> Result<bool> {
    let (area, _) = one;
    let around = holes.iter().find(|(start, end)| *start <= area.start && area.end <= *end);
    let Some((_, last)) = around else { return Ok(false) };
    for long in [length(area), length(area).max(2 * LOWEST)] {
        if area.start + long > *last {
            continue;
        }
        remote.call("munmap", libc::SYS_munmap, &[area.start, long])?;
        let made = map(remote, one, 0, long, HIGH)?;
        if made == Some(area.start) {
            let rest = long - length(area);
            if rest > 0 {
                remote.call("munmap", libc::SYS_munmap, &[area.end, rest])?;
                take(remote, area.end, rest)?;
            }
            return Ok(true);
        }
        if let Some(elsewhere) = made {
            remote.call("munmap", libc::SYS_munmap, &[elsewhere, long])?;
        }
        take(remote, area.start, long)?;
    }
    Ok(false)
}

fn take(remote: &mut Remote<'_>, start: u64, length: u64) -> Result<()> {
    let end = start + length;
    reserve(remote, &[(start, end)]).map(drop)
}

/// Maps it, at an address or where the kernel likes: `None`: not at all.
fn map(
    remote: &mut Remote<'_>,
    (area, fd): &(&Area, u64),
    at: u64,
    length: u64,
    flags: i32,
) -> Result<Option<u64>> {
    let Backing::Ring { offset, .. } = area.backing else { return Ok(None) };
    let flags = (libc::MAP_SHARED | flags) as u64;
    let protection = u64::from(area.protection.0);
    let Call { number, arguments } = calls::map(at, length, protection, flags, *fd, offset);
    let answer = remote.raw(number, &arguments)?;
    let made = remote.checked("mmap", answer).ok();
    match made {
        // A kernel that does not know MAP_FIXED_NOREPLACE takes the address for a hint.
        Some(made) if at != 0 && made != at => {
            remote.call("munmap", libc::SYS_munmap, &[made, length])?;
            Ok(None)
        }
        made => Ok(made.filter(|made| *made < Current::user_top())),
    }
}
