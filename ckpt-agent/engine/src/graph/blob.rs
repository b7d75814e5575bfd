//! Byte strings that travel in the image.

use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Result};
use super::Graph;

/// Index of a [`Blob`] in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BlobId(pub u32);

/// In-flight bytes or the content of a file. What no span covers reads as zeros.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Blob {
    /// Bytes in all.
    pub length: u64,
    /// Parts that have content, ascending.
    pub spans: Vec<Span>,
}

/// A part of a blob: one chunk of the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Span {
    /// Offset of the chunk's first byte in the blob.
    pub offset: u64,
    /// Where the chunk is, as the store names it.
    pub chunk: ckpt_store::ChunkRef,
}

impl Graph {
    /// The blob of an index that another part of the image names.
    ///
    /// # Errors
    /// [`EngineError::Damaged`]: there is none.
    pub fn blob(&self, id: BlobId) -> Result<&Blob> {
        let missing = || EngineError::Damaged(format!("blob {} does not exist", id.0));
        self.blobs.get(id.0 as usize).ok_or_else(missing)
    }
}
