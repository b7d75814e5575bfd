//! Files that have lost their name and that the job only has mapped privately, as libraries that an upgrade has
//! replaced. Their content is found through the mappings, while the job runs again: nobody else writes to them.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use super::super::error::{EngineError, Result};
use super::super::graph::{CarriedInode, InodeId, Origin, Protection};
use super::super::inodes::copying::Place;
use super::super::inodes::{self, content};
use super::super::objects::{BlobData, DumpContext, Extent};
use super::super::proc::Mapping;
use super::super::sys::stat::modified_ns_of;
use super::super::trace::ProcessMemory;
use super::areas::{Plan, Planned};
use super::pages::Pagemap;
use super::stages::SnapshotData;

/// Bytes of one extent at most: a multiple of what is stored as one chunk.
const TOGETHER: usize = 64 * 1024 * 1024;

/// Where a mapping is: a snapshot process, and its place there.
#[derive(Debug, Clone)]
struct View {
    snapshot_pid: i32,
    mapping: Mapping,
}

/// Device and number of an inode.
type Key = (u64, u64);

/// Takes the content of such files into the image, so that their mappings become mappings of deleted files again. What
/// cannot be had stays private memory, and a line says so.
///
/// # Errors
/// Snapshot processes that have ended.
pub fn carry(data: &mut SnapshotData) -> Result<()> {
    let mut views: BTreeMap<Key, Vec<View>> = BTreeMap::new();
    for process in &data.processes {
        for planned in process.planned.iter().filter(|planned| is_detached(planned)) {
            let mapping = planned.mapping.clone();
            // The snapshot process does not have those.
            if !data.knows_not_inherited(process.host_pid, &mapping) {
                let view = View { snapshot_pid: process.snapshot_pid, mapping };
                views.entry(key(&view.mapping)).or_default().push(view);
            }
        }
    }
    let mut found: BTreeMap<Key, InodeId> = BTreeMap::new();
    for (key, views) in views {
        let Some(inode) = inode(key, &views, data)? else { continue };
        let code = |view: &View| view.mapping.protection.0 & Protection::EXEC != 0;
        if let Some(inode) = data.context.inodes.get_mut(inode.0 as usize) {
            inode.executed |= views.iter().any(code);
        }
        found.insert(key, inode);
    }
    let mut processes = std::mem::take(&mut data.processes);
    for process in &mut processes {
        let host_pid = process.host_pid;
        for planned in process.planned.iter_mut().filter(|planned| is_detached(planned)) {
            if data.knows_not_inherited(host_pid, &planned.mapping) {
                continue;
            }
            if let Some(inode) = found.get(&key(&planned.mapping)) {
                planned.plan = Plan::Private(*inode);
            }
        }
    }
    data.processes = processes;
    Ok(())
}

fn is_detached(planned: &Planned) -> bool {
    // What is shared without a file has no name to be seen by.
    planned.plan == Plan::Whole && planned.mapping.path().0 != "/dev/zero"
}

fn key(mapping: &Mapping) -> Key {
    (mapping.device, mapping.inode)
}

/// The inode behind these views, known or new; `None`: its content cannot be had.
fn inode(key: Key, views: &[View], data: &mut SnapshotData) -> Result<Option<InodeId>> {
    if let Some(known) = data.context.inode_index.get(&key) {
        return Ok(Some(*known));
    }
    let Some(first) = views.first() else { return Ok(None) };
    let (path, _) = first.mapping.path();
    let taken = match take(views, data.page, &mut data.context) {
        Ok(taken) => taken,
        Err(error @ EngineError::Gone(_)) => return Err(error),
        Err(error) => {
            let line = format!(
                "the deleted file {path} cannot be read ({error}): after a restart its private mappings are plain memory"
            );
            data.context.warn(line);
            return Ok(None);
        }
    };
    let context = &mut data.context;
    let (content, metadata) = taken;
    let inode = CarriedInode {
        origin: inodes::pathless_origin(&first.mapping.name, 0),
        size: content.length,
        mode: metadata.as_ref().map_or(0o700, |found| found.mode() & 0o7777),
        owner: metadata.as_ref().map(|found| (found.uid(), found.gid())),
        modified_ns: metadata.as_ref().map(modified_ns_of),
        accessed_ns: None,
        number: metadata.as_ref().map(Metadata::ino),
        read_only: false,
        executed: false,
        huge: None,
        links: Vec::new(),
        attributes: None,
        content: context.keep_blob(content),
    };
    debug_assert!(!matches!(inode.origin, Origin::Anonymous));
    let id = InodeId(context.inodes.len() as u32);
    context.inodes.push(inode);
    context.inode_index.insert(key, id);
    Ok(Some(id))
}

/// All of the file, with privilege; else what the mappings show of it.
fn take(
    views: &[View],
    page: u64,
    context: &mut DumpContext,
) -> Result<(BlobData, Option<Metadata>)> {
    if let Some((file, metadata)) = views.iter().find_map(open) {
        let content = content::read(file.as_fd(), metadata.size(), &context.copying)?;
        return Ok((content, Some(metadata)));
    }
    let mut parts = Parts::default();
    for view in views {
        parts.add(view, page)?;
    }
    if parts.hides(page) {
        let (path, _) = views.first().map_or(("", true), |view| view.mapping.path());
        context.warn(format!(
            "the deleted file {path} can be seen through private mappings only: after a restart it has zeros where all \
             processes have changed it"
        ));
    }
    let bytes = parts.pages.len() as u64 * page;
    let place = context.copying.place(bytes)?;
    Ok((parts.read(page, &place)?, None))
}

/// /proc/PID/map_files is for the privileged.
fn open(view: &View) -> Option<(File, Metadata)> {
    let Mapping { start, end, inode, .. } = view.mapping;
    let path = format!("/proc/{}/map_files/{start:x}-{end:x}", view.snapshot_pid);
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    (metadata.ino() == inode && metadata.is_file()).then_some((file, metadata))
}

/// What mappings show of a file.
#[derive(Debug, Default)]
struct Parts {
    /// By offset: a snapshot process, and the address at which it shows that page.
    pages: BTreeMap<u64, (i32, u64)>,
    /// Where the file ends at the earliest.
    length: u64,
    /// By offset: what processes have changed for themselves.
    changed: Vec<(u64, u64)>,
}

impl Parts {
    fn add(&mut self, view: &View, page: u64) -> Result<()> {
        let mapping = &view.mapping;
        let stored = Pagemap::of(view.snapshot_pid, page)?.stored(mapping.start, mapping.end)?;
        let to_offset = |address: u64| address - mapping.start + mapping.offset;
        let mut memory = ProcessMemory::of_copy(view.snapshot_pid);
        let mut own: Vec<(u64, u64)> = stored.pages.iter().chain(&stored.guards).copied().collect();
        own.sort_unstable();
        // Nobody has changed a page behind the end of a file.
        self.length =
            stored.pages.iter().map(|(_, end)| to_offset(*end)).fold(self.length, u64::max);
        self.changed
            .extend(stored.pages.iter().map(|(start, end)| (to_offset(*start), to_offset(*end))));
        let is_own = |at: u64| {
            let before = own.partition_point(|(start, _)| *start <= at);
            before.checked_sub(1).and_then(|last| own.get(last)).is_some_and(|(_, end)| at < *end)
        };
        let addresses = (mapping.start..mapping.end).step_by(page as usize);
        let shown: Vec<u64> = addresses.filter(|at| !is_own(*at)).collect();
        // Pages behind the end cannot be read.
        let there = shown.partition_point(|at| memory.read(*at, &mut [0]).is_ok());
        for at in shown.into_iter().take(there) {
            self.pages.insert(to_offset(at), (view.snapshot_pid, at));
            self.length = self.length.max(to_offset(at) + page);
        }
        Ok(())
    }

    /// Whether nobody shows some page of the file as it is.
    fn hides(&self, page: u64) -> bool {
        let mut changed =
            self.changed.iter().flat_map(|(start, end)| (*start..*end).step_by(page as usize));
        changed.any(|offset| !self.pages.contains_key(&offset))
    }

    /// In extents of up to [`TOGETHER`] bytes.
    fn read(self, page: u64, place: &Place) -> Result<BlobData> {
        let mut data = BlobData { length: self.length, extents: Vec::new() };
        let (mut first, mut bytes) = (0, Vec::new());
        let mut close = |first: u64, bytes: Vec<u8>| -> Result<()> {
            if !bytes.is_empty() {
                data.extents.push(Extent { offset: first, bytes: place.keep(bytes)? });
            }
            Ok(())
        };
        for (offset, (snapshot_pid, address)) in self.pages {
            if first + bytes.len() as u64 != offset || bytes.len() >= TOGETHER {
                close(first, std::mem::take(&mut bytes))?;
                first = offset;
            }
            let before = bytes.len();
            bytes.resize(before + page as usize, 0);
            ProcessMemory::of_copy(snapshot_pid).read(address, &mut bytes[before..])?;
        }
        close(first, bytes)?;
        Ok(data)
    }
}
