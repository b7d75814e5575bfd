//! Byte strings that travel in the image.

use serde::{Deserialize, Serialize};

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
