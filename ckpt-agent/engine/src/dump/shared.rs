//! Memory that processes share is not held still by a snapshot process: it is copied while the job stands.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use super::super::error::{EngineError, Result};
use super::super::graph::InodeId;
use super::super::inodes::copying::Copying;
use super::super::inodes::{content, in_pieces, segments, take_attributes};
use super::super::objects::{BlobData, DumpContext};
use super::super::sys::stat::modified_ns_of;
use super::super::trace::{ProcessMemory, Remote};
use super::areas::{Window, has_content};
use super::mapped_file::open;

/// Pages asked about by one mincore(2).
const ASK: u64 = 64 * 1024;

/// Reads the content of every inode that was met only as a mapping. Through a descriptor where
/// one can be had (by its name, or with privilege by /proc/PID/map_files), else through the memory
/// of a process, which `remote_of` lends.
///
/// # Errors
/// Failed reads.
pub fn read_all(
    windows: &[Window],
    context: &mut DumpContext,
    mut resident_of: impl FnMut(&Window) -> Result<Vec<(u64, u64)>>,
) -> Result<()> {
    let mut by_inode: BTreeMap<u32, Vec<&Window>> = BTreeMap::new();
    for window in windows {
        by_inode.entry(window.inode.0).or_default().push(window);
    }
    for (inode, windows) in by_inode {
        let inode = InodeId(inode);
        if has_content(context, inode) {
            continue;
        }
        let opened = open(windows[0].host_pid, &windows[0].mapping, context)?;
        let (metadata, data, attributes) = match opened {
            Some((file, metadata)) => {
                let data = content::read(file.as_fd(), metadata.size(), &context.copying)?;
                let shown = windows[0].mapping.path().0.to_owned();
                (Some(metadata), data, Some((file, shown)))
            }
            None => {
                // Others show what their process has made of it.
                let mut shared = windows;
                shared.retain(|window| window.mapping.shared);
                if shared.is_empty() {
                    return Err(EngineError::odd("a mapped file", "it can't be read any more"));
                }
                (None, read_windows(&shared, &context.copying, &mut resident_of)?, None)
            }
        };
        let attributes =
            attributes.and_then(|(file, shown)| take_attributes(file, &shown, context));
        let entry = &mut context.inodes[inode.0 as usize];
        let segment = segments::number_of(entry).is_some();
        if !segment {
            entry.size = data.length;
        }
        if let Some(metadata) = metadata.filter(|_| !segment) {
            entry.attributes = attributes;
            entry.mode = metadata.mode() & 0o7777;
            entry.owner = Some((metadata.uid(), metadata.gid()));
            entry.modified_ns = Some(modified_ns_of(&metadata));
            entry.number = Some(metadata.ino());
        }
        let blob = entry.content.0 as usize;
        context.blobs[blob] = data;
    }
    Ok(())
}

/// Segments whose content no window shows in full: inode, number and size in bytes.
pub fn unseen_segments(windows: &[Window], context: &DumpContext) -> Vec<(InodeId, i32, u64)> {
    let known = segments::known(&context.inodes);
    let all = known.into_iter().map(|(inode, (number, size))| (inode, number, size));
    all.filter(|(inode, _, size)| {
        !windows.iter().any(|window| {
            let mapping = &window.mapping;
            window.inode == *inode && mapping.offset == 0 && mapping.length() >= *size
        })
    })
    .collect()
}

/// Reads what one window shows.
///
/// # Errors
/// Failed reads.
pub fn read_window(
    window: &Window,
    copying: &Copying,
    mut resident_of: impl FnMut(&Window) -> Result<Vec<(u64, u64)>>,
) -> Result<BlobData> {
    read_windows(&[window], copying, &mut resident_of)
}

/// Copies through the memory of processes that have the inode mapped; parts that nobody has
/// mapped cannot be seen by anybody either.
fn read_windows(
    windows: &[&Window],
    copying: &Copying,
    resident_of: &mut impl FnMut(&Window) -> Result<Vec<(u64, u64)>>,
) -> Result<BlobData> {
    let mut data = BlobData::default();
    let mut covered: Vec<(u64, u64)> = Vec::new();
    for window in windows {
        let mapping = &window.mapping;
        let range = (mapping.offset, mapping.offset + mapping.length());
        data.length = data.length.max(range.1);
        if covered.iter().any(|done| done.0 <= range.0 && range.1 <= done.1) {
            continue;
        }
        // In offsets of the inode, without what an earlier window has shown.
        let mut ranges = Vec::new();
        for (start, end) in resident_of(window)? {
            let to_offset = |address: u64| address - mapping.start + mapping.offset;
            let (mut start, end) = (to_offset(start), to_offset(end));
            while start < end {
                let known = covered.iter().find(|done| done.0 <= start && start < done.1);
                if let Some(done) = known {
                    start = done.1;
                } else {
                    let stop = covered
                        .iter()
                        .map(|done| done.0)
                        .filter(|first| *first > start)
                        .fold(end, u64::min);
                    ranges.push((start, stop));
                    start = stop;
                }
            }
        }
        let place = copying.place(ranges.iter().map(|(start, end)| end - start).sum())?;
        let host_pid = window.host_pid;
        let read = |start: u64, end: u64| {
            let mut bytes = copying.memory((end - start) as usize)?;
            let address = start - mapping.offset + mapping.start;
            ProcessMemory::of(host_pid).read(address, &mut bytes)?;
            copying.count(bytes.len());
            place.keep(bytes)
        };
        data.extents.extend(in_pieces(&ranges, copying.threads(), read)?);
        covered.push(range);
    }
    data.extents.sort_by_key(|extent| extent.offset);
    Ok(data)
}

/// Address ranges of a shared mapping that hold pages (mincore(2) in the process): what was never
/// touched must not come into being by being read. mincore(2) does not tell pages that are swapped out from
/// those: where the machine swaps, all are read.
///
/// # Errors
/// The call's failure.
pub fn resident(remote: &mut Remote<'_>, window: &Window, page: u64) -> Result<Vec<(u64, u64)>> {
    // Of huge pages it tells those alone that this process has touched (mm/mincore.c, mincore_hugetlb()).
    if swap_is_used() || window.mapping.page_size > page {
        return Ok(vec![(window.mapping.start, window.mapping.end)]);
    }
    let scratch = match remote.scratch() {
        Some(scratch) => scratch,
        None => remote.make_scratch(None)?,
    };
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let (mut at, end) = (window.mapping.start, window.mapping.end);
    while at < end {
        let pages = ((end - at) / page).min(ASK);
        let answer = remote.raw(libc::SYS_mincore, &[at, pages * page, scratch.data()])?;
        remote.checked("mincore", answer)?;
        let mut present = vec![0u8; pages as usize];
        remote.memory().read(scratch.data(), &mut present)?;
        for (index, flag) in present.iter().enumerate() {
            if flag & 1 == 0 {
                continue;
            }
            let start = at + index as u64 * page;
            match ranges.last_mut() {
                Some(last) if last.1 == start => last.1 = start + page,
                _ => ranges.push((start, start + page)),
            }
        }
        at += pages * page;
    }
    Ok(ranges)
}

/// Whether anything on this machine is swapped out.
fn swap_is_used() -> bool {
    let Ok(text) = std::fs::read_to_string("/proc/meminfo") else { return true };
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    value("SwapTotal:") != value("SwapFree:")
}
