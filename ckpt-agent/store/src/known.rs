//! Chunks that lie in packs of an older checkpoint, and need not be stored again.
//!
//! Checkpoints refer to each other's packs in **two chains**: a new one takes chunks from the one before the last,
//! never from the last. So the newest two checkpoints share no byte, and damage to one leaves the other whole, as it
//! was when each stored everything; on the disk they take what two whole checkpoints take.
//!
//! What is dead in a pack goes with the pack alone. So a pack of which less than half is still in use is not
//! referred to again (its live chunks are stored anew, the greedy choice of Rosenblum and Ousterhout, "The Design
//! and Implementation of a Log-Structured File System", 1992), and where packs become many the smallest are
//! stored together anew.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::checkpoint::{Checkpoint, read_mark};
use super::chunk::{ChunkRef, PackId};
use super::error::Damage;
use super::hash::ChunkHash;
use super::layout::Layout;
use super::mark::{CommitMark, PackFile};
use super::sealing::ImageKey;

/// The most packs of older checkpoints that one refers to.
const MOST_PACKS: usize = 64;
/// So many stay when there are more: so chunks are brought together once in 32 checkpoints, not in each.
const PACKS_AFTER_MANY: usize = 32;
/// Headers and padding of a pack, which are no sign of dead chunks in a small one.
const OVERHEAD: u64 = 16 << 10;

/// Chunks that are stored already.
#[derive(Debug, Default)]
pub(super) struct Known {
    chunks: HashMap<ChunkHash, ChunkRef>,
    packs: HashMap<PackId, u64>,
    /// Of encrypted chunks, by pack and offset, the hash of what is stored.
    stored: StoredHashes,
    /// The checkpoint that has them.
    base: Option<Checkpoint>,
}

/// By pack and offset, the hash of a chunk's bytes as they are stored.
pub(super) type StoredHashes = HashMap<(PackId, u64), ChunkHash>;

impl Known {
    /// What checkpoint `number` may refer to, of the committed checkpoints from `oldest` on. A base that can't
    /// be read is none: then everything is stored.
    pub(super) fn before(
        layout: &Layout,
        number: u64,
        oldest: u64,
        key: Option<&ImageKey>,
    ) -> Self {
        let Some(base) = base(layout, number, oldest) else { return Self::default() };
        Self::of(layout, base, key).unwrap_or_else(|damage| {
            tracing::warn!(%damage, "checkpoint {number} stores everything anew");
            Self::default()
        })
    }

    fn of(layout: &Layout, number: u64, key: Option<&ImageKey>) -> Result<Self, Damage> {
        let base = Checkpoint::open(layout.job(), number)?;
        let alike = match (base.head()?, key) {
            (None, None) => true,
            (Some(head), Some(key)) => head.is_by(key),
            _ => false,
        };
        if !alike {
            return Ok(Self::default());
        }
        let (mut chunks, mut stored) = (HashMap::new(), HashMap::new());
        for file in &base.mark().files {
            let known = |chunk: ChunkRef| {
                chunks.insert(chunk.hash, chunk);
            };
            match key {
                None => base.references(file, known)?,
                Some(key) => {
                    base.references_in_text(file, key, known)?;
                    base.references(file, |chunk| {
                        stored.insert((chunk.pack, chunk.offset), chunk.hash);
                    })?;
                }
            }
        }
        let mut live: BTreeMap<PackId, u64> = BTreeMap::new();
        for chunk in chunks.values() {
            *live.entry(chunk.pack).or_default() += u64::from(chunk.stored);
        }
        let packs = worthwhile(&base.mark().packs, &live);
        chunks.retain(|_, chunk| packs.contains_key(&chunk.pack));
        // Of an encrypted chunk whoever has no key must be told what is stored.
        let told = |chunk: &ChunkRef| stored.contains_key(&(chunk.pack, chunk.offset));
        chunks.retain(|_, chunk| key.is_none() || told(chunk));
        Ok(Self { chunks, packs, stored, base: Some(base) })
    }

    /// The checkpoint whose chunks these are.
    pub(super) fn base(&self) -> Option<&Checkpoint> {
        self.base.as_ref()
    }

    /// The place of a chunk.
    pub(super) fn place(&self, hash: &ChunkHash, length: usize) -> Option<ChunkRef> {
        self.chunks.get(hash).filter(|chunk| chunk.length as usize == length).copied()
    }

    /// The hash of a known chunk's bytes as they are stored; none, where they are not encrypted.
    pub(super) fn stored(&self, chunk: &ChunkRef) -> Option<ChunkHash> {
        self.stored.get(&(chunk.pack, chunk.offset)).copied()
    }

    /// The length of a pack that holds known chunks.
    pub(super) fn pack(&self, id: PackId) -> Option<PackFile> {
        self.packs.get(&id).map(|length| PackFile { id, length: *length })
    }
}

/// The newest checkpoint that shares no pack with the last one.
fn base(layout: &Layout, number: u64, oldest: u64) -> Option<u64> {
    let numbers = layout.numbers().ok()?;
    let candidates = numbers.into_iter().rev().filter(|found| (oldest..number).contains(found));
    let mut marks = candidates.filter_map(|found| read_mark(layout, found).ok());
    let packs = |mark: &CommitMark| mark.packs.iter().map(|pack| pack.id).collect::<HashSet<_>>();
    let last = packs(&marks.next()?);
    marks.find(|mark| last.is_disjoint(&packs(mark))).map(|mark| mark.checkpoint)
}

/// Which packs to refer to again, with their lengths.
fn worthwhile(packs: &[PackFile], live: &BTreeMap<PackId, u64>) -> HashMap<PackId, u64> {
    let live = |pack: &PackFile| live.get(&pack.id).copied().unwrap_or_default();
    let half_used = |pack: &&PackFile| live(pack) >= pack.length.saturating_sub(OVERHEAD) / 2;
    let mut good: Vec<&PackFile> = packs.iter().filter(half_used).collect();
    if good.len() > MOST_PACKS {
        good.sort_by_key(|pack| std::cmp::Reverse(live(pack)));
        good.truncate(PACKS_AFTER_MANY);
    }
    good.into_iter().map(|pack| (pack.id, pack.length)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_with_little_in_use_and_the_smallest_of_many_are_left() {
        let packs: Vec<PackFile> =
            (0..80).map(|n| PackFile { id: PackId::random(), length: (n + 1) << 20 }).collect();
        let all: BTreeMap<PackId, u64> = packs.iter().map(|pack| (pack.id, pack.length)).collect();
        let kept = worthwhile(&packs, &all);
        assert_eq!(kept.len(), PACKS_AFTER_MANY);
        assert!(packs[48..].iter().all(|pack| kept.contains_key(&pack.id)));
        assert_eq!(worthwhile(&packs[..MOST_PACKS], &all).len(), MOST_PACKS);

        let third = |pack: &PackFile| (pack.id, pack.length / 3);
        let mut some: BTreeMap<PackId, u64> = packs.iter().map(third).collect();
        assert!(worthwhile(&packs, &some).is_empty());
        some.insert(packs[5].id, packs[5].length / 3 * 2);
        assert_eq!(worthwhile(&packs, &some), HashMap::from([(packs[5].id, packs[5].length)]));
    }
}
