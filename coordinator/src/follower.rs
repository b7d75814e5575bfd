//! Reads a cluster's log that another one writes: what [`Journal`](crate::Journal) has appended since the last look.
//!
//! The writer is not asked, and does not wait. What is read may not be durable yet: a writer that could not make it so
//! takes it back, and the follower begins anew. Where the log was made shorter, the follower reads the log before to its
//! end, and goes on in the new one where that one ended.

use crate::cluster::ClusterEntry;
use crate::journal::{Line, LogError, MAX_LOG, parse_line};
use crate::server::BEFORE;
use crate::server::shortening::is_at;
use protocol::cluster::replica::Prefix;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The most bytes that are read at a time.
const PIECE: usize = 1 << 20;
/// The longest line, in bytes: what is known of one job, in a log that was made shorter, is longest.
const MAX_LINE: u64 = MAX_LOG;

/// What one look at a log found.
#[derive(Debug, PartialEq)]
pub enum Followed {
    /// Nothing new.
    Nothing,
    /// These entries, in their order; there may be more.
    Entries(Vec<ClusterEntry>),
    /// Something that was handed out has been taken back, or others follow than was thought: what comes now begins with a
    /// log's first entry.
    Anew,
}

/// See the module.
#[derive(Debug)]
pub struct Follower {
    file: File,
    path: PathBuf,
    /// Bytes of the log that have been read.
    read: u64,
    /// Lines that have been read, for the error of a damaged one.
    lines: usize,
    /// What has been read of a line whose end has not.
    rest: VecDeque<u8>,
}

impl Follower {
    /// At the beginning of this log, or of the one before, where it was made shorter.
    ///
    /// # Errors
    /// Where it can't be opened.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let before = File::open(path.with_file_name(BEFORE));
        let file = before.or_else(|_| File::open(path)).map_err(failed("open", path))?;
        Ok(Self::in_file(file, path))
    }

    fn in_file(file: File, path: &Path) -> Self {
        Self { file, path: path.to_owned(), read: 0, lines: 0, rest: VecDeque::new() }
    }

    /// The next entries, of about a mebibyte at most.
    ///
    /// # Errors
    /// Where the log can't be read, or a line is damaged: the follower is of no use then.
    pub fn advance(&mut self) -> Result<Followed, LogError> {
        match self.look() {
            // Of the log before, only the past is told.
            Err(error) if !self.is_the_log()? => {
                tracing::warn!(
                    "the past is not told from before the log was made shorter: {error}"
                );
                let log = File::open(&self.path).map_err(failed("open", &self.path))?;
                *self = Self::in_file(log, &self.path);
                Ok(Followed::Anew)
            }
            looked => looked,
        }
    }

    fn look(&mut self) -> Result<Followed, LogError> {
        // In this order: nothing is written to a log any more that is not the log.
        let is_the_log = self.is_the_log()?;
        let length = self.file.metadata().map_err(failed("read", &self.path))?.len();
        if length < self.read {
            (self.read, self.lines) = (0, 0);
            self.rest.clear();
            return Ok(Followed::Anew);
        }
        let mut piece = vec![0; PIECE.min(usize::try_from(length - self.read).unwrap_or(PIECE))];
        let count = self.file.read_at(&mut piece, self.read).map_err(failed("read", &self.path))?;
        if count == 0 {
            return if is_the_log { Ok(Followed::Nothing) } else { self.go_on_in_the_log() };
        }
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
        if self.rest.len() as u64 > MAX_LINE {
            return Err(LogError::Damaged { line: self.lines + found.len() + 1 });
        }
        self.read += count as u64;
        self.lines += found.len();
        Ok(Followed::Entries(found))
    }

    /// Whether the file that is read is the log.
    fn is_the_log(&self) -> Result<bool, LogError> {
        is_at(&self.file, &self.path).map_err(failed("read", &self.path))
    }

    /// The log before has been read to its end: goes on behind that in the log, or, where that is another one's, at its
    /// beginning.
    fn go_on_in_the_log(&mut self) -> Result<Followed, LogError> {
        let log = File::open(&self.path).map_err(failed("open", &self.path))?;
        let next = Self::in_file(log, &self.path);
        match next.mark()? {
            Some((prefix, behind))
                if prefix.length <= self.read && self.prefix(prefix.length)? == prefix =>
            {
                let read = behind.end + (self.read - prefix.length);
                *self = Self { read, lines: behind.lines, ..next };
                Ok(Followed::Entries(Vec::new()))
            }
            _ => {
                // It may have been made shorter more than once meanwhile.
                let path = self.path.with_file_name(BEFORE);
                let another = match File::open(&path) {
                    Ok(before) if !is_at(&self.file, &path).map_err(failed("read", &path))? => {
                        Self::in_file(before, &self.path)
                    }
                    _ => next,
                };
                *self = another;
                Ok(Followed::Anew)
            }
        }
    }

    /// Of what was read of the log.
    fn prefix(&self, length: u64) -> Result<Prefix, LogError> {
        Prefix::of_file(&self.file, length).map_err(failed("read", &self.path))
    }

    /// What stands in a log, from its beginning, for how much of the log before; None: it was never made shorter.
    fn mark(&self) -> Result<Option<(Prefix, Place)>, LogError> {
        let mut reader = io::BufReader::new(&self.file);
        let (mut line, mut place) = (Vec::new(), Place::default());
        loop {
            line.clear();
            let limited = &mut io::Read::take(&mut reader, MAX_LINE);
            io::BufRead::read_until(limited, b'\n', &mut line)
                .map_err(failed("read", &self.path))?;
            let Some(entry) = line.strip_suffix(b"\n") else { return Ok(None) };
            place = Place { end: place.end + line.len() as u64, lines: place.lines + 1 };
            match parse_line(entry) {
                Line::Entry(ClusterEntry::Opened { .. }) => return Ok(None),
                Line::Entry(ClusterEntry::Shortened { prefix }) => {
                    return Ok(Some((prefix, place)));
                }
                other => drop(other.entry(place.lines)?),
            }
        }
    }
}

/// Behind a line.
#[derive(Debug, Default)]
struct Place {
    end: u64,
    lines: usize,
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError {
    let path = path.to_owned();
    move |source| LogError::Io { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;
    use crate::server::shortening::{Draft, Outcome};
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
        let mut follower: Follower = Follower::open(&path).unwrap();
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
        let mut follower: Follower = Follower::open(&path).unwrap();
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

    fn shorten(journal: &mut Journal<ClusterEntry>, path: &Path, meanwhile: &[ClusterEntry]) {
        let now = crate::Time { nanos: 0, unix_ms: 1 };
        let draft = Draft::make(&journal.file(), path, journal.length(), now).unwrap().unwrap();
        meanwhile.iter().for_each(|entry| journal.append(entry).unwrap());
        let outcome = draft.exchange(&journal.file(), path, journal.length());
        let Outcome::Done { file, length } = outcome else { panic!("{outcome:?}") };
        journal.go_on_in(file, length);
    }

    /// All that there is to be read.
    fn all(follower: &mut Follower) -> Vec<ClusterEntry> {
        let mut all = Vec::new();
        loop {
            match follower.advance().unwrap() {
                Followed::Nothing => return all,
                Followed::Entries(entries) => all.extend(entries),
                Followed::Anew => all.clear(),
            }
        }
    }

    #[test]
    fn a_log_that_is_made_shorter_is_read_on_without_a_gap() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cluster.log");
        let first = ClusterEntry::Opened { format: 1 };
        let (mut journal, _) = Journal::open(&path, first.clone()).unwrap();
        let mut follower = Follower::open(&path).unwrap();
        let (mut wanted, mut found) = (vec![first], Vec::new());
        for round in 0..3 {
            for number in 0..50 {
                let entry = removed(&format!("{round}-{number}"));
                journal.append(&entry).unwrap();
                wanted.push(entry);
            }
            if round != 1 {
                found.extend(all(&mut follower));
            }
            let meanwhile = vec![removed(&format!("{round}-a")), removed(&format!("{round}-b"))];
            shorten(&mut journal, &path, &meanwhile);
            wanted.extend(meanwhile);
            found.extend(all(&mut follower));
            assert_eq!(found, wanted);
        }
        // Another one that begins now reads from the log before on.
        let mut late = Follower::open(&path).unwrap();
        let told = all(&mut late);
        assert!(matches!(told[0], ClusterEntry::Reopened { .. }), "{:?}", told[0]);
        assert_eq!(told.last(), Some(&removed("2-b")));
        let shortened = told.iter().filter(|entry| matches!(entry, ClusterEntry::Shortened { .. }));
        assert_eq!(shortened.count(), 1);
    }

    #[test]
    fn who_has_missed_a_log_begins_with_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cluster.log");
        let (mut journal, _) = Journal::open(&path, ClusterEntry::Opened { format: 1 }).unwrap();
        let mut follower = Follower::open(&path).unwrap();
        for round in 0..2 {
            (0..50).for_each(|number| {
                journal.append(&removed(&format!("{round}-{number}"))).unwrap();
            });
            shorten(&mut journal, &path, &[]);
        }
        journal.append(&removed("last")).unwrap();
        let told = all(&mut follower);
        assert!(matches!(told[0], ClusterEntry::Reopened { .. }), "{:?}", told[0]);
        assert!(told.contains(&removed("1-0")) && !told.contains(&removed("0-0")));
        assert_eq!(told.last(), Some(&removed("last")));
    }
}
