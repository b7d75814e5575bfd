//! Reads a log that another one writes: what [`Journal`](crate::Journal) has appended since the last look.
//!
//! The writer is not asked, and does not wait. What is read may not be durable yet: a writer that could not make it so
//! takes it back, and the follower begins anew.

use crate::journal::{LogError, parse_line};
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The most bytes that are read at a time.
const PIECE: usize = 1 << 20;
/// The longest line, in bytes: an entry holds one request of a client, and little more.
const MAX_LINE: usize = 2 * protocol::cluster::client::MAX_ASK;

/// What one look at a log found.
#[derive(Debug, PartialEq)]
pub enum Followed<E> {
    /// Nothing new.
    Nothing,
    /// These entries, in their order; there may be more.
    Entries(Vec<E>),
    /// Something that was handed out has been taken back: what comes now begins with the log's first entry.
    Anew,
}

/// See the module.
#[derive(Debug)]
pub struct Follower<E> {
    file: File,
    path: PathBuf,
    /// Bytes of the log that have been read.
    read: u64,
    /// Lines that have been read, for the error of a damaged one.
    lines: usize,
    /// What has been read of a line whose end has not.
    rest: VecDeque<u8>,
    entries: PhantomData<fn() -> E>,
}

impl<E: DeserializeOwned> Follower<E> {
    /// At the beginning of this log.
    ///
    /// # Errors
    /// Where it can't be opened.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let file = File::open(path).map_err(failed("open", path))?;
        let (rest, path) = (VecDeque::new(), path.to_owned());
        Ok(Self { file, path, read: 0, lines: 0, rest, entries: PhantomData })
    }

    /// The next entries, of about a mebibyte at most.
    ///
    /// # Errors
    /// Where the log can't be read, or a line is damaged: the follower is of no use then.
    pub fn advance(&mut self) -> Result<Followed<E>, LogError> {
        let length = self.file.metadata().map_err(failed("read", &self.path))?.len();
        if length < self.read {
            (self.read, self.lines) = (0, 0);
            self.rest.clear();
            return Ok(Followed::Anew);
        }
        let mut piece = vec![0; PIECE.min(usize::try_from(length - self.read).unwrap_or(PIECE))];
        let count = self.file.read_at(&mut piece, self.read).map_err(failed("read", &self.path))?;
        piece.truncate(count);
        let mut found = Vec::new();
        let mut rest: &[u8] = &piece;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = (&rest[..end], &rest[end + 1..]);
            let entry = if self.rest.is_empty() {
                parse_line(line)
            } else {
                self.rest.extend(line);
                parse_line(self.rest.make_contiguous())
            };
            found.push(entry.entry(self.lines + found.len() + 1)?);
            self.rest.clear();
            rest = after;
        }
        self.rest.extend(rest);
        if self.rest.len() > MAX_LINE {
            return Err(LogError::Damaged { line: self.lines + found.len() + 1 });
        }
        self.read += count as u64;
        self.lines += found.len();
        Ok(if count == 0 { Followed::Nothing } else { Followed::Entries(found) })
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError {
    let path = path.to_owned();
    move |source| LogError::Io { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ClusterEntry;
    use crate::journal::Journal;
    use std::fs::OpenOptions;
    use std::io::Write;

    fn removed(job: &str) -> ClusterEntry {
        ClusterEntry::JobRemoved { job: job.to_owned() }
    }

    #[test]
    fn what_is_appended_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let first = ClusterEntry::Opened { format: 1 };
        let (mut journal, _) = Journal::open(&path, first.clone()).unwrap();
        let mut follower: Follower<ClusterEntry> = Follower::open(&path).unwrap();
        assert_eq!(follower.advance().unwrap(), Followed::Entries(vec![first]));
        assert_eq!(follower.advance().unwrap(), Followed::Nothing);
        let long = "x".repeat(PIECE + PIECE / 2);
        journal.append(&removed(&long)).unwrap();
        journal.append(&removed("b")).unwrap();
        assert_eq!(follower.advance().unwrap(), Followed::Entries(Vec::new()));
        let both = vec![removed(&long), removed("b")];
        assert_eq!(follower.advance().unwrap(), Followed::Entries(both));
    }

    #[test]
    fn half_a_line_waits_and_a_wrong_one_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        drop(Journal::open(&path, ClusterEntry::Opened { format: 1 }).unwrap());
        let line = std::fs::read(&path).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&line[..20]).unwrap();
        let mut follower: Follower<ClusterEntry> = Follower::open(&path).unwrap();
        assert!(
            matches!(follower.advance().unwrap(), Followed::Entries(found) if found.len() == 1)
        );
        file.write_all(&line[20..]).unwrap();
        assert!(
            matches!(follower.advance().unwrap(), Followed::Entries(found) if found.len() == 1)
        );
        file.set_len(line.len() as u64).unwrap();
        assert_eq!(follower.advance().unwrap(), Followed::Anew);
        assert!(
            matches!(follower.advance().unwrap(), Followed::Entries(found) if found.len() == 1)
        );
        file.write_all(b"wrong\n").unwrap();
        assert!(matches!(follower.advance(), Err(LogError::Damaged { line: 2 })));
    }
}
