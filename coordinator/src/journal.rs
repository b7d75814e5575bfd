//! A log on disk, whatever its entries are.
//!
//! A text file of JSON lines, each with a checksum of its entry's bytes:
//!
//! ```text
//! {"check":"0123456789abcdef","log":{"entry":"begun","checkpoint":3}}
//! ```
//!
//! `check` is the first 8 bytes of the entry's BLAKE3 hash in hexadecimal. A last line that is cut
//! off or fails its checksum was being written when the machine stopped: it never counted, and is
//! removed before the next entry is appended. Damage anywhere else is an error, and so is a whole
//! line that says what this version does not know: whoever wrote that counted on it.

use protocol::durable::sync_folder;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Why a log could not be read or written.
#[derive(Debug, Error)]
pub enum LogError {
    /// The system refused.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A line that is not the last one is damaged.
    #[error("line {line} of the coordinator's log is damaged")]
    Damaged {
        /// The line, from 1.
        line: usize,
    },
    /// A line is whole, and its entry is none that is known here: a newer version has written it.
    #[error(
        "line {line} of the coordinator's log was written by another version of ckptd: use that"
    )]
    Unknown {
        /// The line, from 1.
        line: usize,
    },
    /// The log belongs to another job.
    #[error("coordinator's log belongs to the job {found}")]
    OtherJob {
        /// The job that it names.
        found: String,
    },
    /// The log was written by a newer ckptd.
    #[error("coordinator's log has format {found}, this ckptd reads up to {most}: use a newer one")]
    Newer {
        /// Its format.
        found: u32,
        /// The newest that is read.
        most: u32,
    },
    /// The log exceeds its limit.
    #[error("coordinator's log of {size} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// An append failed before in such a way that the file's end is unknown.
    #[error("coordinator's log can't be written since an earlier failure")]
    Poisoned,
}

/// The largest log that is read, in bytes.
pub const MAX_LOG: u64 = 256 * 1024 * 1024;

const PREFIX: &str = "{\"check\":\"";
const MIDDLE: &str = "\",\"log\":";
const CHECK_LENGTH: usize = 16;

fn check_of(entry: &str) -> String {
    blake3::hash(entry.as_bytes()).to_hex().as_str()[..CHECK_LENGTH].to_owned()
}

/// The line of an entry, with its newline.
pub(crate) fn line_of<E: Serialize>(entry: &E) -> Result<String, serde_json::Error> {
    let entry = serde_json::to_string(entry)?;
    Ok(format!("{PREFIX}{}{MIDDLE}{entry}}}\n", check_of(&entry)))
}

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<E> {
    /// An entry.
    Entry(E),
    /// Whole, but its entry is none that is known here.
    Unknown,
    /// Cut off, or otherwise than it was written.
    Damaged,
}

impl<E> Line<E> {
    /// The entry, or what is wrong with this line of a log.
    pub(crate) fn entry(self, line: usize) -> Result<E, LogError> {
        match self {
            Self::Entry(entry) => Ok(entry),
            Self::Unknown => Err(LogError::Unknown { line }),
            Self::Damaged => Err(LogError::Damaged { line }),
        }
    }
}

/// Reads a line without its newline.
pub(crate) fn parse_line<E: DeserializeOwned>(line: &[u8]) -> Line<E> {
    let Some(entry) = checked(line) else { return Line::Damaged };
    protocol::json::read(entry.as_bytes()).map_or(Line::Unknown, Line::Entry)
}

/// The text of a line's entry, where its checksum is right.
fn checked(line: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(line).ok()?;
    let rest = line.strip_prefix(PREFIX)?;
    let (check, rest) = rest.split_at_checked(CHECK_LENGTH)?;
    let entry = rest.strip_prefix(MIDDLE)?.strip_suffix('}')?;
    (check == check_of(entry)).then_some(entry)
}

/// The entries of a log's text, each with the length of its line.
///
/// # Errors
/// [`LogError::Damaged`] where a line other than the last is damaged, [`LogError::Unknown`] where one is of another
/// version.
pub(crate) fn entries<E: DeserializeOwned>(text: &[u8]) -> Result<Vec<(E, u64)>, LogError> {
    let mut entries = Vec::new();
    let mut lines = text.split_inclusive(|byte| *byte == b'\n').enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        match line.strip_suffix(b"\n").map_or(Line::Damaged, parse_line) {
            Line::Damaged if lines.peek().is_none() => break,
            found => entries.push((found.entry(index + 1)?, line.len() as u64)),
        }
    }
    Ok(entries)
}

/// The text of a log.
pub(crate) fn content(file: &mut File, path: &Path) -> Result<Vec<u8>, LogError> {
    let io = |source| LogError::Io { action: "read", path: path.to_owned(), source };
    let size = file.metadata().map_err(io)?.len();
    if size > MAX_LOG {
        return Err(LogError::TooLarge { size, limit: MAX_LOG });
    }
    let mut text = Vec::new();
    file.take(MAX_LOG).read_to_end(&mut text).map_err(io)?;
    Ok(text)
}

/// A log that is open for appending, by its one writer.
#[derive(Debug)]
pub struct Journal<E> {
    file: Arc<File>,
    path: PathBuf,
    /// Length of what is durable.
    length: u64,
    /// Lines that were appended since.
    unsynced: u64,
    poisoned: bool,
    entries: PhantomData<fn(E)>,
}

impl<E: Serialize + DeserializeOwned> Journal<E> {
    /// Opens a log, or makes it, and hands its text to `replay`, which gives the length of the
    /// lines that count and whatever it makes of them.
    pub(crate) fn open_with<T>(
        path: &Path,
        replay: impl FnOnce(&[u8]) -> Result<(T, u64), LogError>,
    ) -> Result<(Self, T), LogError> {
        let io = |action| move |source| LogError::Io { action, path: path.to_owned(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)
            .map_err(io("open"))?;
        let text = content(&mut file, path)?;
        let (replayed, length) = replay(&text)?;
        if length < text.len() as u64 {
            file.set_len(length).map_err(io("repair"))?;
        }
        let path = path.to_owned();
        let file = Arc::new(file);
        let log = Self { file, path, length, unsynced: 0, poisoned: false, entries: PhantomData };
        Ok((log, replayed))
    }

    /// Opens a log, or makes it with a first entry, and reads all entries.
    ///
    /// # Errors
    /// [`LogError`] where it can't be opened, or is damaged.
    pub fn open(path: &Path, first: E) -> Result<(Self, Vec<E>), LogError> {
        let (mut log, mut found) = Self::open_with(path, |text| {
            let found: Vec<(E, u64)> = entries(text)?;
            let length = found.iter().map(|(_, length)| length).sum();
            Ok((found.into_iter().map(|(entry, _)| entry).collect::<Vec<E>>(), length))
        })?;
        if log.is_empty() {
            log.begin(&first)?;
            found.push(first);
        }
        Ok((log, found))
    }

    /// Length of what is durable, in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nothing was ever appended.
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends the first entry, and makes the file's name durable too.
    pub(crate) fn begin(&mut self, first: &E) -> Result<(), LogError> {
        self.append(first)?;
        let Some(folder) = self.path.parent() else { return Ok(()) };
        File::open(folder).and_then(|folder| sync_folder(&folder)).map_err(|source| LogError::Io {
            action: "sync",
            path: self.path.clone(),
            source,
        })
    }

    /// Appends an entry and returns once it is durable.
    ///
    /// # Errors
    /// [`LogError`]; the entry then does not count, unless the error is about the removal of what
    /// was written of it, after which the log takes no more entries.
    pub fn append(&mut self, entry: &E) -> Result<(), LogError> {
        self.write(entry)?;
        self.sync()
    }

    /// Appends an entry that becomes durable with the next [`Journal::sync`].
    ///
    /// # Errors
    /// As [`Journal::append`]; all entries since the last sync are lost with it.
    pub fn write(&mut self, entry: &E) -> Result<(), LogError> {
        if self.poisoned {
            return Err(LogError::Poisoned);
        }
        let line = line_of(entry).map_err(|error| self.lost(error.into()))?;
        (&*self.file).write_all(line.as_bytes()).map_err(|error| self.lost(error))?;
        self.unsynced += line.len() as u64;
        Ok(())
    }

    /// The same, but what was written before stays where this entry can't be.
    ///
    /// # Errors
    /// As [`Journal::append`], for this entry alone.
    pub fn write_alone(&mut self, entry: &E) -> Result<(), LogError> {
        if self.poisoned {
            return Err(LogError::Poisoned);
        }
        let written = line_of(entry).map_err(io::Error::from).and_then(|line| {
            (&*self.file).write_all(line.as_bytes())?;
            Ok(line.len() as u64)
        });
        let length = written.map_err(|source| {
            self.poisoned = self.file.set_len(self.length + self.unsynced).is_err();
            LogError::Io { action: "append to", path: self.path.clone(), source }
        })?;
        self.unsynced += length;
        Ok(())
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// As [`Journal::append`], for all entries since the last sync.
    pub fn sync(&mut self) -> Result<(), LogError> {
        let result = self.file.sync_data();
        self.synced(result)
    }

    /// The file, for somebody else to make durable what was written. Nothing must be written until
    /// [`Journal::synced`] is told how that went.
    #[must_use]
    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// The file, for somebody else to make durable what has been written by now, so many bytes. More may be written meanwhile;
    /// [`Journal::durable`] or [`Journal::lost`] is told how that went.
    #[must_use]
    pub fn to_sync(&self) -> (Arc<File>, u64) {
        (self.file(), self.unsynced)
    }

    /// It goes on in this file, which has so many bytes, all of them durable. Nothing was written that is not durable.
    pub(crate) fn go_on_in(&mut self, file: Arc<File>, length: u64) {
        (self.file, self.length, self.unsynced) = (file, length, 0);
    }

    /// Whether it takes no more entries, since it is not known where its file ends: it has to be opened again.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// So much of what was not durable is.
    pub fn durable(&mut self, bytes: u64) {
        let bytes = bytes.min(self.unsynced);
        self.length += bytes;
        self.unsynced -= bytes;
    }

    /// What was written is durable, or is not.
    ///
    /// # Errors
    /// As [`Journal::sync`].
    pub(crate) fn synced(&mut self, result: io::Result<()>) -> Result<(), LogError> {
        result.map_err(|error| self.lost(error))?;
        self.durable(self.unsynced);
        Ok(())
    }

    /// What was written could not be made durable: all of it is removed, with what came meanwhile.
    pub fn lost(&mut self, source: io::Error) -> LogError {
        self.unsynced = 0;
        let undone = self.file.set_len(self.length).and_then(|()| self.file.sync_data());
        self.poisoned = undone.is_err();
        LogError::Io { action: "append to", path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_version_wrote_is_told_from_what_is_torn() {
        let known = line_of(&1u32).unwrap();
        let other = line_of(&"drained").unwrap();
        let read = |text: &str| entries::<u32>(text.as_bytes());
        assert_eq!(read(&known).unwrap().len(), 1);
        let torn = known.clone() + &other[..other.len() - 3];
        assert_eq!(read(&torn).unwrap().len(), 1);
        assert!(matches!(read(&(torn + "\n" + &known)), Err(LogError::Damaged { line: 2 })));
        for text in [known.clone() + &other, known.clone() + &other + &known] {
            assert!(matches!(read(&text), Err(LogError::Unknown { line: 2 })), "{text}");
        }
    }

    #[test]
    fn what_another_version_wrote_stays_in_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (mut log, _) = Journal::open(&path, String::from("opened")).unwrap();
        log.append(&String::from("drained")).unwrap();
        let before = std::fs::read(&path).unwrap();
        assert!(matches!(Journal::open(&path, 1u32), Err(LogError::Unknown { line: 1 })));
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
