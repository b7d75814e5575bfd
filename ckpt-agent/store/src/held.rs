//! The index of a checkpoint that is written elsewhere, held in memory: what is to be known of it is read here.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::copy::{decode_index, digest_of};
use super::error::Damage;
use super::hash::ChunkHash;
use super::mark::IndexFile;

/// The index files of one checkpoint, as they were written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldIndex {
    files: BTreeMap<String, Vec<u8>>,
    bytes: usize,
}

impl HeldIndex {
    /// Appends to the file of that name, as long as no more than `most` bytes are held in all. Whether it did.
    #[must_use]
    pub fn append(&mut self, name: &str, parts: &[&[u8]], most: usize) -> bool {
        let more: usize = parts.iter().map(|part| part.len()).sum();
        let Some(bytes) = self.bytes.checked_add(more).filter(|bytes| *bytes <= most) else {
            return false;
        };
        self.bytes = bytes;
        let file = self.files.entry(name.to_owned()).or_default();
        parts.iter().for_each(|part| file.extend_from_slice(part));
        true
    }

    /// What an index file says; the job's folder has its key, where it is encrypted.
    ///
    /// # Errors
    /// What is wrong with it; [`Damage::NoKey`], [`Damage::WrongKey`].
    pub fn read<T: DeserializeOwned>(
        &self,
        job_dir: &Path,
        number: u64,
        name: &str,
    ) -> Result<T, Damage> {
        let missing = || Damage::IndexMissing { number, name: name.to_owned() };
        let bytes = self.files.get(name).ok_or_else(missing)?;
        decode_index(job_dir, number, name, bytes.clone())
    }

    /// As [`super::digest`] of the checkpoint, where it lies.
    #[must_use]
    pub fn digest(&self) -> ChunkHash {
        let file = |(name, bytes): (&String, &Vec<u8>)| IndexFile {
            name: name.clone(),
            length: bytes.len() as u64,
            hash: ChunkHash::of(bytes),
        };
        digest_of(self.files.iter().map(file).collect())
    }
}
