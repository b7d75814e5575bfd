//! Writing a checkpoint, in three steps that are types: chunks ([`CheckpointWriter`]), then the
//! index that refers to them ([`IndexWriter`]), then the commit ([`SealedCheckpoint`]).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::blob::{Blob, PendingBlob};
use super::checkpoint::Checkpoint;
use super::chunk::{ChunkRef, Encoding, PackId};
use super::draft::Draft;
use super::error::StoreError;
use super::hash::ChunkHash;
use super::key_file::key_of;
use super::known::{Known, StoredHashes};
use super::layout::{MARK, MARK_DRAFT, is_index_name};
use super::mark::{CommitMark, IndexFile, MAX_FILES, MAX_INDEX, PackFile, Totals};
use super::pack::{FinishedPack, PackWriter};
use super::pipeline::{Drained, Pipeline, WriterOptions};
use super::references::{Fault, references};
use super::sealed::seal_index;
use super::sealing::{ImageKey, OVERHEAD};

/// Takes the chunks of a new checkpoint. Dropped before the commit, it removes what it wrote.
pub struct CheckpointWriter {
    // Dropped first: no thread may write to what the draft removes.
    pipeline: Pipeline,
    draft: Draft,
    tags: Mutex<Vec<(u64, u64)>>,
    key: Option<ImageKey>,
}

impl CheckpointWriter {
    /// Begins checkpoint `number` of the job kept in `job_dir`, after clearing away whatever an
    /// interrupted writer has left there. It is encrypted where the job has a key ([`super::keep_key`]).
    ///
    /// # Errors
    /// [`StoreError::Committed`] if the number is taken, [`StoreError::Busy`] if another process
    /// writes in this job's folder, and what the kernel refuses.
    pub fn create(job_dir: &Path, number: u64) -> Result<Self, StoreError> {
        Self::create_with(job_dir, number, &WriterOptions::default())
    }

    /// Like [`create`](Self::create), with other options.
    ///
    /// # Errors
    /// As there.
    pub fn create_with(
        job_dir: &Path,
        number: u64,
        options: &WriterOptions,
    ) -> Result<Self, StoreError> {
        let key = key_of(job_dir).map_err(StoreError::Key)?;
        let key = key.map(|key| key.for_new_image()).transpose()?.flatten();
        let key = match options.cipher {
            Some(cipher) => key.map(|key| key.with_cipher(cipher)),
            None => key,
        };
        let mut draft = Draft::begin(options.disk.clone(), job_dir, number)?;
        let (id, path, file) = loop {
            let id = PackId::random();
            let path = draft.layout().pack(id);
            match draft.create(&path) {
                Ok(file) => break (id, path, file),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(StoreError::io("create", &path, &error)),
            }
        };
        // Under the draft's lock nobody removes what is referred to.
        let before = |oldest| Known::before(draft.layout(), number, oldest, key.as_ref());
        let known = options.reuse_from.map(before);
        let pack = PackWriter::new(id, &path, file);
        let pipeline = Pipeline::start(options, pack, known.unwrap_or_default(), key.clone())?;
        Ok(Self { pipeline, draft, tags: Mutex::default(), key })
    }

    /// Hands over the bytes of one chunk, 1 byte to [`MAX_CHUNK`](super::MAX_CHUNK). The tag is
    /// the caller's and comes back with the chunk's place. Waits while too much is on its way.
    ///
    /// # Errors
    /// [`StoreError::ChunkLength`], or why an earlier chunk could not be written.
    pub fn submit(&self, tag: u64, bytes: Vec<u8>) -> Result<(), StoreError> {
        let sequence = self.pipeline.submit(bytes)?;
        self.tags.lock().unwrap_or_else(PoisonError::into_inner).push((sequence, tag));
        Ok(())
    }

    /// The committed checkpoint whose chunks this one refers to; `None`: all is stored.
    pub fn base(&self) -> Option<&Checkpoint> {
        self.pipeline.base()
    }

    /// Refers to a chunk of the [`base`](Self::base), as if its bytes had been handed over with this tag. False where it
    /// is to be stored anew: the base's pack is hardly in use any more.
    pub fn refer(&self, tag: u64, chunk: &ChunkRef) -> bool {
        let Some(sequence) = self.pipeline.refer(chunk) else { return false };
        self.tags.lock().unwrap_or_else(PoisonError::into_inner).push((sequence, tag));
        true
    }

    /// Hands over all bytes of `source`, to its end.
    ///
    /// # Errors
    /// [`StoreError::Source`] if it can't be read, else as for [`submit`](Self::submit).
    pub fn submit_blob(&self, source: &mut dyn Read) -> Result<PendingBlob, StoreError> {
        let take_buffer = |capacity| self.pipeline.take_buffer(capacity);
        PendingBlob::cut(source, take_buffer, |bytes| self.pipeline.submit(bytes))
    }

    /// An empty buffer with room for `capacity` bytes, to be filled and submitted. Used ones come
    /// back this way, and spare the page faults of fresh memory.
    pub fn take_buffer(&self, capacity: usize) -> Vec<u8> {
        self.pipeline.take_buffer(capacity)
    }

    /// Waits until every chunk has its place in the pack. (Durable is only what was sealed.)
    ///
    /// # Errors
    /// Why a chunk could not be written.
    pub fn finish_chunks(self) -> Result<(IndexWriter, Chunks), StoreError> {
        let Self { pipeline, draft, tags, key } = self;
        let Drained { pack, reused, older, places, stored: hashes } = pipeline.drain()?;
        let mut tags = tags.into_inner().unwrap_or_else(PoisonError::into_inner);
        tags.sort_unstable_by_key(|(sequence, _)| *sequence);
        let more = if key.is_some() { OVERHEAD as u64 } else { 0 };
        let totals = Totals {
            submitted: places.len() as u64,
            bytes: places.iter().map(|chunk| u64::from(chunk.length)).sum(),
            chunks: (pack.refs.len() + reused.len()) as u64,
            stored: stored(&pack.refs, more) + stored(&reused, more),
            reused: stored(&reused, more),
            index: 0,
        };
        let (files, names) = (Vec::new(), HashSet::new());
        let sealing = key.map(|key| Sealing { key, hashes });
        let index = IndexWriter { draft, pack, older, totals, files, names, sealing };
        Ok((index, Chunks { places, tags }))
    }
}

/// Where the submitted chunks are.
#[derive(Debug)]
pub struct Chunks {
    /// By sequence number of submission.
    places: Vec<ChunkRef>,
    /// Sequence number and tag.
    tags: Vec<(u64, u64)>,
}

impl Chunks {
    /// Every submitted chunk with its tag, in the order of submission.
    pub fn iter(&self) -> impl Iterator<Item = (u64, ChunkRef)> + '_ {
        self.tags.iter().filter_map(|(sequence, tag)| {
            self.places.get(usize::try_from(*sequence).ok()?).map(|place| (*tag, *place))
        })
    }

    /// The blob that was submitted to the same writer; `None` if it went to another one.
    pub fn blob(&self, pending: &PendingBlob) -> Option<Blob> {
        pending.resolve(&self.places)
    }
}

/// Takes the index of a new checkpoint. Dropped before the commit, it removes what was written.
pub struct IndexWriter {
    // Dropped first, so that its file is closed before the draft removes it.
    pack: FinishedPack,
    /// Packs of older checkpoints.
    older: Vec<PackFile>,
    draft: Draft,
    totals: Totals,
    files: Vec<IndexFile>,
    names: HashSet<String>,
    sealing: Option<Sealing>,
}

/// What encrypts index files.
struct Sealing {
    key: ImageKey,
    hashes: StoredHashes,
}

impl Sealing {
    /// The index file of that text.
    fn seal(&self, number: u64, name: &str, text: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut chunks = BTreeMap::new();
        let mut stray = None;
        let found = references(&mut &*text, |chunk| {
            let place = (chunk.pack, chunk.offset);
            match self.hashes.get(&place) {
                Some(hash) => {
                    chunks.insert(place, as_stored(&chunk, *hash));
                }
                None => stray = Some(chunk),
            }
        });
        let json = |reason: String| StoreError::Json { name: name.to_owned(), reason };
        match (found, stray) {
            (Ok(()), None) => {}
            (Ok(()), Some(chunk)) => {
                return Err(json(format!("chunk {:?} is none of this checkpoint", chunk.hash)));
            }
            (Err(Fault::Read(error)), _) => return Err(json(error.to_string())),
            (Err(Fault::Text(reason)), _) => return Err(json(reason)),
        }
        let chunks: Vec<ChunkRef> = chunks.into_values().collect();
        seal_index(&self.key, number, name, text, &chunks)
    }
}

/// An encrypted chunk as whoever has no key sees it: so many bytes of that hash.
fn as_stored(chunk: &ChunkRef, hash: ChunkHash) -> ChunkRef {
    let length = chunk.stored + OVERHEAD as u32;
    ChunkRef { hash, stored: length, length, encoding: Encoding::Plain, ..*chunk }
}

impl IndexWriter {
    /// Stores `value` as the index file `name`, durably.
    ///
    /// # Errors
    /// [`StoreError::IndexName`] if the name is taken or not plain, [`StoreError::IndexSize`]
    /// beyond 512 MiB, and what the kernel refuses.
    pub fn put_json(&mut self, name: &str, value: &impl Serialize) -> Result<(), StoreError> {
        if !is_index_name(name) || self.names.contains(name) {
            return Err(StoreError::IndexName { name: name.to_owned() });
        }
        if self.files.len() >= MAX_FILES {
            return Err(StoreError::IndexCount { name: name.to_owned(), limit: MAX_FILES });
        }
        let mut text = to_json(name, value, MAX_INDEX)?;
        if let Some(sealing) = &self.sealing {
            text = sealing.seal(self.draft.number(), name, &text)?;
            if text.len() > MAX_INDEX {
                return Err(StoreError::IndexSize { name: name.to_owned(), limit: MAX_INDEX });
            }
        }
        self.draft.write_later(name, &text)?;
        let (length, hash) = (text.len() as u64, ChunkHash::of(&text));
        self.totals.index += length;
        self.names.insert(name.to_owned());
        self.files.push(IndexFile { name: name.to_owned(), length, hash });
        Ok(())
    }

    /// Makes all that was written durable, and the folders that name it.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn seal(self) -> Result<SealedCheckpoint, StoreError> {
        let Self { mut draft, mut pack, older: mut packs, totals, files, sealing, .. } = self;
        let sealed = sealing.is_some();
        if pack.refs.is_empty() {
            draft.remove(&pack.path)?;
        } else {
            pack.file.sync().map_err(|error| StoreError::io("write", &pack.path, &error))?;
            packs.push(PackFile { id: pack.id, length: pack.length });
        }
        draft.sync_folders()?;
        Ok(SealedCheckpoint { draft, totals, files, packs, sealed })
    }
}

/// A checkpoint that is durable, and only lacks its commit mark. Dropped, it is removed.
pub struct SealedCheckpoint {
    draft: Draft,
    totals: Totals,
    files: Vec<IndexFile>,
    packs: Vec<PackFile>,
    /// Whether it is encrypted.
    sealed: bool,
}

impl SealedCheckpoint {
    /// How large it is.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Writes the commit mark, which makes this a checkpoint. `meta` is kept in it.
    ///
    /// # Errors
    /// What the kernel refuses; the checkpoint is removed then.
    pub fn commit(self, meta: &impl Serialize) -> Result<CommitMark, StoreError> {
        let Self { mut draft, totals, files, packs, sealed } = self;
        let json = |error: serde_json::Error| StoreError::Json {
            name: MARK.to_owned(),
            reason: error.to_string(),
        };
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mark = CommitMark {
            checkpoint: draft.number(),
            time_ms: since_1970.as_millis() as u64,
            files,
            packs,
            totals,
            sealed,
            meta: protocol::json::to_value(meta).map_err(json)?,
        };
        let text = mark.encode().map_err(json)?;
        draft.write(MARK_DRAFT, &text)?;
        draft.publish()?;
        Ok(mark)
    }
}

/// The bytes that chunks take in packs, each so many more than its reference tells.
fn stored(chunks: &HashMap<ChunkHash, ChunkRef>, more: u64) -> u64 {
    chunks.values().map(|chunk| u64::from(chunk.stored) + more).sum()
}

fn to_json(name: &str, value: &impl Serialize, limit: usize) -> Result<Vec<u8>, StoreError> {
    let mut text = Limited { bytes: Vec::new(), limit, passed: false };
    match protocol::json::write(&mut text, value) {
        Ok(()) => Ok(text.bytes),
        Err(_) if text.passed => Err(StoreError::IndexSize { name: name.to_owned(), limit }),
        Err(error) => Err(StoreError::Json { name: name.to_owned(), reason: error.to_string() }),
    }
}

struct Limited {
    bytes: Vec<u8>,
    limit: usize,
    passed: bool,
}

impl Write for Limited {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + more.len() > self.limit {
            self.passed = true;
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_beyond_the_limit_is_refused_before_it_is_written() {
        assert_eq!(to_json("a.json", &[1, 2], 5).unwrap(), b"[1,2]");
        let error = to_json("a.json", &[1, 2], 4).unwrap_err();
        assert!(matches!(error, StoreError::IndexSize { limit: 4, .. }), "{error}");
    }

    #[test]
    fn what_json_cannot_express_is_an_error() {
        let error = to_json("a.json", &[((1, 2), 3)].into_iter().collect::<Map>(), 100);
        assert!(matches!(error, Err(StoreError::Json { .. })));
    }

    type Map = std::collections::HashMap<(i32, i32), i32>;
}
