//! Writes a snapshot into the store while the job goes on: pages out of the snapshot processes, blobs out of
//! memory, then the index.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::debug_span;
use tracing::field::Empty;

use super::super::doing::{self, Thing};
use super::super::error::{EngineError, Result};
use super::super::graph::{
    Area, Backing, Blob, BlobId, CarriedInode, Graph, InodeId, Origin, ProcessImage, Span,
    StoredWindow,
};
use super::super::inodes;
use super::super::names;
use super::super::objects::{BlobData, DumpContext, Object, reopen};
use super::super::proc::{Mapping, add_policies, around, namespace_root, read_smaps};
use super::super::sys::stat::modified_ns_of;
use super::areas::{Plan, area, is_over_file};
use super::detached;
use super::earlier::Earlier;
use super::files::{MappedFiles, View, executable};
use super::into_store::{Tag, Writer, process_file};
use super::page_writer::{PageWriter, PendingWindow};
use super::pages::Pagemap;
use super::snapshot_process::is_alive;
use super::stages::{ProcessDump, SnapshotData, is_not_inherited};
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
    data.context.copying.clear_room();
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
                let PendingWindow { address, pages, has, tag } = window;
                Ok(StoredWindow { address, pages, has, chunk: place(tag)? })
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
    let shows_itself = process.shows_itself();
    let ProcessDump { host_pid, snapshot_pid, mut image, .. } = process;
    let ProcessDump { shows_program, planned, early, guards, unwritten, .. } = process;
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
    let root = data.context.root_of(snapshot_pid);
    let view = match data.context.places {
        Some(_) => View::from(&root),
        None => View::of(snapshot_pid),
    };
    let mut smaps = read_smaps(snapshot_pid)?;
    add_policies(snapshot_pid, &mut smaps)?;
    let mut pagemap = Pagemap::of(snapshot_pid, data.page)?;
    let earlier = Earlier::of(writer.store.base(), image.pid, &unwritten, data.page);
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
        let is_copied = !shows_itself && flags.is_some_and(is_not_inherited);
        if is_copied && !data.knows_not_inherited(host_pid, mapping) {
            return Err(EngineError::rearranged(image.pid));
        }
        let special = data.as_it_ran(host_pid, mapping);
        // The snapshot process sees the same files, and is there for certain.
        let context = &data.context;
        let identify = |mapping: &Mapping| files.identify(&root, &view, mapping, context);
        let (mut area, whole) = area(plan, special.or(flags), identify)
            .map_err(|error| error.of(image.pid, image.leader_name()))?;
        if whole {
            pages.add(area.start, area.end, false)?;
        } else if !area.shared
            && plan.plan != Plan::Kernel
            // What may be dropped is: random numbers that a library keeps there must not come twice.
            && flags.is_some_and(|flags| !flags.has(b"dp"))
        {
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
    let check = data.graph.kept.file_check;
    let link = shows_program.then(|| format!("/proc/{snapshot_pid}/exe"));
    // The process may have left the root from which its program's path is told.
    let top = match data.context.places {
        Some(_) => root,
        None => namespace_root(snapshot_pid)?,
    };
    image.executable = executable(link, &top, &image.executable.path, check);
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
    let reached = format!("{}{}", context.root_of(snapshot_pid), file.path);
    let failed = |error| EngineError::system("read", file.path.clone(), error);
    let metadata = std::fs::metadata(names::path(&reached)).map_err(failed)?;
    if inodes::belongs_to_another(snapshot_pid, metadata.uid()) {
        return Ok(());
    }
    let key = (metadata.dev(), metadata.ino());
    let inode = match context.inode_index.get(&key) {
        Some(inode) => *inode,
        None => {
            let opened = reopen::open_as_owner(&reached, libc::O_RDONLY | libc::O_NONBLOCK);
            let mut opened = File::from(opened.map_err(|errno| failed(errno.into()))?);
            let mut bytes = Vec::new();
            opened.read_to_end(&mut bytes).map_err(failed)?;
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
                accessed_ns: None,
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
