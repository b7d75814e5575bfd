//! Checking every hash of a checkpoint.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufReader, Read};
use std::path::Path;

use tar::EntryType;

use super::checkpoint::{Checkpoint, read_mark};
use super::chunk::{ChunkRef, PackId};
use super::copy::{look, read_references, survey_in};
use super::disk::open_regular;
use super::error::Damage;
use super::layout::Layout;
use super::mark::CommitMark;
use super::pack::PADDING;
use super::reader::ChunkReader;

/// What [`verify`] has found whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Index files.
    pub files: u64,
    /// Packs.
    pub packs: u64,
    /// Different chunks.
    pub chunks: u64,
    /// Their length in bytes.
    pub bytes: u64,
}

/// How far [`verify`] has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Chunks checked.
    pub done: u64,
    /// Chunks to check.
    pub total: u64,
}

/// Checks checkpoint `number` of the job kept in `job_dir`: commit mark, index files, the frame
/// of each pack, and the bytes of every chunk that any index file refers to. Needs no key: what is encrypted is checked as
/// it is stored.
///
/// # Errors
/// The first damage found.
pub fn verify(
    job_dir: &Path,
    number: u64,
    progress: impl FnMut(Progress),
) -> Result<Report, Damage> {
    verify_in(Layout::new(job_dir), number, progress)
}

fn verify_in(
    layout: Layout,
    number: u64,
    mut progress: impl FnMut(Progress),
) -> Result<Report, Damage> {
    let checkpoint = Checkpoint::open_in(layout, number)?;
    let mark = checkpoint.mark();
    let mut chunks: HashSet<ChunkRef> = HashSet::new();
    for file in &mark.files {
        checkpoint.references(file, |chunk| {
            chunks.insert(chunk);
        })?;
    }
    for pack in &mark.packs {
        check_frame(checkpoint.layout(), pack.id, || Ok::<(), Damage>(()))?;
    }
    // In the order of the disk.
    let mut chunks: Vec<ChunkRef> = chunks.into_iter().collect();
    chunks.sort_unstable_by_key(|chunk| (chunk.pack, chunk.offset));
    let total = chunks.len() as u64;
    let reader = checkpoint.stored_reader()?;
    let mut report = Report {
        files: mark.files.len() as u64,
        packs: mark.packs.len() as u64,
        ..Report::default()
    };
    let mut buffer = Vec::new();
    for chunk in &chunks {
        reader.read(chunk, &mut buffer)?;
        report.chunks += 1;
        report.bytes += u64::from(chunk.length);
        progress(Progress { done: report.chunks, total });
    }
    Ok(report)
}

/// Which index files of a checkpoint, committed or sealed, refer to chunks that are damaged, each with the first
/// damage that was found: whoever needs none of them can be restored.
///
/// # Errors
/// Damage to anything but chunks, from which nobody can be restored, and what the kernel refused.
pub fn wounded(job_dir: &Path, number: u64) -> Result<BTreeMap<String, Damage>, Damage> {
    wounded_in(&Layout::new(job_dir), number)
}

pub(super) fn wounded_in(layout: &Layout, number: u64) -> Result<BTreeMap<String, Damage>, Damage> {
    let mark = survey_in(layout, number)?;
    let mut users: HashMap<ChunkRef, Vec<usize>> = HashMap::new();
    for (file, index) in mark.files.iter().zip(0..) {
        let mut use_of = |chunk| {
            let of: &mut Vec<usize> = users.entry(chunk).or_default();
            if of.last() != Some(&index) {
                of.push(index);
            }
        };
        read_references(&layout.checkpoint(number), number, &file.name, &mut use_of)?;
    }
    // In the order of the disk.
    let mut chunks: Vec<(ChunkRef, Vec<usize>)> = users.into_iter().collect();
    chunks.sort_unstable_by_key(|(chunk, _)| (chunk.pack, chunk.offset));
    let reader = ChunkReader::open(layout, &mark)?;
    let mut wounded = BTreeMap::new();
    let mut buffer = Vec::new();
    for (chunk, users) in &chunks {
        match reader.read(chunk, &mut buffer) {
            Ok(()) => {}
            Err(damage @ (Damage::Chunk { .. } | Damage::Reference { .. })) => {
                for index in users {
                    let name = mark.files[*index].name.clone();
                    wounded.entry(name).or_insert_with(|| damage.clone());
                }
            }
            Err(other) => return Err(other),
        }
    }
    Ok(wounded)
}

/// Checks every byte of a checkpoint, committed or not. Of packs that are `trusted`, because they were here
/// before, only those chunks are read that no committed checkpoint refers to: the others were checked when they came.
///
/// # Errors
/// The first damage found.
pub fn verify_copy(
    job_dir: &Path,
    number: u64,
    trusted: &HashSet<PackId>,
) -> Result<CommitMark, Damage> {
    verify_copy_in(&Layout::new(job_dir), number, trusted)
}

pub(super) fn verify_copy_in(
    layout: &Layout,
    number: u64,
    trusted: &HashSet<PackId>,
) -> Result<CommitMark, Damage> {
    if read_mark(layout, number).is_ok() {
        verify_in(layout.clone(), number, |_| {})?;
        return read_mark(layout, number);
    }
    let (mark, mut chunks) = look(layout, number)?;
    let reader = ChunkReader::open(layout, &mark)?;
    let shared = |chunk: &ChunkRef| trusted.contains(&chunk.pack);
    if chunks.iter().any(shared) {
        let committed = committed_chunks(&layout.lowest(), trusted)?;
        chunks.retain(|chunk| !(shared(chunk) && committed.contains(chunk)));
    }
    let mut chunks: Vec<ChunkRef> = chunks.into_iter().collect();
    chunks.sort_unstable_by_key(|chunk| (chunk.pack, chunk.offset));
    let mut buffer = Vec::new();
    for chunk in &chunks {
        reader.read(chunk, &mut buffer)?;
    }
    Ok(mark)
}

/// The chunks of some packs that committed checkpoints refer to. A checkpoint that can't be read vouches for nothing.
fn committed_chunks(layout: &Layout, of: &HashSet<PackId>) -> Result<HashSet<ChunkRef>, Damage> {
    let folder = layout.checkpoints();
    let mut chunks = HashSet::new();
    for number in layout.numbers().map_err(|error| Damage::io(&folder, &error))? {
        let Ok(mark) = read_mark(layout, number) else { continue };
        if !mark.packs.iter().any(|pack| of.contains(&pack.id)) {
            continue;
        }
        let Ok(checkpoint) = Checkpoint::open(layout.job(), number) else { continue };
        for file in &mark.files {
            checkpoint.references(file, |chunk| {
                if of.contains(&chunk.pack) {
                    chunks.insert(chunk);
                }
            })?;
        }
    }
    Ok(chunks)
}

/// Whether the pack still is the tar archive that was written: every header's checksum, every
/// name, and padding that is zero. What is inside of the groups is told by the chunks.
///
/// # Errors
/// What is wrong with it, or what `at_each` member has said.
pub(super) fn check_frame<E: From<Damage>>(
    layout: &Layout,
    pack: PackId,
    mut at_each: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let path = layout.pack(pack);
    let damaged = |reason: String| Damage::Pack { pack, reason };
    let file = open_regular(&path).map_err(|error| Damage::io(&path, &error))?;
    // From header to header: what is in between would be read in vain.
    let mut archive = tar::Archive::new(BufReader::with_capacity(512, file));
    let entries = archive.entries_with_seek().map_err(|error| damaged(error.to_string()))?;
    // A member that tells of the next one would be read into memory.
    for entry in entries.raw(true) {
        at_each()?;
        let mut entry = entry.map_err(|error| damaged(error.to_string()))?;
        let name = entry.path_bytes().into_owned();
        if name == PADDING.as_bytes() {
            let mut padding = Vec::new();
            let read = entry.by_ref().take(1 << 13).read_to_end(&mut padding);
            read.map_err(|error| damaged(error.to_string()))?;
            if padding.iter().any(|byte| *byte != 0) {
                return Err(damaged("its padding is not zero".to_owned()).into());
            }
        } else if !name.starts_with(b"v1/") || entry.header().entry_type() != EntryType::Regular {
            let reason = format!("{:?} is no member", String::from_utf8_lossy(&name));
            return Err(damaged(reason).into());
        }
    }
    Ok(())
}
