//! What agents say to each other. Each message is a frame of a header and a body of raw bytes.

use super::agent::RelaySide;
use super::grant::Grant;
use super::tree::TreeMessage;
use super::{InstanceKey, Versions};
use crate::agent::{CheckpointNumber, CommitRecord, InstanceId};
use serde::{Deserialize, Serialize};

/// A file of an image, by its path below the instance's folder ("checkpoints/3/graph.json",
/// "packs/ID.tar").
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImageFile {
    /// The path: two or three plain names, the first "checkpoints" or "packs".
    pub path: String,
    /// Bytes.
    pub length: u64,
}

/// Between agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerMessage {
    /// The first message of whoever connects.
    Hello {
        /// [`super::VERSIONS`].
        version: Versions,
    },
    /// I am about to send you a copy of an image: which of these files do you lack?
    Offer {
        /// The sender's number for this copy.
        transfer: u64,
        /// The instance as it runs.
        key: InstanceKey,
        /// The checkpoint.
        checkpoint: CheckpointNumber,
        /// All files of it.
        files: Vec<ImageFile>,
        /// The coordinator's leave; without it the answer is no.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<Box<Grant>>,
    },
    /// Send me the image of this instance and checkpoint.
    Fetch {
        /// The asker's number for this copy.
        transfer: u64,
        /// The job.
        job: String,
        /// The instance whose image it is.
        instance: InstanceId,
        /// The checkpoint.
        checkpoint: CheckpointNumber,
        /// The coordinator's leave; without it the answer is no.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<Box<Grant>>,
    },
    /// Answer to a fetch: all files of it; those wanted are named by [`PeerMessage::Want`].
    Listing {
        /// The asker's number.
        transfer: u64,
        /// All files of the image.
        files: Vec<ImageFile>,
    },
    /// Of an offer or a listing, these are lacking.
    Want {
        /// The copy.
        transfer: u64,
        /// Paths.
        paths: Vec<String>,
    },
    /// A piece of a file: the body. In order, without gaps.
    Piece {
        /// The copy.
        transfer: u64,
        /// The file.
        path: String,
        /// Where in it.
        offset: u64,
    },
    /// Everything wanted has been sent.
    Sent {
        /// The copy.
        transfer: u64,
    },
    /// Everything is here, verified and durable.
    Stored {
        /// The copy.
        transfer: u64,
    },
    /// The copy could not be made.
    TransferFailed {
        /// The copy.
        transfer: u64,
        /// One line.
        reason: String,
        /// Whether that is because the copy here is damaged.
        #[serde(default)]
        damaged: bool,
    },
    /// The checkpoint is committed: put the mark beside the copy.
    Commit {
        /// The instance.
        key: InstanceKey,
        /// The record.
        record: CommitRecord,
        /// As of an offer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<Box<Grant>>,
    },
    /// Bytes of a relay: the body.
    Relay {
        /// The receiver's instance.
        to: InstanceKey,
        /// The receiver's side.
        side: RelaySide,
        /// Bytes sent over this relay from this side before these.
        offset: u64,
        /// For datagrams: a message of its own. Streams ignore it.
        datagram: bool,
    },
    /// The receiver has passed on so many bytes: room for more.
    RelayTaken {
        /// The receiver's instance.
        to: InstanceKey,
        /// The receiver's side.
        side: RelaySide,
        /// Bytes taken in all.
        taken: u64,
    },
    /// Nothing more comes from this side.
    RelayEnd {
        /// The receiver's instance.
        to: InstanceKey,
        /// The receiver's side.
        side: RelaySide,
        /// Bytes sent in all.
        offset: u64,
    },
    /// For a checkpoint: this side is paused after so many bytes.
    RelayPaused {
        /// The receiver's instance.
        to: InstanceKey,
        /// The receiver's side.
        side: RelaySide,
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// Bytes sent in all.
        offset: u64,
        /// Whether the end has been sent.
        ended: bool,
    },
    /// This side has just begun, or misses something: send what follows after so many bytes, and the end, the
    /// mark of the checkpoint in flight and what was passed on.
    RelayAsk {
        /// The receiver's instance.
        to: InstanceKey,
        /// The receiver's side.
        side: RelaySide,
        /// Bytes received in all.
        received: u64,
    },
    /// Packets of jobs, one after the other, each as long as its header says: the body. From the first one on the
    /// connection serves nothing else.
    Packets,
    /// Of the command tree: from the first one on the connection serves nothing else.
    Tree(Box<TreeMessage>),
}
