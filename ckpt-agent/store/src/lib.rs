//! Keeps checkpoints on the disk. `FORMAT.md` draws the files byte by byte.
//!
//! A checkpoint is written in three steps, each a type: [`CheckpointWriter`] takes chunks,
//! [`IndexWriter`] the index that refers to them, [`SealedCheckpoint`] is durable and waits for
//! its commit. Until then nothing that was committed before is touched, and a crash at any
//! instant leaves only files that the next writer or [`collect`] removes.
//!
//! Where the job's folder has a key ([`keep_key`]), chunks and index files are encrypted with it: copies can be checked and
//! collected without the key, and not read.
//!
//! [`Checkpoint::open`] reads one back; [`ChunkReader`] hands out chunks, each checked by its
//! hash. What is read is believed only as far as it has been checked.

#![forbid(unsafe_code)]

pub mod archive;
mod arriving;
mod blob;
mod budget;
mod checkpoint;
mod chunk;
mod copy;
mod disk;
mod draft;
mod encode;
mod error;
mod hash;
mod key_file;
mod known;
mod layout;
mod mark;
mod pack;
mod pipeline;
mod reader;
mod references;
mod sealed;
mod sealing;
mod sorted;
mod sweep;
mod verify;
mod writer;

pub use arriving::Arriving;
pub use blob::{BLOB_PIECE, Blob, PendingBlob, Piece};
pub use checkpoint::{Checkpoint, CheckpointState, CheckpointSummary, list};
pub use chunk::{ChunkRef, Encoding, MAX_CHUNK, PackId};
pub use copy::{commit_copy, digest, mark, packs, read_index, survey, tell_anew};
pub use disk::{Disk, DiskFile, RealDisk};
pub use error::{Damage, StoreError};
pub use hash::ChunkHash;
pub use key_file::{forget_key, keep_key, key_of};
pub use mark::{CommitMark, FORMAT_VERSION, IndexFile, PackFile, Totals};
pub use pipeline::{ThreadHook, WriterOptions};
pub use reader::ChunkReader;
pub use sealed::{SealedText, Unreadable};
pub use sealing::{Cipher, ImageKey, KeyId};
pub use sweep::{Collected, collect, collect_on};
pub use verify::{Progress, Report, verify, verify_copy, wounded};
pub use writer::{CheckpointWriter, Chunks, IndexWriter, SealedCheckpoint};
