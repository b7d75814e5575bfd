//! The coordinator's log on disk.
//!
//! Its form is that of every [`Journal`].

use crate::history::{Entry, History};
pub use crate::journal::LogError;
use crate::journal::{Journal, content, entries};
use std::fs::File;
use std::io;
use std::path::Path;

/// Version of the log that this build writes.
pub const FORMAT: u32 = 1;

/// What a log's bytes say.
#[derive(Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The entries' sum.
    pub history: History,
    /// Length of the whole lines; what is behind it never counted.
    pub length: u64,
}

/// Reads a log of the job.
///
/// # Errors
/// [`LogError`] where a line other than the last is damaged, or the log is another's or newer.
pub fn replay(text: &[u8], job: &str) -> Result<Replayed, LogError> {
    let mut history = History::default();
    let mut total = 0;
    for (index, (entry, length)) in entries(text)?.into_iter().enumerate() {
        match &entry {
            Entry::Opened { format, .. } if *format > FORMAT => {
                return Err(LogError::Newer { found: *format, most: FORMAT });
            }
            Entry::Opened { job: found, .. } if found != job => {
                return Err(LogError::OtherJob { found: found.clone() });
            }
            Entry::Opened { .. } => {}
            _ if index == 0 => return Err(LogError::Damaged { line: 1 }),
            _ => {}
        }
        history.apply(&entry);
        total += length;
    }
    Ok(Replayed { history, length: total })
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

/// A log that is open for appending, by the one coordinator of its job.
#[derive(Debug)]
pub struct LogFile(Journal<Entry>);

impl LogFile {
    /// Opens the log of a job, or makes it, and replays it.
    ///
    /// # Errors
    /// [`LogError`] where it can't be opened, or is damaged.
    pub fn open(path: &Path, job: &str) -> Result<(LogFile, History), LogError> {
        let (mut log, history) = Journal::open_with(path, |text| {
            let Replayed { history, length } = replay(text, job)?;
            Ok((history, length))
        })?;
        if log.is_empty() {
            log.begin(&Entry::Opened { format: FORMAT, job: job.to_owned() })?;
        }
        Ok((LogFile(log), history))
    }

    /// Appends an entry and returns once it is durable.
    ///
    /// # Errors
    /// [`LogError`]; the entry then does not count, unless the error is about the removal of what
    /// was written of it, after which the log takes no more entries.
    pub fn append(&mut self, entry: &Entry) -> Result<(), LogError> {
        self.0.append(entry)
    }
}
