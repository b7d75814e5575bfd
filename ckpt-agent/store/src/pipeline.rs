//! From submitted bytes to a pack: several threads hash and compress, one writes.
//!
//! The channels have no limit of their own: the budget bounds the bytes that are inside. At most
//! two groups of a pack wait for more chunks, so a budget of at least two groups and a few chunks
//! never comes to a standstill.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::budget::{Budget, EndsEarly};
use super::checkpoint::Checkpoint;
use super::chunk::{ChunkRef, Encoding, MAX_CHUNK, PackId};
use super::disk::{Disk, RealDisk};
use super::encode::Encoder;
use super::error::{StoreError, errno_of};
use super::hash::ChunkHash;
use super::known::{Known, StoredHashes};
use super::mark::PackFile;
use super::pack::{FinishedPack, MAX_GROUP, PackWriter, Packed};
use super::sealing::{Cipher, ImageKey};

/// The least budget that cannot come to a standstill.
const MIN_BUDGET: usize = 3 * MAX_GROUP + 4 * MAX_CHUNK;
/// Buffers kept for the caller.
const MAX_SPARE: usize = 256;

/// Called at the start of every thread of the store, for example to lower its priority.
pub type ThreadHook = Arc<dyn Fn() + Send + Sync>;

/// How a checkpoint is written.
#[derive(Clone)]
pub struct WriterOptions {
    /// Threads that hash and compress.
    pub threads: usize,
    /// Bytes that may be between submission and disk; at least 32 MiB are taken.
    pub budget: usize,
    /// Called at the start of each thread.
    pub on_thread_start: Option<ThreadHook>,
    /// Where to write.
    pub disk: Arc<dyn Disk>,
    /// Chunks of committed checkpoints from this number on are referred to where they lie, and not stored again.
    /// `None`: everything is stored.
    pub reuse_from: Option<u64>,
    /// What an image is encrypted with whose job has a key; `None`: what this processor is fast in.
    pub cipher: Option<Cipher>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            budget: 64 << 20,
            on_thread_start: None,
            disk: Arc::new(RealDisk),
            reuse_from: None,
            cipher: None,
        }
    }
}

pub(super) struct Pipeline {
    shared: Arc<Shared>,
    submissions: Option<Sender<Submission>>,
    next_sequence: AtomicU64,
    workers: Vec<JoinHandle<()>>,
    packer: Option<JoinHandle<Option<FinishedPack>>>,
}

struct Shared {
    budget: Budget,
    spare: Mutex<Vec<Vec<u8>>>,
    /// Chunks that some worker has taken on: an equal one is not stored again.
    seen: Mutex<HashSet<ChunkHash>>,
    hashes: Mutex<HashMap<u64, ChunkHash>>,
    /// Chunks of an older checkpoint.
    known: Known,
    /// What encrypts chunks.
    key: Option<ImageKey>,
    /// Those of them that were submitted.
    reused: Mutex<HashMap<ChunkHash, ChunkRef>>,
}

struct Submission {
    sequence: u64,
    bytes: Vec<u8>,
}

/// What has become of everything submitted.
pub(super) struct Drained {
    pub(super) pack: FinishedPack,
    /// Chunks that older packs hold.
    pub(super) reused: HashMap<ChunkHash, ChunkRef>,
    /// Those packs.
    pub(super) older: Vec<PackFile>,
    /// Where the bytes of each submission are, by its sequence number.
    pub(super) places: Vec<ChunkRef>,
    /// Of encrypted chunks, the hash of what is stored.
    pub(super) stored: StoredHashes,
}

impl Pipeline {
    pub(super) fn start(
        options: &WriterOptions,
        pack: PackWriter,
        known: Known,
        key: Option<ImageKey>,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared {
            budget: Budget::new(options.budget.max(MIN_BUDGET)),
            spare: Mutex::default(),
            seen: Mutex::default(),
            hashes: Mutex::default(),
            known,
            key,
            reused: Mutex::default(),
        });
        let (submissions, inbox) = channel();
        let (encoded, to_pack) = channel();
        let mut pipeline = Self {
            shared: shared.clone(),
            submissions: Some(submissions),
            next_sequence: AtomicU64::new(0),
            workers: Vec::new(),
            packer: None,
        };
        let hook = options.on_thread_start.clone();
        let packer = spawn("store-pack", hook.clone(), {
            let shared = shared.clone();
            move || shared.write_pack(pack, to_pack)
        })?;
        pipeline.packer = Some(packer);
        let inbox = Arc::new(Mutex::new(inbox));
        for _ in 0..options.threads.clamp(1, 256) {
            let (shared, inbox, encoded) = (shared.clone(), inbox.clone(), encoded.clone());
            let work = move || shared.encode_all(&inbox, &encoded);
            pipeline.workers.push(spawn("store-encode", hook.clone(), work)?);
        }
        Ok(pipeline)
    }

    /// Hands `bytes` over and returns their sequence number; waits while the pipeline is full.
    pub(super) fn submit(&self, bytes: Vec<u8>) -> Result<u64, StoreError> {
        if bytes.is_empty() || bytes.len() > MAX_CHUNK {
            return Err(StoreError::ChunkLength { length: bytes.len() });
        }
        self.shared.budget.take(bytes.len())?;
        let sequence = self.next_sequence.fetch_add(1, Ordering::Relaxed);
        let submissions = self.submissions.as_ref().ok_or(StoreError::ThreadLost)?;
        submissions
            .send(Submission { sequence, bytes })
            .map_err(|_| self.shared.budget.failure().unwrap_or(StoreError::ThreadLost))?;
        Ok(sequence)
    }

    /// The checkpoint whose chunks are referred to.
    pub(super) fn base(&self) -> Option<&Checkpoint> {
        self.shared.known.base()
    }

    /// As if the bytes of a known chunk had been handed over. `None`: it is not known, or is not referred to any more.
    pub(super) fn refer(&self, chunk: &ChunkRef) -> Option<u64> {
        let known = self.shared.known.place(&chunk.hash, chunk.length as usize)?;
        if known != *chunk {
            return None;
        }
        let sequence = self.next_sequence.fetch_add(1, Ordering::Relaxed);
        lock(&self.shared.hashes).insert(sequence, chunk.hash);
        lock(&self.shared.reused).insert(chunk.hash, known);
        Some(sequence)
    }

    /// An empty buffer of at least `capacity` bytes, a used one where there is one: its pages
    /// are in memory already.
    pub(super) fn take_buffer(&self, capacity: usize) -> Vec<u8> {
        let mut buffer = lock(&self.shared.spare).pop().unwrap_or_default();
        buffer.clear();
        buffer.reserve(capacity);
        buffer
    }

    /// Waits for everything submitted, and closes the pack.
    pub(super) fn drain(mut self) -> Result<Drained, StoreError> {
        self.submissions = None;
        for worker in self.workers.drain(..) {
            worker.join().map_err(|_| StoreError::ThreadLost)?;
        }
        let packer = self.packer.take().ok_or(StoreError::ThreadLost)?;
        let pack = packer.join().map_err(|_| StoreError::ThreadLost)?;
        if let Some(failure) = self.shared.budget.failure() {
            return Err(failure);
        }
        let mut pack = pack.ok_or(StoreError::ThreadLost)?;
        let hashes = lock(&self.shared.hashes);
        let reused = std::mem::take(&mut *lock(&self.shared.reused));
        let find = |hash| reused.get(hash).or_else(|| pack.refs.get(hash));
        let place = |sequence| hashes.get(&sequence).and_then(find).copied();
        let count = self.next_sequence.load(Ordering::Relaxed);
        let places: Option<Vec<ChunkRef>> = (0..count).map(place).collect();
        let places = places.ok_or(StoreError::ThreadLost)?;
        drop(hashes);
        let used: BTreeSet<PackId> = reused.values().map(|chunk| chunk.pack).collect();
        let older = used.into_iter().map(|id| self.shared.known.pack(id)).collect::<Option<_>>();
        let older = older.ok_or(StoreError::ThreadLost)?;
        let mut stored = std::mem::take(&mut pack.stored);
        for chunk in reused.values() {
            let hash = self.shared.known.stored(chunk);
            stored.extend(hash.map(|hash| ((chunk.pack, chunk.offset), hash)));
        }
        Ok(Drained { pack, reused, older, places, stored })
    }
}

impl Drop for Pipeline {
    /// Ends the threads, so that none writes to a file that is about to be removed.
    fn drop(&mut self) {
        self.submissions = None;
        self.shared.budget.fail(StoreError::ThreadLost);
        for worker in self.workers.drain(..) {
            drop(worker.join());
        }
        if let Some(packer) = self.packer.take() {
            drop(packer.join());
        }
    }
}

impl Shared {
    fn encode_all(&self, inbox: &Mutex<Receiver<Submission>>, encoded: &Sender<Packed>) {
        let watch = EndsEarly::watch(&self.budget);
        let mut encoder = Encoder::new();
        loop {
            let received = lock(inbox).recv();
            let Ok(Submission { sequence, bytes }) = received else { break };
            if self.budget.failure().is_some() {
                continue;
            }
            let hash = self.name(&bytes);
            lock(&self.hashes).insert(sequence, hash);
            let known = self.known.place(&hash, bytes.len());
            if let Some(place) = known {
                lock(&self.reused).insert(hash, place);
            }
            if known.is_some() || !lock(&self.seen).insert(hash) {
                let length = bytes.len();
                self.recycle(bytes);
                self.budget.give_back(length);
                continue;
            }
            let chunk = match self.sealed(self.encode(&mut encoder, hash, bytes)) {
                Ok(chunk) => chunk,
                Err(failure) => {
                    self.budget.fail(failure);
                    break;
                }
            };
            if encoded.send(chunk).is_err() {
                // The packer is gone, and has said why.
                break;
            }
        }
        watch.done();
    }

    /// By which a chunk is referred to.
    fn name(&self, bytes: &[u8]) -> ChunkHash {
        self.key.as_ref().map_or_else(|| ChunkHash::of(bytes), |key| key.name(bytes))
    }

    fn encode(&self, encoder: &mut Encoder, hash: ChunkHash, bytes: Vec<u8>) -> Packed {
        let (length, sealed) = (bytes.len() as u32, None);
        let Some(frame) = encoder.encode(&bytes).map(<[u8]>::to_vec) else {
            return Packed { hash, sealed, encoding: Encoding::Plain, bytes, length };
        };
        // From now on only the frame counts.
        self.budget.give_back(bytes.len() - frame.len());
        self.recycle(bytes);
        Packed { hash, sealed, encoding: Encoding::Zstd, bytes: frame, length }
    }

    /// Encrypts a chunk, where there is a key.
    fn sealed(&self, mut chunk: Packed) -> Result<Packed, StoreError> {
        let Some(key) = &self.key else { return Ok(chunk) };
        let trailer = key.seal_chunk(&chunk.hash, chunk.encoding, &mut chunk.bytes)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&chunk.bytes).update(&trailer);
        chunk.sealed = Some((trailer, hasher.finalize().into()));
        Ok(chunk)
    }

    /// `None` after a failure, which the budget tells.
    fn write_pack(&self, mut pack: PackWriter, to_pack: Receiver<Packed>) -> Option<FinishedPack> {
        let watch = EndsEarly::watch(&self.budget);
        let mut finished = None;
        let result: Result<(), StoreError> = (|| {
            for chunk in to_pack {
                if let Some(failure) = self.budget.failure() {
                    return Err(failure);
                }
                for written in pack.add(chunk)? {
                    self.budget.give_back(written.bytes.len());
                    if written.encoding == Encoding::Plain {
                        self.recycle(written.bytes);
                    }
                }
            }
            if let Some(failure) = self.budget.failure() {
                return Err(failure);
            }
            finished = Some(pack.finish()?);
            Ok(())
        })();
        if let Err(failure) = result {
            self.budget.fail(failure);
        }
        watch.done();
        finished
    }

    fn recycle(&self, buffer: Vec<u8>) {
        let mut spare = lock(&self.spare);
        if spare.len() < MAX_SPARE {
            spare.push(buffer);
        }
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    hook: Option<ThreadHook>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StoreError> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            if let Some(hook) = hook {
                hook();
            }
            work()
        })
        .map_err(|error| StoreError::Thread { errno: errno_of(&error) })
}

/// A thread that panicked leaves its map as it was between two insertions.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
