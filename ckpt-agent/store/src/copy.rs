//! Copies of checkpoints in other places: which files make one that is sealed but not committed, whether
//! a copy is whole, and its commit.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::checkpoint::{Checkpoint, read_mark};
use super::chunk::{ChunkRef, PackId};
use super::disk::{Disk, RealDisk, open_regular};
use super::error::{Damage, StoreError};
use super::hash::ChunkHash;
use super::key_file::key_of;
use super::layout::{Layout, MARK, MARK_DRAFT, is_index_name};
use super::mark::{CommitMark, IndexFile, MAX_FILES, MAX_INDEX, PackFile, Totals};
use super::references::{Fault, Tally, references};
use super::sealed;

/// Checkpoint `number` of the job kept in `job_dir`, as the files there tell: by its commit mark, or, while
/// it has none, by what lies in its folder. Lengths are checked, chunks are not.
///
/// # Errors
/// What is wrong with it.
pub fn survey(job_dir: &Path, number: u64) -> Result<CommitMark, Damage> {
    survey_in(&Layout::new(job_dir), number)
}

pub(super) fn survey_in(layout: &Layout, number: u64) -> Result<CommitMark, Damage> {
    match Checkpoint::open_in(layout.clone(), number) {
        Ok(checkpoint) => Ok(checkpoint.mark().clone()),
        Err(Damage::Incomplete { .. }) => Ok(look(layout, number)?.0),
        Err(damage) => Err(damage),
    }
}

/// The commit mark of checkpoint `number` of the job kept in `job_dir`, and nothing else of it.
///
/// # Errors
/// What is wrong with it.
pub fn mark(job_dir: &Path, number: u64) -> Result<CommitMark, Damage> {
    read_mark(&Layout::new(job_dir), number)
}

/// Hash of the index files of a checkpoint, committed or not: of their names, lengths and contents. They hold the hashes of
/// all chunks.
///
/// # Errors
/// What is wrong with it.
pub fn digest(job_dir: &Path, number: u64) -> Result<ChunkHash, Damage> {
    let layout = Layout::new(job_dir);
    let mut files = match read_mark(&layout, number) {
        Ok(mark) => mark.files,
        Err(Damage::Incomplete { .. }) => index_files(&layout, number)?,
        Err(damage) => return Err(damage),
    };
    files.sort_by(|one, other| one.name.cmp(&other.name));
    let line = |file: IndexFile| format!("{} {} {}\n", file.name, file.length, file.hash);
    Ok(ChunkHash::of(files.into_iter().map(line).collect::<String>().as_bytes()))
}

fn index_files(layout: &Layout, number: u64) -> Result<Vec<IndexFile>, Damage> {
    let folder = layout.checkpoint(number);
    let failed = |error: std::io::Error| Damage::io(&folder, &error);
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let Ok(name) = entry.map_err(failed)?.file_name().into_string() else { continue };
        if !is_index_name(&name) {
            continue;
        }
        if files.len() >= MAX_FILES {
            return Err(damage(number, "it has too many files"));
        }
        let path = folder.join(&name);
        let read = Tally::of(open_index(&path)?).finish();
        let (length, hash) = read.map_err(|error| Damage::io(&path, &error))?;
        files.push(within_limit(number, IndexFile { name, length, hash })?);
    }
    Ok(files)
}

/// Reads an index file of a checkpoint, committed or not.
///
/// # Errors
/// What is wrong with it; [`Damage::NoKey`], [`Damage::WrongKey`].
pub fn read_index<T: DeserializeOwned>(
    job_dir: &Path,
    number: u64,
    name: &str,
) -> Result<T, Damage> {
    let path = Layout::new(job_dir).checkpoint(number).join(name);
    let mut bytes = Vec::new();
    let read = open_index(&path)?.read_to_end(&mut bytes);
    read.map_err(|error| Damage::io(&path, &error))?;
    let (length, hash) = (bytes.len() as u64, ChunkHash::of(&bytes));
    let file = within_limit(number, IndexFile { name: name.to_owned(), length, hash })?;
    let text = sealed::open_index(|| key_of(job_dir), number, &file, bytes)?;
    protocol::json::read(&text).map_err(|error| {
        let (name, reason) = (file.name, error.to_string());
        Damage::Index { number, name, reason }
    })
}

/// The packs that lie in a job's folder.
///
/// # Errors
/// What the kernel refuses.
pub fn packs(job_dir: &Path) -> Result<Vec<PackId>, Damage> {
    let layout = Layout::new(job_dir);
    layout.pack_ids().map_err(|error| Damage::io(&layout.packs(), &error))
}

/// Puts the commit mark beside a copy. One that has it already is left as it is.
///
/// # Errors
/// What is wrong with the copy, or what the kernel refuses.
pub fn commit_copy(job_dir: &Path, number: u64, meta: &impl Serialize) -> Result<(), StoreError> {
    let layout = Layout::new(job_dir);
    if read_mark(&layout, number).is_ok() {
        return Ok(());
    }
    let json = |reason: String| StoreError::Json { name: MARK.to_owned(), reason };
    let (mut mark, _) = look(&layout, number).map_err(|damage| json(damage.to_string()))?;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    mark.time_ms = since_1970.as_millis() as u64;
    mark.meta = protocol::json::to_value(meta).map_err(|error| json(error.to_string()))?;
    let text = mark.encode().map_err(|error| json(error.to_string()))?;
    write_mark(&layout, number, &text)
}

/// Changes what the commit mark tells of the checkpoint beside its files.
///
/// # Errors
/// What is wrong with the mark, or what the kernel refuses.
pub fn tell_anew(job_dir: &Path, number: u64, meta: &impl Serialize) -> Result<(), StoreError> {
    let layout = Layout::new(job_dir);
    let json = |reason: String| StoreError::Json { name: MARK.to_owned(), reason };
    let mut mark = read_mark(&layout, number).map_err(|damage| json(damage.to_string()))?;
    mark.meta = protocol::json::to_value(meta).map_err(|error| json(error.to_string()))?;
    let text = mark.encode().map_err(|error| json(error.to_string()))?;
    write_mark(&layout, number, &text)
}

fn write_mark(layout: &Layout, number: u64, text: &[u8]) -> Result<(), StoreError> {
    let folder = layout.checkpoint(number);
    let (draft, last) = (folder.join(MARK_DRAFT), folder.join(MARK));
    // One that an interrupted commit has left.
    let _ = fs::remove_file(&draft);
    let failed = |error: std::io::Error| StoreError::io("write", &last, &error);
    let mut file = RealDisk.create(&draft).map_err(failed)?;
    file.append(&[text]).and_then(|()| file.sync()).map_err(failed)?;
    RealDisk.rename(&draft, &last).and_then(|()| RealDisk.sync_dir(&folder)).map_err(failed)
}

/// Reads every index file in the folder, and finds the packs that they need.
pub(super) fn look(
    layout: &Layout,
    number: u64,
) -> Result<(CommitMark, HashSet<ChunkRef>), Damage> {
    let folder = layout.checkpoint(number);
    let failed = |error: std::io::Error| Damage::io(&folder, &error);
    let mut files = BTreeMap::new();
    let mut chunks = HashSet::new();
    let mut is_sealed = false;
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let Ok(name) = entry.map_err(failed)?.file_name().into_string() else { continue };
        if !is_index_name(&name) {
            continue;
        }
        if files.len() >= MAX_FILES {
            return Err(damage(number, "it has too many files"));
        }
        let file = read_references(&layout.checkpoint(number), number, &name, |chunk| {
            chunks.insert(chunk);
        })?;
        is_sealed |= sealed::is_sealed(&folder.join(&name));
        files.insert(name, (file.length, file.hash));
    }
    if files.is_empty() {
        return Err(damage(number, "it has no files"));
    }
    let packs: HashSet<PackId> = chunks.iter().map(|chunk| chunk.pack).collect();
    let packs = packs.into_iter().map(|id| pack(layout, id)).collect::<Result<Vec<_>, _>>()?;
    let totals = Totals {
        submitted: chunks.len() as u64,
        bytes: chunks.iter().map(|chunk| u64::from(chunk.length)).sum(),
        chunks: chunks.len() as u64,
        stored: chunks.iter().map(|chunk| u64::from(chunk.stored)).sum(),
        reused: 0,
        index: files.values().map(|(length, _)| length).sum(),
    };
    let files = files.into_iter();
    let files = files.map(|(name, (length, hash))| IndexFile { name, length, hash }).collect();
    let (meta, sealed) = (serde_json::Value::Null, is_sealed);
    let mark = CommitMark { checkpoint: number, time_ms: 0, files, packs, totals, sealed, meta };
    Ok((mark, chunks))
}

fn damage(number: u64, reason: &str) -> Damage {
    Damage::Mark { number, reason: reason.to_owned() }
}

/// Calls `found` for every chunk that an index file refers to, whether that is committed or not.
pub(super) fn read_references(
    folder: &Path,
    number: u64,
    name: &str,
    found: impl FnMut(ChunkRef),
) -> Result<IndexFile, Damage> {
    let path = folder.join(name);
    let failed = |error: std::io::Error| Damage::io(&path, &error);
    let mut read = Tally::of(open_index(&path)?);
    let fault = match references(&mut read, found) {
        Err(Fault::Read(error)) => return Err(failed(error)),
        Err(Fault::Text(reason)) => Some(reason),
        Ok(()) => None,
    };
    let (length, hash) = read.finish().map_err(failed)?;
    let file = within_limit(number, IndexFile { name: name.to_owned(), length, hash })?;
    match fault {
        Some(reason) => Err(Damage::Index { number, name: file.name, reason }),
        None => Ok(file),
    }
}

/// The bytes of an index file, up to one more than it may have.
fn open_index(path: &Path) -> Result<impl Read + use<>, Damage> {
    let file = open_regular(path).map_err(|error| Damage::io(path, &error))?;
    Ok(file.take(MAX_INDEX as u64 + 1))
}

fn within_limit(number: u64, file: IndexFile) -> Result<IndexFile, Damage> {
    match file.length > MAX_INDEX as u64 {
        true => Err(damage(number, "it has a file beyond the limit")),
        false => Ok(file),
    }
}

fn pack(layout: &Layout, id: PackId) -> Result<PackFile, Damage> {
    let path = layout.pack(id);
    match open_regular(&path).and_then(|file| file.metadata()) {
        Ok(found) => Ok(PackFile { id, length: found.len() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Damage::PackMissing { pack: id })
        }
        Err(error) => Err(Damage::io(&path, &error)),
    }
}
