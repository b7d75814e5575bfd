//! What has ended, by a journal that grows.

use crate::farm::journal;
use crate::farm::line::Line;
use crate::farm::{FarmError, FarmFolder};
use ckptd_farm::{Entry, Task, Try};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

/// How a task has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// How its last try went.
    pub tried: Try,
    /// When, in milliseconds since 1970 UTC.
    pub at_ms: u64,
}

/// What has ended.
#[derive(Debug)]
pub struct Ends {
    path: PathBuf,
    /// How far it was read.
    read: u64,
    ended: BTreeMap<Task, End>,
}

impl Ends {
    /// Of that farm, where nothing was read.
    pub fn of(folder: &FarmFolder) -> Self {
        Self { path: folder.journal(), read: 0, ended: BTreeMap::new() }
    }

    /// Reads what has come meanwhile; whether that was anything.
    ///
    /// # Errors
    /// Where that can't be read.
    pub fn read(&mut self) -> Result<bool, FarmError> {
        let text = self.more().map_err(FarmError::io("read", &self.path))?;
        // The last line may be being written.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        self.read += whole.len() as u64;
        whole.lines().filter_map(journal::parse).for_each(|line| self.take(line));
        Ok(!whole.is_empty())
    }

    fn more(&mut self) -> io::Result<String> {
        let mut file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            file => file?,
        };
        if file.metadata()?.len() < self.read {
            // What could not be made durable was cut off.
            (self.read, self.ended) = (0, BTreeMap::new());
        }
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = Vec::new();
        file.take(coordinator::MAX_LOG).read_to_end(&mut text)?;
        // All that is written is ASCII.
        String::from_utf8(text).map_err(io::Error::other)
    }

    fn take(&mut self, line: Line) {
        let Line::Ended { at_ms, entry } = line else { return };
        match entry {
            Entry::Ended(tried) => {
                self.ended.entry(tried.task).or_insert(End { tried, at_ms });
            }
            Entry::Retried { task } => {
                if self.end(task).is_some_and(|end| !end.tried.verdict.is_right()) {
                    self.ended.remove(&task);
                }
            }
            Entry::Failed(_) | Entry::Skipped { .. } | Entry::Reopened => {}
        }
    }

    /// How a task has ended; None: it has not.
    pub fn end(&self, task: Task) -> Option<&End> {
        self.ended.get(&task)
    }

    /// How many have ended right, and otherwise.
    pub fn counts(&self) -> (usize, usize) {
        let right = self.ended.values().filter(|end| end.tried.verdict.is_right()).count();
        (right, self.ended.len() - right)
    }
}
