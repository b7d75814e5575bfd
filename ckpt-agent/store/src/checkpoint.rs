//! Opening a committed checkpoint, and listing what a job has.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::chunk::ChunkRef;
use super::disk::open_regular;
use super::error::Damage;
use super::hash::ChunkHash;
use super::key_file::key_of;
use super::layout::{Layout, MARK};
use super::mark::{CommitMark, IndexFile, MAX_MARK};
use super::reader::ChunkReader;
use super::references::{Fault, Tally, references};
use super::sealed::{self, Head};
use super::sealing::ImageKey;

/// A committed checkpoint whose index has been checked. Its chunks are checked when they are
/// read.
#[derive(Debug)]
pub struct Checkpoint {
    layout: Layout,
    mark: CommitMark,
    /// Places of its index files in the mark, by their names.
    places: HashMap<String, usize>,
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
        let names = mark.files.iter().enumerate().map(|(place, file)| (file.name.clone(), place));
        let places = names.collect();
        let checkpoint = Self { layout, mark, places };
        for file in &checkpoint.mark.files {
            let read = checkpoint.open_index(file)?;
            checkpoint.compare(file, Tally::of(read).finish())?;
        }
        checkpoint.stored_reader()?;
        Ok(checkpoint)
    }

    /// What was committed.
    pub fn mark(&self) -> &CommitMark {
        &self.mark
    }

    /// Reads an index file. Its hash is checked again: the file may have changed meanwhile.
    ///
    /// # Errors
    /// [`Damage::IndexMissing`], [`Damage::Index`], [`Damage::NoKey`], [`Damage::WrongKey`].
    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<T, Damage> {
        let number = self.mark.checkpoint;
        let file = self.places.get(name).and_then(|place| self.mark.files.get(*place));
        let file = file.ok_or_else(|| Damage::IndexMissing { number, name: name.to_owned() })?;
        protocol::json::read(&self.read_text(file)?)
            .map_err(|error| self.index_damage(file, &error.to_string()))
    }

    /// What reads the chunks of this checkpoint, by the references in its index.
    ///
    /// # Errors
    /// [`Damage::PackMissing`], [`Damage::Pack`]; of one that is encrypted also [`Damage::NoKey`], [`Damage::WrongKey`].
    pub fn reader(&self) -> Result<ChunkReader, Damage> {
        let key = match (self.mark.files.first(), self.head()?) {
            (Some(file), Some(head)) => {
                let own = key_of(self.layout.job())?;
                Some(sealed::key_for(&head, own.as_ref(), self.mark.checkpoint, &file.name)?)
            }
            _ => None,
        };
        Ok(self.stored_reader()?.decrypting(key))
    }

    /// What reads its chunks as they are stored, by the references that [`references`](Self::references) finds.
    pub(super) fn stored_reader(&self) -> Result<ChunkReader, Damage> {
        ChunkReader::open(&self.layout, &self.mark)
    }

    /// How it is encrypted; none: it is not. All its files are as the first.
    pub(super) fn head(&self) -> Result<Option<Head>, Damage> {
        let Some(file) = self.mark.files.first() else { return Ok(None) };
        let path = self.index_path(file);
        let head = open_regular(&path).and_then(sealed::head_of);
        head.map_err(|error| match error.raw_os_error() {
            Some(_) => Damage::io(&path, &error),
            None => self.index_damage(file, "it does not tell how it is encrypted"),
        })
    }

    /// The text of an index file, decrypted where it is encrypted.
    fn read_text(&self, file: &IndexFile) -> Result<Vec<u8>, Damage> {
        let stored = self.read_index(file)?;
        sealed::open_index(|| key_of(self.layout.job()), self.mark.checkpoint, file, stored)
    }

    /// Calls `found` for every chunk to which the text of an index file refers. Of one that is encrypted these are other
    /// references than [`references`](Self::references) finds: by contents, not by what is stored.
    pub(super) fn references_in_text(
        &self,
        file: &IndexFile,
        key: &ImageKey,
        found: impl FnMut(ChunkRef),
    ) -> Result<(), Damage> {
        let (number, key) = (self.mark.checkpoint, key.clone());
        let text = sealed::open_index(|| Ok(Some(key)), number, file, self.read_index(file)?)?;
        references(&mut text.as_slice(), found).map_err(|fault| match fault {
            Fault::Read(error) => self.index_damage(file, &error.to_string()),
            Fault::Text(reason) => self.index_damage(file, &reason),
        })
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn read_index(&self, file: &IndexFile) -> Result<Vec<u8>, Damage> {
        let mut bytes = Vec::new();
        let mut read = Tally::of(self.open_index(file)?);
        let all = read.read_to_end(&mut bytes).map(|_| read.so_far());
        self.compare(file, all).map(|()| bytes)
    }

    /// The bytes of an index file, and one more than it should have if there are more.
    fn open_index(&self, file: &IndexFile) -> Result<impl Read + use<>, Damage> {
        let path = self.index_path(file);
        match open_regular(&path) {
            Ok(opened) => Ok(opened.take(file.length.saturating_add(1))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (number, name) = (self.mark.checkpoint, file.name.clone());
                Err(Damage::IndexMissing { number, name })
            }
            Err(error) => Err(Damage::io(&path, &error)),
        }
    }

    fn index_path(&self, file: &IndexFile) -> PathBuf {
        self.layout.checkpoint(self.mark.checkpoint).join(&file.name)
    }

    /// Whether an index file has the length and hash that were committed.
    fn compare(&self, file: &IndexFile, found: io::Result<(u64, ChunkHash)>) -> Result<(), Damage> {
        let (length, hash) = found.map_err(|error| Damage::io(&self.index_path(file), &error))?;
        if length != file.length {
            return Err(self.index_damage(file, "it is shorter or longer than it was"));
        }
        if hash != file.hash {
            return Err(self.index_damage(file, "its hash does not match"));
        }
        Ok(())
    }

    /// Calls `found` for every chunk that an index file refers to.
    pub(super) fn references(
        &self,
        file: &IndexFile,
        found: impl FnMut(ChunkRef),
    ) -> Result<(), Damage> {
        let mut read = Tally::of(self.open_index(file)?);
        let fault = match references(&mut read, found) {
            Err(Fault::Read(error)) => return Err(Damage::io(&self.index_path(file), &error)),
            Err(Fault::Text(reason)) => Some(reason),
            Ok(()) => None,
        };
        // What it says is worth nothing if it is not what was committed.
        self.compare(file, read.finish())?;
        fault.map_or(Ok(()), |reason| Err(self.index_damage(file, &reason)))
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
