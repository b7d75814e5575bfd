//! What can go wrong: at writing ([`StoreError`]), and with what was written ([`Damage`]).

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use thiserror::Error;

use super::chunk::PackId;
use super::hash::ChunkHash;

/// Why a checkpoint could not be written or removed. Whatever it is, the checkpoints committed
/// before are untouched.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// ENOSPC.
    #[error("write {path}: no space is left on the device; free some, or choose another --dir")]
    NoSpace {
        /// The file or folder that was to be written.
        path: PathBuf,
    },
    /// EDQUOT.
    #[error("write {path}: the disk quota is used up; free some space, or choose another --dir")]
    Quota {
        /// The file or folder that was to be written.
        path: PathBuf,
    },
    /// EFBIG: the limit of the process (`RLIMIT_FSIZE`) or of the file system.
    #[error("write {path}: it would pass the limit on a file's size; see ulimit -f")]
    FileSize {
        /// The file that was to be written.
        path: PathBuf,
    },
    /// EIO: written bytes may be lost, so nothing of this checkpoint can be trusted.
    #[error("write {path}: input/output error; the disk may be failing")]
    Device {
        /// The file or folder that was to be written.
        path: PathBuf,
    },
    /// Any other refusal of the kernel.
    #[error("{action} {path}: {}", errno.desc())]
    Kernel {
        /// What was to be done, as a verb.
        action: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// What the kernel answered.
        errno: Errno,
    },
    /// Another process writes or collects in this job's folder.
    #[error("lock {path}: another ckptd writes there; wait for its checkpoint to end")]
    Busy {
        /// The folder that both want.
        path: PathBuf,
    },
    /// Packs and checkpoints never change once they are committed.
    #[error("write checkpoint {number}: it is committed already; choose a newer number")]
    Committed {
        /// The checkpoint.
        number: u64,
    },
    /// A chunk is empty or longer than the limit.
    #[error("store a chunk of {length} bytes: 1 byte to 4 MiB are allowed")]
    ChunkLength {
        /// Its length in bytes.
        length: usize,
    },
    /// An index file needs a plain name, once.
    #[error("store {name:?}: not a free name for an index file, such as graph.json")]
    IndexName {
        /// The name asked for.
        name: String,
    },
    /// An index file is too large to be read back.
    #[error("store {name}: more than {limit} bytes of index; use fewer or longer chunks")]
    IndexSize {
        /// The index file.
        name: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// A checkpoint has more index files than can be read back.
    #[error("store {name}: a checkpoint has at most {limit} index files")]
    IndexCount {
        /// The index file.
        name: String,
        /// The limit.
        limit: usize,
    },
    /// The value can't be expressed in JSON.
    #[error("store {name}: not expressible in JSON: {reason}")]
    Json {
        /// The index file.
        name: String,
        /// Why.
        reason: String,
    },
    /// A blob's source could not be read.
    #[error("read the bytes to be stored: {}", errno.desc())]
    Source {
        /// What the kernel answered.
        errno: Errno,
    },
    /// A thread could not be started.
    #[error("start a thread of the image store: {}", errno.desc())]
    Thread {
        /// What the kernel answered.
        errno: Errno,
    },
    /// The cipher does not take it.
    #[error("encrypt a chunk: the cipher does not take it (a defect of ckptd)")]
    Cipher,
    /// The system gives no random numbers.
    #[error("draw a random number: the system has none")]
    NoRandomness,
    /// The key of the job can't be read.
    #[error("encrypt the checkpoint: {0}")]
    Key(Damage),
    /// A thread of the store ended early: a defect of ckptd.
    #[error("store a chunk: a thread of the image store ended early (a defect of ckptd)")]
    ThreadLost,
}

impl StoreError {
    /// Sorts what the kernel said about `path` when `action` was tried.
    pub(super) fn io(action: &'static str, path: &Path, error: &io::Error) -> Self {
        let path = path.to_path_buf();
        match errno_of(error) {
            Errno::ENOSPC => Self::NoSpace { path },
            Errno::EDQUOT => Self::Quota { path },
            Errno::EFBIG => Self::FileSize { path },
            Errno::EIO => Self::Device { path },
            errno => Self::Kernel { action, path, errno },
        }
    }
}

/// The kernel's number for `error`; EIO for errors that are not the kernel's (a short write).
pub(super) fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Why a checkpoint can't be restarted from. The way out is always the same: an older one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Damage {
    /// There is no such checkpoint.
    #[error("open checkpoint {number}: there is none of that number")]
    NoCheckpoint {
        /// Its number.
        number: u64,
    },
    /// It has no commit mark: its writing was interrupted.
    #[error("open checkpoint {number}: it was never committed")]
    Incomplete {
        /// Its number.
        number: u64,
    },
    /// The commit mark is cut, or was changed.
    #[error("open checkpoint {number}: its commit mark is damaged: {reason}")]
    Mark {
        /// The checkpoint.
        number: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// It was written by a newer ckptd.
    #[error(
        "open checkpoint {number}: it has format {found}, this ckptd knows up to {known}; use a newer ckptd"
    )]
    NewerFormat {
        /// The checkpoint.
        number: u64,
        /// Its format version.
        found: u64,
        /// The newest format version that this ckptd reads.
        known: u64,
    },
    /// It is encrypted.
    #[error(
        "open checkpoint {number}: it is encrypted, and this machine has not got its job's key"
    )]
    NoKey {
        /// The checkpoint.
        number: u64,
    },
    /// It was encrypted with another key.
    #[error(
        "open checkpoint {number}: it is encrypted with another key than this machine has got for its job"
    )]
    WrongKey {
        /// The checkpoint.
        number: u64,
    },
    /// The file with the job's key is damaged, or was written by a newer ckptd.
    #[error("read the job's key in {path}: {reason}")]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An index file that the commit mark names is missing.
    #[error("open checkpoint {number}: its index {name} is missing")]
    IndexMissing {
        /// The checkpoint.
        number: u64,
        /// The index file.
        name: String,
    },
    /// An index file does not have the length or the hash that the commit mark tells.
    #[error("open checkpoint {number}: its index {name} is damaged: {reason}")]
    Index {
        /// The checkpoint.
        number: u64,
        /// The index file.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A pack that the commit mark names is missing.
    #[error("open pack {pack}: it is missing")]
    PackMissing {
        /// The pack.
        pack: PackId,
    },
    /// A pack does not have the length that the commit mark tells, or is no tar archive.
    #[error("open pack {pack}: it is damaged: {reason}")]
    Pack {
        /// The pack.
        pack: PackId,
        /// What is wrong with it.
        reason: String,
    },
    /// A chunk's reference names a place where no chunk can be.
    #[error("read chunk {} of pack {pack}: its reference is wrong: {reason}", hash.short())]
    Reference {
        /// The pack.
        pack: PackId,
        /// The chunk.
        hash: ChunkHash,
        /// What is wrong with it.
        reason: String,
    },
    /// A chunk's bytes are not those that its name tells.
    #[error("read chunk {} of pack {pack} at byte {offset}: {reason}", hash.short())]
    Chunk {
        /// The pack.
        pack: PackId,
        /// The chunk.
        hash: ChunkHash,
        /// Where it begins in the pack.
        offset: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The kernel refused to read.
    #[error("read {path}: {}", errno.desc())]
    Kernel {
        /// The file or folder.
        path: PathBuf,
        /// What the kernel answered.
        errno: Errno,
    },
    /// Where the bytes of a blob were to go refused them.
    #[error("write the bytes of a chunk: {}", errno.desc())]
    Sink {
        /// What the kernel answered.
        errno: Errno,
    },
}

impl Damage {
    pub(super) fn io(path: &Path, error: &io::Error) -> Self {
        Self::Kernel { path: path.to_path_buf(), errno: errno_of(error) }
    }
}
