//! Opening a committed checkpoint, and listing what a job has.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::de::DeserializeOwned;

use super::chunk::ChunkRef;
use super::disk::open_regular;
use super::error::Damage;
use super::hash::ChunkHash;
use super::layout::{Layout, MARK};
use super::mark::{CommitMark, IndexFile, MAX_MARK};
use super::reader::ChunkReader;
use super::references::references;

/// A committed checkpoint whose index has been checked. Its chunks are checked when they are
/// read.
#[derive(Debug)]
pub struct Checkpoint {
    layout: Layout,
    mark: CommitMark,
}

impl Checkpoint {
    /// Opens checkpoint `number` of the job kept in `job_dir`: commit mark and every index file
    /// are read and their hashes checked; packs must be there in their right length.
    ///
    /// # Errors
    /// What is wrong with it, naming the file.
    pub fn open(job_dir: &Path, number: u64) -> Result<Self, Damage> {
        Self::open_in(Layout::new(job_dir), number)
    }

    pub(super) fn open_in(layout: Layout, number: u64) -> Result<Self, Damage> {
        let mark = read_mark(&layout, number)?;
        let checkpoint = Self { layout, mark };
        for file in &checkpoint.mark.files {
            checkpoint.read_index(file)?;
        }
        checkpoint.reader()?;
        Ok(checkpoint)
    }

    /// What was committed.
    pub fn mark(&self) -> &CommitMark {
        &self.mark
    }

    /// Reads an index file. Its hash is checked again: the file may have changed meanwhile.
    ///
    /// # Errors
    /// [`Damage::IndexMissing`], [`Damage::Index`].
    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<T, Damage> {
        let number = self.mark.checkpoint;
        let file = self.mark.files.iter().find(|file| file.name == name);
        let file = file.ok_or_else(|| Damage::IndexMissing { number, name: name.to_owned() })?;
        protocol::json::read(&self.read_index(file)?)
            .map_err(|error| self.index_damage(file, &error.to_string()))
    }

    /// What reads the chunks of this checkpoint.
    ///
    /// # Errors
    /// [`Damage::PackMissing`], [`Damage::Pack`].
    pub fn reader(&self) -> Result<ChunkReader, Damage> {
        ChunkReader::open(&self.layout, &self.mark)
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn read_index(&self, file: &IndexFile) -> Result<Vec<u8>, Damage> {
        let number = self.mark.checkpoint;
        let path = self.layout.checkpoint(number).join(&file.name);
        let bytes = match open_regular(&path).and_then(|opened| read_up_to(opened, file.length)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Damage::IndexMissing { number, name: file.name.clone() });
            }
            Err(error) => return Err(Damage::io(&path, &error)),
        };
        if bytes.len() as u64 != file.length {
            return Err(self.index_damage(file, "it is shorter or longer than it was"));
        }
        if ChunkHash::of(&bytes) != file.hash {
            return Err(self.index_damage(file, "its hash does not match"));
        }
        Ok(bytes)
    }

    /// Calls `found` for every chunk that an index file refers to.
    pub(super) fn references(
        &self,
        file: &IndexFile,
        found: impl FnMut(ChunkRef),
    ) -> Result<(), Damage> {
        references(&self.read_index(file)?, found)
            .map_err(|error| self.index_damage(file, &error.to_string()))
    }

    pub(super) fn index_damage(&self, file: &IndexFile, reason: &str) -> Damage {
        Damage::Index {
            number: self.mark.checkpoint,
            name: file.name.clone(),
            reason: reason.to_owned(),
        }
    }
}

/// A checkpoint in a listing.
#[derive(Debug)]
pub struct CheckpointSummary {
    /// Its number.
    pub number: u64,
    /// Whether it can be restarted from.
    pub state: CheckpointState,
}

/// Whether a checkpoint can be restarted from.
#[derive(Debug)]
pub enum CheckpointState {
    /// Yes, as far as can be told without reading every chunk.
    Committed(Box<CommitMark>),
    /// No: it was committed, and damaged since.
    Damaged(Damage),
    /// No: it is being written, or its writing was interrupted.
    Incomplete,
}

/// All checkpoints of the job kept in `job_dir`, oldest first, with their index files checked.
///
/// # Errors
/// [`Damage::Kernel`] if the folder can't be read.
pub fn list(job_dir: &Path) -> Result<Vec<CheckpointSummary>, Damage> {
    let layout = Layout::new(job_dir);
    let numbers = layout.numbers().map_err(|error| Damage::io(&layout.checkpoints(), &error))?;
    let summary = |number| {
        let state = match Checkpoint::open(job_dir, number) {
            Ok(checkpoint) => CheckpointState::Committed(Box::new(checkpoint.mark)),
            Err(Damage::Incomplete { .. }) => CheckpointState::Incomplete,
            Err(damage) => CheckpointState::Damaged(damage),
        };
        CheckpointSummary { number, state }
    };
    Ok(numbers.into_iter().map(summary).collect())
}

pub(super) fn read_mark(layout: &Layout, number: u64) -> Result<CommitMark, Damage> {
    let folder = layout.checkpoint(number);
    let path = folder.join(MARK);
    let bytes = match open_regular(&path).and_then(|file| read_up_to(file, MAX_MARK as u64)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(match folder.is_dir() {
                true => Damage::Incomplete { number },
                false => Damage::NoCheckpoint { number },
            });
        }
        Err(error) => return Err(Damage::io(&path, &error)),
    };
    CommitMark::decode(number, &bytes)
}

/// Reads at most one byte more than `limit`: enough to see that a file is too long.
fn read_up_to(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}
