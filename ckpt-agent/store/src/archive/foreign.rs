//! Whether the chunks of an image from outside are what its index files say. The work is bounded by what is there: no byte of
//! a pack is read for two chunks, and no content is unpacked twice.

use std::path::Path;

use super::super::chunk::ChunkRef;
use super::super::error::Damage;
use super::super::layout::Layout;
use super::super::mark::CommitMark;
use super::super::reader::ChunkReader;
use super::super::sealing::OVERHEAD;
use super::super::sorted::{Order, Sorted, Sorter};
use super::super::verify::check_frame;
use super::{ArchiveError, Watch, refused};

/// Checks the packs of an image, and every chunk that its index files refer to.
pub(super) fn check(
    job_dir: &Path,
    mark: &CommitMark,
    referred: Sorter,
    watch: Watch<'_>,
) -> Result<(), ArchiveError> {
    let sorting = refused("sort what the index files refer to in", job_dir);
    let referred = referred.sorted();
    let by_hash = apart(&referred, mark, Sorter::new(job_dir, Order::Hash), job_dir, watch)?;
    each_once(&by_hash, job_dir, watch)?;
    drop(by_hash);
    let layout = Layout::new(job_dir);
    for pack in &mark.packs {
        check_frame(&layout, pack.id, || watch(0).map_err(ArchiveError::from))?;
    }
    let reader = ChunkReader::open(&layout, mark)?;
    let mut buffer = Vec::new();
    for chunk in referred.iter().map_err(&sorting)? {
        reader.read(&chunk.map_err(&sorting)?, &mut buffer)?;
        watch(0)?;
    }
    Ok(())
}

/// No two chunks may share a byte, and together they may not have more than the mark tells of. The same chunks by their hashes.
fn apart(
    referred: &Sorted,
    mark: &CommitMark,
    mut by_hash: Sorter,
    job_dir: &Path,
    watch: Watch<'_>,
) -> Result<Sorted, ArchiveError> {
    let sorting = refused("sort what the index files refer to in", job_dir);
    let mut last: Option<ChunkRef> = None;
    let (mut count, mut bytes) = (0_u64, 0_u64);
    let more = if mark.sealed { OVERHEAD as u64 } else { 0 };
    let most = mark.totals.bytes.saturating_add(mark.totals.chunks.saturating_mul(more));
    for chunk in referred.iter().map_err(&sorting)? {
        let chunk = chunk.map_err(&sorting)?;
        let end = |last: ChunkRef| last.offset.saturating_add(u64::from(last.stored));
        if last.is_some_and(|last| last.pack == chunk.pack && end(last) > chunk.offset) {
            return Err(wrong(&chunk, "it overlaps with another chunk"));
        }
        count += 1;
        bytes = bytes.saturating_add(u64::from(chunk.length));
        if count > mark.totals.chunks || bytes > most {
            return Err(wrong(&chunk, "the commit mark tells of fewer chunks or bytes"));
        }
        by_hash.add(&chunk).map_err(&sorting)?;
        last = Some(chunk);
        watch(0)?;
    }
    Ok(by_hash.sorted())
}

/// No content may be stored in two places: whoever writes a checkpoint stores it once.
fn each_once(by_hash: &Sorted, job_dir: &Path, watch: Watch<'_>) -> Result<(), ArchiveError> {
    let sorting = refused("sort what the index files refer to in", job_dir);
    let mut last = None;
    for chunk in by_hash.iter().map_err(&sorting)? {
        let chunk = chunk.map_err(&sorting)?;
        if last == Some(chunk.hash) {
            return Err(wrong(&chunk, "an equal chunk is stored twice"));
        }
        last = Some(chunk.hash);
        watch(0)?;
    }
    Ok(())
}

fn wrong(chunk: &ChunkRef, reason: &str) -> ArchiveError {
    let reason = reason.to_owned();
    Damage::Reference { pack: chunk.pack, hash: chunk.hash, reason }.into()
}
