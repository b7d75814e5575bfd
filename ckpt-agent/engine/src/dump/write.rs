//! Writes a snapshot into the store while the job goes on: pages out of the snapshot processes, blobs out of
//! memory, then the index.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::debug_span;
use tracing::field::Empty;

use super::super::doing::{self, Thing};
use super::super::error::{EngineError, Result};
use super::super::graph::{
    Area, Backing, Blob, BlobId, CarriedInode, Graph, InodeId, Origin, ProcessImage, Span,
    StoredWindow, WINDOW_PAGES,
};
use super::super::inodes;
use super::super::objects::{BlobData, DumpContext, Object};
use super::super::proc::{Mapping, add_policies, around, read_smaps};
use super::super::sys::stat::modified_ns_of;
use super::super::trace::ProcessMemory;
use super::areas::{Plan, area, is_over_file};
use super::detached;
use super::earlier::{Earlier, Kept};
use super::files::{MappedFiles, View, executable};
use super::pages::Pagemap;
use super::snapshot_process::is_alive;
use super::stages::{ProcessDump, SnapshotData, is_not_inherited};
use crate::tracking::Wish;
use ckpt_store::{CheckpointWriter, ChunkRef, SealedCheckpoint, Totals, WriterOptions};

/// Bytes of a chunk of a blob.
const BLOB_CHUNK: usize = 1024 * 1024;

/// What an image holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImageSummary {
    /// Processes, zombies not counted.
    pub processes: u32,
    /// Bytes of memory, in-flight data and files.
    pub bytes: u64,
    /// Bytes added to the store.
    pub stored_bytes: u64,
    /// Open file descriptions.
    pub files: u32,
    /// Sockets that are connected within the job, pairs counted once.
    pub connections: u32,
}

/// A chunk's tag while it is on its way to the store.
type Tag = u64;

/// Pages of one window of one process on their way.
struct PendingWindow {
    address: u64,
    pages: u64,
    tag: Tag,
}

struct Writer<'a> {
    store: CheckpointWriter,
    next: Tag,
    progress: &'a AtomicU64,
}

impl Writer<'_> {
    fn submit(&mut self, bytes: Vec<u8>) -> Result<Tag> {
        let tag = self.next;
        self.next += 1;
        self.progress.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.store.submit(tag, bytes)?;
        Ok(tag)
    }

    /// As if a chunk of the base had been submitted; `None`: it must be.
    fn refer(&mut self, chunk: &ChunkRef) -> Option<Tag> {
        let tag = self.next;
        if !self.store.refer(tag, chunk) {
            return None;
        }
        self.next += 1;
        self.progress.fetch_add(u64::from(chunk.length), Ordering::Relaxed);
        Some(tag)
    }
}

/// Writes and seals checkpoint `number` in a job's folder. `progress` counts the bytes dealt with.
///
/// # Errors
/// Full disks and their like; a snapshot process that was killed for want of memory. Nothing is left of the
/// checkpoint then.
pub fn write_image(
    mut data: SnapshotData,
    job_dir: &Path,
    number: u64,
    options: &WriterOptions,
    progress: &AtomicU64,
) -> Result<(SealedCheckpoint, ImageSummary, Vec<String>)> {
    let packing = debug_span!("pack").entered();
    doing::begin("reading detached files", Thing::Job);
    detached::carry(&mut data)?;
    doing::begin("making the pack", Thing::Job);
    let store = CheckpointWriter::create_with(job_dir, number, options)?;
    let mut writer = Writer { store, next: 0, progress };
    let blobs = std::mem::take(&mut data.context.blobs);
    let mut pending_blobs = submit_blobs(&mut writer, blobs)?;
    let mut files = MappedFiles::new(data.graph.kept.file_check);
    let mut images = Vec::with_capacity(data.processes.len());
    for process in std::mem::take(&mut data.processes) {
        images.push(write_process(
            &mut writer,
            process,
            &mut data,
            &mut pending_blobs,
            &mut files,
        )?);
    }
    doing::begin("writing the pack", Thing::Job);
    let (mut index, chunks) = writer.store.finish_chunks()?;
    drop(packing);
    let indexing = debug_span!("index").entered();
    doing::begin("writing the index", Thing::Job);
    let places: HashMap<Tag, ChunkRef> = chunks.iter().collect();
    let place = |tag: Tag| {
        places.get(&tag).copied().ok_or_else(|| EngineError::odd("store", "lost a chunk"))
    };

    data.graph.inodes = std::mem::take(&mut data.context.inodes);
    data.graph.blobs = pending_blobs
        .into_iter()
        .map(|(length, spans)| {
            let spans = spans
                .into_iter()
                .map(|(offset, tag)| Ok(Span { offset, chunk: place(tag)? }))
                .collect::<Result<_>>()?;
            Ok(Blob { length, spans })
        })
        .collect::<Result<_>>()?;
    index.put_json("graph.json", &data.graph)?;
    for (mut image, windows) in images {
        image.pages = windows
            .into_iter()
            .map(|window| {
                let chunk = place(window.tag)?;
                Ok(StoredWindow { address: window.address, pages: window.pages, chunk })
            })
            .collect::<Result<_>>()?;
        index.put_json(&process_file(image.pid), &image)?;
    }
    drop(indexing);
    let sealed = {
        let _sealing = debug_span!("seal").entered();
        doing::begin("sealing the image", Thing::Job);
        index.seal()?
    };
    let summary = summary(&sealed.totals(), &data.graph);
    Ok((sealed, summary, data.context.warnings))
}

fn summary(totals: &Totals, graph: &Graph) -> ImageSummary {
    ImageSummary {
        processes: u32::try_from(graph.processes.len()).unwrap_or(u32::MAX),
        bytes: totals.bytes,
        stored_bytes: totals.stored.saturating_sub(totals.reused) + totals.index,
        files: u32::try_from(graph.files.len()).unwrap_or(u32::MAX),
        connections: connections(graph),
    }
}

/// Name of a process's file in a checkpoint.
pub fn process_file(pid: i32) -> String {
    format!("process-{pid}.json")
}

fn connections(graph: &Graph) -> u32 {
    let ends = graph.files.iter().filter(|file| is_connected(&file.object)).count();
    u32::try_from(ends.div_ceil(2)).unwrap_or(u32::MAX)
}

fn is_connected(object: &Object) -> bool {
    matches!(object.kind(), "tcp" | "unix")
}

/// A blob on its way: length, and offset and tag of each chunk.
type PendingBlob = (u64, Vec<(u64, Tag)>);

fn submit_blobs(writer: &mut Writer<'_>, blobs: Vec<BlobData>) -> Result<Vec<PendingBlob>> {
    blobs.into_iter().map(|blob| submit_blob(writer, blob)).collect()
}

fn submit_blob(writer: &mut Writer<'_>, blob: BlobData) -> Result<PendingBlob> {
    let mut spans = Vec::new();
    let mut buffer = Vec::new();
    for extent in blob.extents {
        for at in (0..extent.bytes.len()).step_by(BLOB_CHUNK) {
            if buffer.capacity() == 0 {
                buffer = writer.store.take_buffer(BLOB_CHUNK.min(extent.bytes.len() - at));
            }
            extent.bytes.copy_to(at, BLOB_CHUNK, &mut buffer)?;
            if buffer.iter().any(|byte| *byte != 0) {
                let chunk = std::mem::take(&mut buffer);
                spans.push((extent.offset + at as u64, writer.submit(chunk)?));
            }
        }
    }
    Ok((blob.length, spans))
}

fn write_process(
    writer: &mut Writer<'_>,
    process: ProcessDump,
    data: &mut SnapshotData,
    blobs: &mut Vec<PendingBlob>,
    files: &mut MappedFiles,
) -> Result<(ProcessImage, Vec<PendingWindow>)> {
    let ProcessDump { host_pid, snapshot_pid, mut image, planned, early, guards, unwritten } =
        process;
    let writing = debug_span!("process", pid = image.pid, host_pid, bytes = Empty).entered();
    doing::begin("writing the memory of", Thing::Process(image.pid));
    let before = writer.progress.load(Ordering::Relaxed);
    let lost = || {
        EngineError::system(
            "hold",
            format!("the memory of process {}: its copy was killed", image.pid),
            std::io::Error::from_raw_os_error(libc::ENOMEM),
        )
    };
    let view = View::of(snapshot_pid);
    let mut smaps = read_smaps(snapshot_pid)?;
    add_policies(snapshot_pid, &mut smaps)?;
    let mut pagemap = Pagemap::of(snapshot_pid, data.page)?;
    let earlier = Earlier::of(writer.store.base(), image.pid, &unwritten);
    let mut pages = PageWriter::new(writer, snapshot_pid, earlier, data.page);
    for (address, bytes) in &early {
        pages.add_early(*address, bytes, is_over_file(&planned, *address));
    }
    // What has no policy of its own is told with the first thread's, which the snapshot process has, too.
    let leader = image.threads.first().and_then(|thread| thread.attributes.as_ref());
    let policy_of_all = leader.and_then(|attributes| attributes.memory_policy.clone());
    let mut areas = Vec::with_capacity(planned.len());
    for plan in &planned {
        let mapping = &plan.mapping;
        let flags = around(&smaps, mapping.start, mapping.end);
        if flags.is_some_and(is_not_inherited) && !data.knows_not_inherited(host_pid, mapping) {
            return Err(EngineError::odd(
                format!("process {}", image.pid),
                "its memory was being rearranged; the next checkpoint will take it",
            ));
        }
        let special = data.as_it_ran(host_pid, mapping);
        // The snapshot process sees the same files, and is there for certain.
        let identify = |mapping: &Mapping| files.identify(snapshot_pid, &view, mapping);
        let (mut area, whole) = area(plan, special.or(flags), identify)
            .map_err(|error| error.of(image.pid, image.leader_name()))?;
        if whole {
            pages.add(area.start, area.end, false)?;
        } else if !area.shared && plan.plan != Plan::Kernel && flags.is_some() {
            let stored = pagemap.stored(area.start, area.end)?;
            for (start, end) in stored.pages {
                pages.add(start, end, plan.plan.is_over_file())?;
            }
            area.advice.guards = stored.guards;
        }
        if area.advice.policy == policy_of_all {
            area.advice.policy = None;
        }
        let within = |(start, end): &&(u64, u64)| area.start <= *start && *end <= area.end;
        let guards: Vec<_> = guards.iter().filter(within).copied().collect();
        area.advice.guards.extend(guards);
        carry_if_session(&mut area, snapshot_pid, &mut data.context, pages.writer, blobs)?;
        areas.push(area);
    }
    let windows = pages.finish()?;
    writing.record("bytes", writer.progress.load(Ordering::Relaxed).saturating_sub(before));
    if !is_alive(snapshot_pid) {
        return Err(lost());
    }
    image.areas = areas;
    image.executable = executable(snapshot_pid, &image.executable.path, data.graph.kept.file_check);
    Ok((image, windows))
}

/// Files of session directories travel also where they are only mapped privately: programs and
/// libraries in /tmp.
fn carry_if_session(
    area: &mut Area,
    snapshot_pid: i32,
    context: &mut DumpContext,
    writer: &mut Writer<'_>,
    blobs: &mut Vec<PendingBlob>,
) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let Backing::File { file, offset, writable } = &area.backing else { return Ok(()) };
    if !context.is_session_file(&file.path) {
        return Ok(());
    }
    let reached = format!("/proc/{snapshot_pid}/root{}", file.path);
    let failed = |error| EngineError::system("read", file.path.clone(), error);
    let metadata = std::fs::metadata(&reached).map_err(failed)?;
    if inodes::belongs_to_another(snapshot_pid, metadata.uid()) {
        return Ok(());
    }
    let key = (metadata.dev(), metadata.ino());
    let inode = match context.inode_index.get(&key) {
        Some(inode) => *inode,
        None => {
            let bytes = std::fs::read(&reached).map_err(failed)?;
            let content = BlobId(blobs.len() as u32);
            blobs.push(submit_blob(writer, BlobData::from(bytes))?);
            context.inodes.push(CarriedInode {
                origin: Origin::Named { path: file.path.clone() },
                size: metadata.size(),
                mode: metadata.mode() & 0o7777,
                owner: Some((metadata.uid(), metadata.gid())),
                read_only: true,
                executed: false,
                huge: None,
                links: Vec::new(),
                attributes: None,
                modified_ns: Some(modified_ns_of(&metadata)),
                number: Some(metadata.ino()),
                content,
            });
            let inode = InodeId((context.inodes.len() - 1) as u32);
            context.inode_index.insert(key, inode);
            inode
        }
    };
    area.backing = Backing::Carried { inode, offset: *offset, writable: *writable };
    Ok(())
}

/// Cuts pages into windows.
struct PageWriter<'w, 'p> {
    writer: &'w mut Writer<'p>,
    memory: ProcessMemory,
    page: u64,
    /// Pages to read, by window.
    wanted: BTreeMap<u64, u64>,
    /// Those of them that are kept even if they are zero, because a file would show through.
    over_file: BTreeMap<u64, u64>,
    /// Pages already read, by address.
    early: BTreeMap<u64, Vec<u8>>,
    /// Pages that an earlier image has.
    earlier: Earlier,
    done: Vec<PendingWindow>,
}

impl<'w, 'p> PageWriter<'w, 'p> {
    fn new(writer: &'w mut Writer<'p>, snapshot_pid: i32, earlier: Earlier, page: u64) -> Self {
        Self {
            writer,
            memory: ProcessMemory::of_copy(snapshot_pid),
            page,
            wanted: BTreeMap::new(),
            over_file: BTreeMap::new(),
            early: BTreeMap::new(),
            earlier,
            done: Vec::new(),
        }
    }

    fn add_early(&mut self, address: u64, bytes: &[u8], over_file: bool) {
        for (index, page) in bytes.chunks(self.page as usize).enumerate() {
            let at = address + index as u64 * self.page;
            self.early.insert(at, page.to_vec());
            self.want(at, over_file);
        }
    }

    fn want(&mut self, address: u64, over_file: bool) {
        let span = WINDOW_PAGES * self.page;
        let window = address / span * span;
        let bit = 1 << ((address - window) / self.page);
        *self.wanted.entry(window).or_default() |= bit;
        if over_file {
            *self.over_file.entry(window).or_default() |= bit;
        }
    }

    /// Takes pages of the snapshot process.
    fn add(&mut self, start: u64, end: u64, over_file: bool) -> Result<()> {
        let span = WINDOW_PAGES * self.page;
        let mut at = start;
        while at < end {
            let window = at / span * span;
            let first = (at - window) / self.page;
            let last = ((end.min(window + span)) - window) / self.page;
            let bits = if last - first == WINDOW_PAGES {
                u64::MAX
            } else {
                ((1 << (last - first)) - 1) << first
            };
            *self.wanted.entry(window).or_default() |= bits;
            if over_file {
                *self.over_file.entry(window).or_default() |= bits;
            }
            at = window + span;
        }
        // Whole windows below the last one cannot grow any more: write them as they come, since areas are
        // visited in ascending order.
        let keep = end / span * span;
        let early_from = self.early.keys().next().copied().unwrap_or(u64::MAX);
        let later = self.wanted.split_off(&keep.min(early_from / span * span));
        let ready = std::mem::replace(&mut self.wanted, later);
        for (window, bits) in ready {
            self.write(window, bits)?;
        }
        Ok(())
    }

    /// What an earlier image has of a window, where it has all of it.
    fn kept(&self, window: u64, bits: u64) -> Option<Kept> {
        let is_early = self.early.range(window..window + WINDOW_PAGES * self.page).next().is_some();
        let over_file = self.over_file.get(&window).copied().unwrap_or(0);
        let kept = self.earlier.window(window, bits, over_file, self.page);
        kept.filter(|_| !is_early)
    }

    /// Refers to what an earlier image has of a window. False where it is to be read.
    fn keep(&mut self, window: u64, kept: Kept) -> bool {
        if let Kept::Stored(pages, chunk) = kept {
            let Some(tag) = self.writer.refer(&chunk) else { return false };
            self.done.push(PendingWindow { address: window, pages, tag });
        }
        self.over_file.remove(&window);
        true
    }

    fn write(&mut self, window: u64, bits: u64) -> Result<()> {
        let kept = self.kept(window, bits);
        let verify = Wish::of_environment() == Wish::Verify;
        if kept.is_some_and(|kept| !verify && self.keep(window, kept)) {
            return Ok(());
        }
        let page = self.page as usize;
        let count = bits.count_ones() as usize;
        let mut buffer = self.writer.store.take_buffer(count * page);
        buffer.resize(count * page, 0);
        let mut filled = 0;
        let mut index = 0;
        while index < WINDOW_PAGES {
            if bits & 1 << index == 0 {
                index += 1;
                continue;
            }
            let address = window + index * self.page;
            if let Some(early) = self.early.remove(&address) {
                buffer[filled..filled + page].copy_from_slice(&early);
                (filled, index) = (filled + page, index + 1);
                continue;
            }
            let mut run = 1;
            while index + run < WINDOW_PAGES
                && bits & 1 << (index + run) != 0
                && !self.early.contains_key(&(address + run * self.page))
            {
                run += 1;
            }
            let bytes = run as usize * page;
            self.memory.read(address, &mut buffer[filled..filled + bytes])?;
            (filled, index) = (filled + bytes, index + run);
        }
        // Anonymous memory begins as zeros anyway.
        let must_keep = self.over_file.remove(&window).unwrap_or(0);
        let (pages, length) = drop_zeros(bits, must_keep, &mut buffer, page);
        buffer.truncate(length);
        if kept.is_some_and(|kept| !self.is_as_kept(kept, pages, &buffer)) {
            return Err(EngineError::odd(
                format!("the memory at {window:#x}"),
                "it was written, and nothing told of it",
            ));
        }
        if pages != 0 {
            let tag = self.writer.submit(buffer)?;
            self.done.push(PendingWindow { address: window, pages, tag });
        }
        Ok(())
    }

    /// Whether these pages are what an earlier image has.
    fn is_as_kept(&self, kept: Kept, pages: u64, bytes: &[u8]) -> bool {
        match kept {
            Kept::Zeros => pages == 0,
            Kept::Stored(stored, chunk) => {
                pages == stored && self.writer.store.is_of(&chunk, bytes)
            }
        }
    }

    fn finish(mut self) -> Result<Vec<PendingWindow>> {
        for (window, bits) in std::mem::take(&mut self.wanted) {
            self.write(window, bits)?;
        }
        self.done.sort_unstable_by_key(|window| window.address);
        Ok(self.done)
    }
}

/// Whether all is zero: the first byte, and each one like the one before it, which is compared faster than by a loop.
fn is_zero(page: &[u8]) -> bool {
    match page {
        [] => true,
        [first, rest @ ..] => *first == 0 && page[..rest.len()] == *rest,
    }
}

/// Takes pages of zeros out of a window's bytes; the pages that stay and their length.
fn drop_zeros(bits: u64, must_keep: u64, buffer: &mut [u8], page: usize) -> (u64, usize) {
    let (mut kept, mut from, mut to) = (0, 0, 0);
    for index in (0..WINDOW_PAGES).filter(|index| bits & 1 << index != 0) {
        if must_keep & 1 << index != 0 || !is_zero(&buffer[from..from + page]) {
            kept |= 1 << index;
            if to != from {
                buffer.copy_within(from..from + page, to);
            }
            to += page;
        }
        from += page;
    }
    (kept, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_is_not_zero() {
        let mut page = vec![0; 4096];
        assert!(is_zero(&page) && is_zero(&[]) && is_zero(&[0]));
        for at in [0, 1, 2047, 4095] {
            page[at] = 1;
            assert!(!is_zero(&page), "{at}");
            page[at] = 0;
        }
        assert!(!is_zero(&[7; 8]));
    }

    #[test]
    fn drops_zeros_but_not_over_a_file() {
        let page = 4096;
        let mut buffer = vec![0; 4 * page];
        buffer[page] = 1;
        buffer[3 * page] = 3;
        // Pages 0, 5, 6 and 63 of a window; 6 lies over a file.
        let bits = 1 | 1 << 5 | 1 << 6 | 1 << 63;
        let (kept, length) = drop_zeros(bits, 1 << 6, &mut buffer, page);
        assert_eq!(kept, 1 << 5 | 1 << 6 | 1 << 63);
        assert_eq!(length, 3 * page);
        assert_eq!((buffer[0], buffer[page], buffer[2 * page]), (1, 0, 3));
    }
}
