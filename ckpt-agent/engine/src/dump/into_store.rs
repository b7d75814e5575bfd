//! The way of chunks into the store.

use std::sync::atomic::{AtomicU64, Ordering};

use ckpt_store::{CheckpointWriter, ChunkRef};

use super::super::error::Result;

/// Name of a process's file in a checkpoint.
pub fn process_file(pid: i32) -> String {
    format!("process-{pid}.json")
}

/// A chunk's tag while it is on its way to the store.
pub(super) type Tag = u64;

/// The way into the store.
pub(super) struct Writer<'a> {
    pub(super) store: CheckpointWriter,
    pub(super) next: Tag,
    pub(super) progress: &'a AtomicU64,
}

impl Writer<'_> {
    /// Hands over a chunk.
    ///
    /// # Errors
    /// Full disks.
    pub(super) fn submit(&mut self, bytes: Vec<u8>) -> Result<Tag> {
        let tag = self.next;
        self.next += 1;
        self.progress.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.store.submit(tag, bytes)?;
        Ok(tag)
    }

    /// As if a chunk of the base had been submitted, of which so many bytes are taken; `None`: it must be.
    pub(super) fn refer(&mut self, chunk: &ChunkRef, bytes: u64) -> Option<Tag> {
        let tag = self.next;
        if !self.store.refer(tag, chunk) {
            return None;
        }
        self.next += 1;
        self.progress.fetch_add(bytes, Ordering::Relaxed);
        Some(tag)
    }
}
