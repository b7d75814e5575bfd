//! A committed checkpoint as one archive, for another machine. `FORMAT.md` draws it.
//!
//! [`Export`] writes it: the chunks that this checkpoint needs, and no others; [`ExportAll`] writes the images
//! of several instances into one archive. [`Import`] reads it, and takes it for hostile: every member has the
//! one name, kind and length that are due where it stands, and every hash is checked before
//! [`Import::unpack`] or [`Import::unpack_all`] returns.

mod all;
mod beside;
mod export;
mod foreign;
mod import;
mod members;
mod room;

pub use all::ExportAll;
pub use beside::Beside;
pub use export::Export;
pub use import::Import;
pub use room::{Free, free};

use std::io;
use std::path::{Path, PathBuf};

use protocol::cluster::image_key::JobKey;
use protocol::log_times::Piece;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::error::{Damage, StoreError};
use super::hash::ChunkHash;

/// Newest version of the archive that this build knows.
pub const ARCHIVE_VERSION: u64 = 2;
/// Version of an archive with one image.
const ONE_IMAGE: u64 = 1;
/// Version of an archive with the images of several instances.
const ALL_IMAGES: u64 = 2;

/// The folder in which all members are.
const FOLDER: &str = "ckptd-checkpoint";
/// The longest description of a job that is read, in bytes.
const MAX_ABOUT: u64 = 16 << 20;
/// The most bytes of all index files together: the chunks of some terabytes of memory.
const MAX_INDEXES: u64 = 4 << 30;
/// The most packs of all images together.
const MAX_PACKS: usize = 100_000;
/// The most index files, packs and files beside images together.
const MAX_MEMBERS: usize = 1_000_000;
/// The most images.
const MAX_IMAGES: usize = 10_000;
/// Bytes handled between two calls for progress.
const STRIDE: usize = 256 << 10;

/// The first member, `about.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Version of the archive, up to [`ARCHIVE_VERSION`].
    pub format: u64,
    /// The checkpoint's number.
    pub checkpoint: u64,
    /// The job's output until the checkpoint; None where it had none.
    pub log: Option<LogPart>,
    /// What the caller tells of the job.
    #[serde(deserialize_with = "protocol::json::modest")]
    pub job: serde_json::Value,
    /// Of a job of one machine whose image is encrypted, its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<JobKey>,
    /// The instances whose images follow, rising; none where it is the one image of a job on one machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<u32>,
}

/// The part of a job's output that an archive holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPart {
    /// Its length in bytes.
    pub length: u64,
    /// Its hash.
    pub hash: ChunkHash,
    /// When it was written, as far as that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<Piece>,
}

/// What is called after each stretch of work, with the bytes that it took. What it returns as an error
/// ends the work.
pub type Watch<'a> = &'a mut dyn FnMut(u64) -> Result<(), Interrupted>;

/// Somebody wants the work to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("it was interrupted")]
pub struct Interrupted;

/// Why an archive could not be written or read; the text fits after "failed to import FILE: ".
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// The checkpoint is damaged, or was removed meanwhile.
    #[error("{0}")]
    Damage(#[from] Damage),
    /// The folder could not be written.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The archive could not be written.
    #[error("write the archive: {0}")]
    Write(io::Error),
    /// The archive could not be read.
    #[error("the archive can't be read: {0}")]
    Read(io::Error),
    /// The archive ends too early.
    #[error("the archive is cut short: have it copied again")]
    Short,
    /// It was encrypted, and is not as it was.
    #[error("it was cut short or changed since it was encrypted: have it copied again")]
    Altered,
    /// It is no archive of ours.
    #[error("it is no archive of 'ckptd export': {0}")]
    Foreign(String),
    /// It was written by a newer ckptd.
    #[error(
        "the archive has format {found}, this ckptd knows up to {ARCHIVE_VERSION}; use a newer ckptd"
    )]
    Newer {
        /// Its format.
        found: u64,
    },
    /// A member is not the one that is due.
    #[error("the archive's member {name:?} {reason}")]
    Member {
        /// Its name, as far as it is shown.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It is larger than what is free.
    #[error("it takes {needed} bytes, and {free} are free in {}; use --dir for another place", folder.display())]
    Room {
        /// The bytes that it takes.
        needed: u64,
        /// The bytes that are free.
        free: u64,
        /// Where.
        folder: PathBuf,
    },
    /// What is free can't be told.
    #[error("the free space can't be told: {0}")]
    Space(io::Error),
    /// It has more files than any job.
    #[error("it announces more than {MAX_MEMBERS} files, which is more than any job has")]
    Members,
    /// The checkpoint's description can't be used.
    #[error("its description is not one: {0}")]
    About(String),
    /// The source changed while it was read.
    #[error("{0} changed while it was read: try again")]
    Changed(String),
    /// It holds another kind of job than is wanted.
    #[error("it holds {0}")]
    Kind(&'static str),
    /// Somebody wanted it to end.
    #[error("{0}")]
    Interrupted(#[from] Interrupted),
}

/// An error of a reader or writer in which one of ours may travel.
fn inner(error: io::Error, other: impl FnOnce(io::Error) -> ArchiveError) -> ArchiveError {
    match error.downcast::<ArchiveError>() {
        Ok(ours) => ours,
        Err(error) => other(error),
    }
}

/// What the kernel refused on the way.
fn refused(action: &'static str, path: &Path) -> impl Fn(io::Error) -> ArchiveError {
    let path = path.to_owned();
    move |error| StoreError::io(action, &path, &error).into()
}
