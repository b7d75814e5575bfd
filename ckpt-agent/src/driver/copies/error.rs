//! What can go wrong with copies of images.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ckpt_store::{Damage, StoreError, Unreadable};
use protocol::agent::CheckpointNumber;
use protocol::cluster::peer::PeerMessage;
use thiserror::Error;
use tokio::task::JoinError;

use crate::driver::grants::GrantError;
use crate::driver::link::DialError;

/// Why an image was not copied, fetched, passed on, taken over, marked or read.
#[derive(Debug, Error)]
pub enum CopyError {
    /// There is no connection to the other node.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The coordinator has not granted it.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// The connection ended.
    #[error("the connection is gone")]
    Gone,
    /// Nothing could be sent for too long.
    #[error("the connection does not move")]
    Stuck,
    /// Nothing came for that long.
    #[error("nothing came for {} s", .0.as_secs())]
    Silent(Duration),
    /// A message has no place here.
    #[error("unexpected message {0}")]
    Unexpected(serde_json::Value),
    /// What the other side says of its own failure.
    #[error("{0}")]
    Told(String),
    /// The command that an image was passed on to is gone.
    #[error("the command has gone")]
    CommandGone,
    /// The image, or what has come of it, is damaged.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// A copy is damaged after all of it has come.
    #[error("the copy is not whole: {0}")]
    NotWhole(#[source] Box<CopyError>),
    /// The store does not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The commit mark was not durable in time.
    #[error("the disk is too slow")]
    SlowDisk,
    /// The kernel refused something about a file.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// What was to be done, as a verb.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The kernel refused something about many files.
    #[error("{action}: {source}")]
    Files {
        /// What was to be done.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// An image has more files than any can have.
    #[error("the image has too many files")]
    TooManyFiles,
    /// A name that no file of an image has, or one that came twice.
    #[error("{0:?} is no file of an image")]
    NotOfImage(String),
    /// A name that this image's list does not have.
    #[error("{0} is no file of the image")]
    NotListed(String),
    /// A file came that was not asked for.
    #[error("{0} was not wanted")]
    Unwanted(String),
    /// A piece of a file that overlaps another, leaves a gap, is empty or too long.
    #[error("a piece of {0} is out of place")]
    OutOfPlace(String),
    /// A file came not at all, or not as a whole.
    #[error("{0} did not come")]
    DidNotCome(String),
    /// A file is not as long as it was said to be.
    #[error("{0} has another length")]
    Length(String),
    /// A file of the job that is not what its name says.
    #[error("{0} has another content")]
    Content(String),
    /// A file that the list of the job's files names is not here.
    #[error("{0} is missing")]
    Missing(String),
    /// The list of the job's files can't be what was written.
    #[error("{} is damaged", .0.display())]
    List(PathBuf),
    /// The list of the job's files can't be decrypted.
    #[error("read {}: {source}", path.display())]
    SealedList {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: Unreadable,
    },
    /// Another node offers to replace a file of a committed checkpoint.
    #[error("{0} differs from what is committed here")]
    Differs(String),
    /// The image is whole, but another one than the coordinator's log names.
    #[error("the image at {0} is not the one that was committed: it was changed")]
    Changed(CheckpointNumber),
    /// The archive's image is another one than the archive names.
    #[error("its image at {0} is not the one that was committed")]
    NotCommitted(CheckpointNumber),
    /// An image has too long an index.
    #[error("its index has {length} bytes, and no more than {most} are taken")]
    LongIndex {
        /// Bytes of its index files.
        length: u64,
        /// How many may be.
        most: u64,
    },
    /// The disk has no room for an image.
    #[error("it takes {needed} bytes, and {room} are free at the agent")]
    NoRoom {
        /// Bytes of its files.
        needed: u64,
        /// Bytes that are free.
        room: u64,
    },
    /// A thread ended early: a defect of ckptd.
    #[error(transparent)]
    Thread(#[from] JoinError),
}

impl CopyError {
    /// Whether this may be of packets that never had their turn: here, or at the other side, which hears nothing for too long and
    /// says so.
    pub(super) fn may_be_starved(&self) -> bool {
        matches!(self, Self::Dial(_) | Self::Gone | Self::Stuck | Self::Silent(_) | Self::Told(_))
    }

    /// For `map_err`: what was to be done with which file.
    pub fn file(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { action, path: path.as_ref().to_owned(), source }
    }

    /// For `map_err`: what was to be done with files.
    pub fn files(action: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Files { action, source }
    }

    /// Says that a message has no place here.
    pub fn unexpected(message: &PeerMessage) -> Self {
        Self::Unexpected(protocol::json::to_value(message).unwrap_or_default()["peer"].take())
    }
}
