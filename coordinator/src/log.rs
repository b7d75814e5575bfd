//! The coordinator's log on disk.
//!
//! A text file of JSON lines, each with a checksum of its entry's bytes:
//!
//! ```text
//! {"check":"0123456789abcdef","log":{"entry":"begun","checkpoint":3}}
//! ```
//!
//! `check` is the first 8 bytes of the entry's BLAKE3 hash in hexadecimal. A last line that is cut
//! off or fails its checksum was being written when the machine stopped: it never counted, and is
//! removed before the next entry is appended. Damage anywhere else is an error.

use crate::history::{Entry, History};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Version of the log that this build writes.
pub const FORMAT: u32 = 1;

/// The largest log that is read, in bytes.
const MAX_LOG: u64 = 256 * 1024 * 1024;

const PREFIX: &str = "{\"check\":\"";
const MIDDLE: &str = "\",\"log\":";
const CHECK_LENGTH: usize = 16;

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
    /// The log belongs to another job.
    #[error("coordinator's log belongs to the job {found}")]
    OtherJob {
        /// The job that it names.
        found: String,
    },
    /// The log was written by a newer ckptd.
    #[error(
        "coordinator's log has format {found}, this ckptd reads up to {FORMAT}: use a newer one"
    )]
    Newer {
        /// Its format.
        found: u32,
    },
    /// The log exceeds its limit.
    #[error("coordinator's log of {size} bytes exceeds the limit of {MAX_LOG}")]
    TooLarge {
        /// Its size.
        size: u64,
    },
    /// An append failed before in such a way that the file's end is unknown.
    #[error("coordinator's log can't be written since an earlier failure")]
    Poisoned,
}

/// What a log's bytes say.
#[derive(Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The entries' sum.
    pub history: History,
    /// Length of the whole lines; what is behind it never counted.
    pub length: u64,
}

fn check_of(entry: &str) -> String {
    blake3::hash(entry.as_bytes()).to_hex().as_str()[..CHECK_LENGTH].to_owned()
}

/// The line of an entry, with its newline.
fn line_of(entry: &Entry) -> Result<String, serde_json::Error> {
    let entry = serde_json::to_string(entry)?;
    Ok(format!("{PREFIX}{}{MIDDLE}{entry}}}\n", check_of(&entry)))
}

fn parse_line(line: &[u8]) -> Option<Entry> {
    let line = std::str::from_utf8(line).ok()?;
    let rest = line.strip_prefix(PREFIX)?;
    let (check, rest) = rest.split_at_checked(CHECK_LENGTH)?;
    let entry = rest.strip_prefix(MIDDLE)?.strip_suffix('}')?;
    if check != check_of(entry) {
        return None;
    }
    serde_json::from_str(entry).ok()
}

/// Reads a log of the job.
///
/// # Errors
/// [`LogError`] where a line other than the last is damaged, or the log is another's or newer.
pub fn replay(text: &[u8], job: &str) -> Result<Replayed, LogError> {
    let mut history = History::default();
    let mut length = 0_usize;
    let mut lines = text.split_inclusive(|byte| *byte == b'\n').enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        let last = lines.peek().is_none();
        let entry = line.strip_suffix(b"\n").and_then(parse_line);
        let Some(entry) = entry else {
            if last {
                break;
            }
            return Err(LogError::Damaged { line: index + 1 });
        };
        match &entry {
            Entry::Opened { format, .. } if *format > FORMAT => {
                return Err(LogError::Newer { found: *format });
            }
            Entry::Opened { job: found, .. } if found != job => {
                return Err(LogError::OtherJob { found: found.clone() });
            }
            Entry::Opened { .. } => {}
            _ if index == 0 => return Err(LogError::Damaged { line: 1 }),
            _ => {}
        }
        history.apply(&entry);
        length += line.len();
    }
    Ok(Replayed { history, length: length as u64 })
}

/// Reads the log of a job without touching it; a missing one is an empty history.
///
/// # Errors
/// [`LogError`] where it can't be read or is damaged.
pub fn read(path: &Path, job: &str) -> Result<History, LogError> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(History::default()),
        Err(source) => {
            return Err(LogError::Io { action: "open", path: path.to_owned(), source });
        }
    };
    Ok(replay(&content(&mut file, path)?, job)?.history)
}

fn content(file: &mut File, path: &Path) -> Result<Vec<u8>, LogError> {
    let io = |source| LogError::Io { action: "read", path: path.to_owned(), source };
    let size = file.metadata().map_err(io)?.len();
    if size > MAX_LOG {
        return Err(LogError::TooLarge { size });
    }
    let mut text = Vec::new();
    file.take(MAX_LOG).read_to_end(&mut text).map_err(io)?;
    Ok(text)
}

/// A log that is open for appending, by the one coordinator of its job.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    path: PathBuf,
    length: u64,
    poisoned: bool,
}

impl LogFile {
    /// Opens the log of a job, or makes it, and replays it.
    ///
    /// # Errors
    /// [`LogError`] where it can't be opened, or is damaged.
    pub fn open(path: &Path, job: &str) -> Result<(LogFile, History), LogError> {
        let io = |action| move |source| LogError::Io { action, path: path.to_owned(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)
            .map_err(io("open"))?;
        let text = content(&mut file, path)?;
        let Replayed { history, length } = replay(&text, job)?;
        let mut log = LogFile { file, path: path.to_owned(), length, poisoned: false };
        if length < text.len() as u64 {
            log.file.set_len(length).map_err(io("repair"))?;
        }
        if length == 0 {
            log.append(&Entry::Opened { format: FORMAT, job: job.to_owned() })?;
            if let Some(folder) = path.parent() {
                File::open(folder).and_then(|folder| folder.sync_all()).map_err(io("sync"))?;
            }
        }
        Ok((log, history))
    }

    /// Appends an entry and returns once it is durable.
    ///
    /// # Errors
    /// [`LogError`]; the entry then does not count, unless the error is about the removal of what
    /// was written of it, after which the log takes no more entries.
    pub fn append(&mut self, entry: &Entry) -> Result<(), LogError> {
        if self.poisoned {
            return Err(LogError::Poisoned);
        }
        let io = |source| LogError::Io { action: "append to", path: self.path.clone(), source };
        let line = line_of(entry).map_err(|error| io(error.into()))?;
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        if let Err(source) = written {
            let undone = self.file.set_len(self.length).and_then(|()| self.file.sync_data());
            self.poisoned = undone.is_err();
            return Err(io(source));
        }
        self.length += line.len() as u64;
        Ok(())
    }
}
