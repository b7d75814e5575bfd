//! Makes the coordinator's log shorter, also while it runs: else it would grow with all that has ever been done, until it takes
//! minutes to read, or can't be read at all ([`crate::journal::MAX_LOG`]).
//!
//! A thread writes a [`Draft`] beside the log, and reads it again: only what leads to the same is taken. What was
//! appended to the log meanwhile is then brought over, and the draft takes the log's name, while nothing else is written
//! ([`Draft::exchange`]). Until that is durable, the log is as it was.
//!
//! The log before stays as [`BEFORE`], for [`crate::Follower`]: what has happened is told from there.

use super::{ServeError, io_error};
use crate::cluster::entry::FORMAT;
use crate::cluster::{ClusterEntry, Now, RecoverError, say_the_same, shorten};
use crate::journal::{Journal, LogError, MAX_LOG, entries, line_of};
use protocol::cluster::replica::Prefix;
use protocol::durable::{remove_if_there, sync_folder};
use protocol::room::Room;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// What drafts' names begin with, beside the log; the number of the process follows.
const DRAFT: &str = "cluster.log.shorter";

/// Room that has to be left on the disk, in bytes.
const LEFT: u64 = 16 * 1024 * 1024;

/// The name of the log before, which nobody needs but who tells of the past.
pub const BEFORE: &str = "cluster.log.before";

/// In the environment: see [`log_shortened_above`].
const LOG_SHORTENED_ABOVE: &str = "CKPTD_LOG_SHORTENED_ABOVE";
/// How long the log may be before it is made shorter, in bytes.
const SHORTENED_ABOVE: u64 = 8 * 1024 * 1024;
/// Bytes that are copied at a time.
const PIECE: usize = 256 * 1024;

/// Why a log stays as it is.
#[derive(Debug, Error)]
pub enum NotShorter {
    /// The system refused.
    #[error("failed to {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Its own text can't be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// What it says is not known here.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// The disk is nearly full.
    #[error("the disk of {} is nearly full", .0.display())]
    Full(PathBuf),
    /// A fault of our own, which is told and does no harm.
    #[error("the shorter one does not say the same")]
    Differs,
}

/// A shorter log beside the log.
#[derive(Debug)]
pub struct Draft {
    file: Arc<File>,
    path: PathBuf,
    /// For how much of the log it stands, in bytes.
    of: u64,
    /// How long it is itself.
    length: u64,
}

/// One that has not taken the log's place is of no use.
impl Drop for Draft {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes what a process that was killed has left beside a log.
fn clean_up(path: &Path) {
    let folder = path.parent().unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        if entry.file_name().to_string_lossy().starts_with(DRAFT) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// What has come of an exchange.
#[derive(Debug)]
pub enum Outcome {
    /// The log is the draft, durably.
    Done {
        /// The file.
        file: Arc<File>,
        /// Its length.
        length: u64,
    },
    /// The log is as it was.
    Not(NotShorter),
    /// The draft has the log's name, perhaps not durably: after a loss of power, the log may be as it was.
    Unsure(io::Error),
}

impl Draft {
    /// Writes one for the first `of` bytes of a log; None: it would hardly be shorter.
    ///
    /// # Errors
    /// Where the log can't be read, or the draft can't be written or does not say the same. The log is as it was.
    pub fn make(log: &File, path: &Path, of: u64, now: Now) -> Result<Option<Self>, NotShorter> {
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| NotShorter::Io { action, path, source }
        };
        let known = read(log, of).map_err(failed("read", path))?;
        let known = parse(&known)?;
        let mut text = Vec::new();
        let prefix = Prefix::of_file(log, of).map_err(failed("read", path))?;
        for entry in shorten(now, &known)?.into_iter().chain([ClusterEntry::Shortened { prefix }]) {
            let line = line_of(&entry).map_err(io::Error::from);
            text.extend_from_slice(line.map_err(failed("write", path))?.as_bytes());
        }
        if text.len() as u64 > of / 8 * 7 {
            return Ok(None);
        }
        if !say_the_same(now, &known, &parse(&text)?)? {
            return Err(NotShorter::Differs);
        }
        let length = text.len() as u64;
        let path = path.with_file_name(format!("{DRAFT}.{}", std::process::id()));
        if Room::of(path.parent().unwrap_or(Path::new(".")))
            .is_some_and(|room| room.free < length + LEFT)
        {
            return Err(NotShorter::Full(path));
        }
        let write = || -> io::Result<File> {
            // One that was being written when the machine stopped is of no use.
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(true).mode(0o600);
            drop(options.open(&path)?);
            let mut file = OpenOptions::new().read(true).append(true).open(&path)?;
            file.write_all(&text)?;
            file.sync_data()?;
            Ok(file)
        };
        match write() {
            Ok(file) => Ok(Some(Self { file: Arc::new(file), path, of, length })),
            Err(error) => {
                let _ = std::fs::remove_file(&path);
                Err(failed("write", &path)(error))
            }
        }
    }

    /// Takes the place of the log, whose first `end` bytes are durable. Nothing may be written to it meanwhile, nor afterwards.
    pub fn exchange(self, log: &File, path: &Path, end: u64) -> Outcome {
        let not =
            |action, source| Outcome::Not(NotShorter::Io { action, path: path.to_owned(), source });
        if let Err(error) = self.bring(log, end) {
            return not("copy the end of", error);
        }
        if let Err(error) = keep_before(path) {
            tracing::warn!("the log before is not kept, of which the past is told: {error}");
        }
        if let Err(error) = std::fs::rename(&self.path, path) {
            // A file server may have done it, and its answer is lost.
            match is_at(log, path) {
                Ok(true) => return not("replace", error),
                _ => return Outcome::Unsure(error),
            }
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        match File::open(folder).and_then(|folder| sync_folder(&folder)) {
            Ok(()) => {
                let length = self.length + end.saturating_sub(self.of);
                Outcome::Done { file: Arc::clone(&self.file), length }
            }
            Err(error) => Outcome::Unsure(error),
        }
    }

    /// Brings over what was appended to the log since.
    fn bring(&self, log: &File, end: u64) -> io::Result<()> {
        let mut place = self.of;
        while place < end {
            let size = usize::try_from(end - place).unwrap_or(PIECE).min(PIECE);
            let mut piece = vec![0; size];
            log.read_exact_at(&mut piece, place)?;
            (&*self.file).write_all(&piece)?;
            place += size as u64;
        }
        self.file.sync_all()
    }
}

/// The log gets another name, too, by which it stays.
fn keep_before(path: &Path) -> io::Result<()> {
    let before = path.with_file_name(BEFORE);
    remove_if_there(&before)?;
    std::fs::hard_link(path, &before)
}

/// Whether a path leads to that file.
pub fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (file, named) = (file.metadata()?, std::fs::metadata(path)?);
    Ok((file.dev(), file.ino()) == (named.dev(), named.ino()))
}

fn read(log: &File, length: u64) -> io::Result<Vec<u8>> {
    if length > MAX_LOG {
        return Err(io::Error::other("it is too long"));
    }
    let mut text = vec![0; length as usize];
    log.read_exact_at(&mut text, 0)?;
    Ok(text)
}

fn parse(text: &[u8]) -> Result<Vec<ClusterEntry>, LogError> {
    Ok(entries(text)?.into_iter().map(|(entry, _)| entry).collect())
}

/// How long the log may be before it is made shorter, where the environment says so: for tests.
///
/// # Errors
/// Where that is no number.
pub fn log_shortened_above() -> Result<u64, ServeError> {
    match std::env::var(LOG_SHORTENED_ABOVE) {
        Ok(text) => text.parse().map_err(|_| {
            ServeError::Usage(format!("{LOG_SHORTENED_ABOVE} must be a number of bytes"))
        }),
        Err(_) => Ok(SHORTENED_ABOVE),
    }
}

/// The log, which is made shorter first where it is long.
///
/// # Errors
/// Where it can't be used.
pub fn open_log(
    path: &Path,
    now: Now,
) -> Result<(Journal<ClusterEntry>, Vec<ClusterEntry>), ServeError> {
    let first = || ClusterEntry::Opened { format: FORMAT };
    clean_up(path);
    let (journal, entries) = Journal::open(path, first())?;
    let length = journal.length();
    if length <= log_shortened_above()? {
        return Ok((journal, entries));
    }
    let exchanged = match Draft::make(&journal.file(), path, length, now) {
        Ok(None) => return Ok((journal, entries)),
        Ok(Some(draft)) => draft.exchange(&journal.file(), path, length),
        Err(kept) => Outcome::Not(kept),
    };
    match exchanged {
        Outcome::Done { length: now, .. } => {
            tracing::info!("the log is made shorter: {length} bytes, now {now}");
            Ok(Journal::open(path, first())?)
        }
        Outcome::Not(kept) => {
            tracing::warn!("the log is not made shorter: {kept}");
            Ok((journal, entries))
        }
        Outcome::Unsure(source) => Err(io_error(format!("sync {}", path.display()))(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use protocol::cluster::NodeName;

    const NOW: Now = Time { nanos: 0, unix_ms: 1 };

    fn node(number: u32) -> NodeName {
        format!("node{number}").parse().unwrap()
    }

    fn drained(number: u32, on: bool) -> ClusterEntry {
        ClusterEntry::NodeDrained { node: node(number), on }
    }

    fn removed(job: u32) -> ClusterEntry {
        ClusterEntry::JobRemoved { job: format!("job-{job}") }
    }

    /// A log that becomes shorter, in a folder of its own.
    fn drained_often(times: u32) -> (tempfile::TempDir, PathBuf, Journal<ClusterEntry>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.log");
        let (mut log, _) = open(&path);
        for number in 0..times {
            log.append(&drained(number % 7, number % 2 == 0)).unwrap();
        }
        (folder, path, log)
    }

    fn open(path: &Path) -> (Journal<ClusterEntry>, Vec<ClusterEntry>) {
        Journal::open(path, ClusterEntry::Opened { format: 1 }).unwrap()
    }

    #[test]
    fn what_comes_meanwhile_is_behind_what_was_there() {
        let (folder, path, mut log) = drained_often(1000);
        let draft = Draft::make(&log.file(), &path, log.length(), NOW).unwrap().unwrap();
        for job in 0..20_000 {
            log.write(&removed(job)).unwrap();
        }
        log.sync().unwrap();
        let before = open(&path).1;
        let outcome = draft.exchange(&log.file(), &path, log.length());
        let Outcome::Done { file, length } = outcome else { panic!("{outcome:?}") };
        assert!(length < log.length() - 20_000);
        log.go_on_in(file, length);
        log.append(&drained(7, true)).unwrap();
        let (again, mut entries) = open(&path);
        assert_eq!(again.length(), log.length());
        assert_eq!(entries.pop(), Some(drained(7, true)));
        assert!(say_the_same(NOW, &before, &entries).unwrap());
        assert!(!say_the_same(NOW, &before, &entries[..entries.len() - 1]).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        // All of that once more.
        let draft = Draft::make(&log.file(), &path, log.length(), NOW).unwrap().unwrap();
        let outcome = draft.exchange(&log.file(), &path, log.length());
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
        entries.push(drained(7, true));
        assert!(say_the_same(NOW, &entries, &open(&path).1).unwrap());
    }

    #[test]
    fn what_does_not_become_shorter_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.log");
        let (mut log, _) = open(&path);
        for number in 0..100 {
            log.append(&ClusterEntry::NodeRemoved { node: node(number) }).unwrap();
        }
        let before = std::fs::read(&path).unwrap();
        assert!(Draft::make(&log.file(), &path, log.length(), NOW).unwrap().is_none());
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_draft_of_a_machine_that_stopped_is_of_no_use_and_no_harm() {
        let (_folder, path, log) = drained_often(100);
        let left = path.with_file_name(format!("{DRAFT}.{}", std::process::id()));
        std::fs::write(&left, vec![b'x'; 1 << 20]).unwrap();
        let before = open(&path).1;
        let draft = Draft::make(&log.file(), &path, log.length(), NOW).unwrap().unwrap();
        let outcome = draft.exchange(&log.file(), &path, log.length());
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
        assert!(say_the_same(NOW, &before, &open(&path).1).unwrap());
    }

    #[test]
    fn where_it_can_not_be_exchanged_the_log_is_as_it_was() {
        let (_folder, path, log) = drained_often(100);
        let before = std::fs::read(&path).unwrap();
        let draft = Draft::make(&log.file(), &path, log.length(), NOW).unwrap().unwrap();
        clean_up(&path);
        let outcome = draft.exchange(&log.file(), &path, log.length());
        assert!(matches!(outcome, Outcome::Not(_)), "{outcome:?}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
