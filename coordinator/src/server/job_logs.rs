//! Jobs' output, a file for each job, and beside it when it was written.

use crate::cluster::Written;
use protocol::log_times::{Piece, Times, TimesFile};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Logs that are held open at one time.
const MAX_OPEN: usize = 64;

/// The files of all jobs' output, `JOB/log` in a folder.
#[derive(Debug)]
pub struct JobLogs {
    folder: PathBuf,
    open: BTreeMap<String, Open>,
    unsynced: BTreeSet<String>,
    lengths: BTreeMap<String, u64>,
}

/// A log that is held open, and its index.
#[derive(Debug)]
struct Open {
    file: Arc<File>,
    times: TimesFile,
}

impl JobLogs {
    /// Those in this folder, made if it is not there.
    ///
    /// # Errors
    /// Where it can't be made.
    pub fn open(folder: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            open: BTreeMap::new(),
            unsynced: BTreeSet::new(),
            lengths: lengths(folder)?,
        })
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The length of every log.
    pub fn lengths(&self) -> &BTreeMap<String, u64> {
        &self.lengths
    }

    fn folder_of(&self, job: &str) -> io::Result<PathBuf> {
        // Ids are made by the coordinator; a path among them would be its mistake.
        let plain = !job.is_empty() && !job.starts_with('.') && !job.contains('/');
        let path = self.folder.join(job);
        if plain { Ok(path) } else { Err(io::Error::other(format!("{job:?} is no job's id"))) }
    }

    fn opened(&mut self, job: &str) -> io::Result<&mut Open> {
        if !self.open.contains_key(job) {
            if self.open.len() >= MAX_OPEN {
                sync(self.take_unsynced());
                self.open.clear();
            }
            let folder = self.folder_of(job)?;
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            let mut options = OpenOptions::new();
            options.read(true).append(true).create(true).mode(0o600);
            let file = options.open(folder.join("log"))?;
            let times = TimesFile::open(&folder, file.metadata()?.len());
            self.open.insert(job.to_owned(), Open { file: Arc::new(file), times });
        }
        self.open.get_mut(job).ok_or_else(|| io::Error::other("log is not open"))
    }

    /// Appends what was written at some time; now is a time in milliseconds since 1970 UTC.
    ///
    /// # Errors
    /// Where it can't.
    pub fn append(
        &mut self,
        job: &str,
        bytes: &[u8],
        (written, now_ms): (Written, u64),
    ) -> io::Result<()> {
        let start = self.lengths.get(job).copied().unwrap_or_default();
        let open = self.opened(job)?;
        (&*open.file).write_all(bytes)?;
        let end = start + bytes.len() as u64;
        let known = match written {
            Written::Now(origin) => vec![Piece { start, end, at_ms: now_ms, span_ms: 0, origin }],
            Written::Before(pieces) => pieces,
        };
        for piece in known.into_iter().filter_map(|piece| piece.within(start, end)) {
            open.times.add(piece);
        }
        self.lengths.insert(job.to_owned(), end);
        self.unsynced.insert(job.to_owned());
        Ok(())
    }

    /// Some bytes of a log.
    ///
    /// # Errors
    /// Where they can't be read.
    pub fn read(&mut self, job: &str, start: u64, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.opened(job)?.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes)
    }

    /// When a log was written.
    ///
    /// # Errors
    /// Where the log can't be opened.
    pub fn times(&mut self, job: &str) -> io::Result<&Times> {
        Ok(self.opened(job)?.times.times())
    }

    /// What was appended and is not durable yet, for somebody else to make it so.
    pub fn take_unsynced(&mut self) -> Vec<(String, Arc<File>)> {
        let unsynced = std::mem::take(&mut self.unsynced);
        let file = |job: String| self.open.get(&job).map(|open| (job, open.file.clone()));
        unsynced.into_iter().filter_map(file).collect()
    }

    /// Cuts a log to a length; what is behind goes to `log.before-CHECKPOINT` beside it.
    ///
    /// # Errors
    /// Where it can't.
    pub fn cut(&mut self, job: &str, length: u64, checkpoint: u64) -> io::Result<()> {
        let kept = self.folder_of(job)?.join(format!("log.before-{checkpoint}"));
        let open = self.opened(job)?;
        let mut file = &*open.file;
        if file.metadata()?.len() <= length {
            return Ok(());
        }
        let mut tail =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(kept)?;
        file.seek(SeekFrom::Start(length))?;
        io::copy(&mut file, &mut tail)?;
        tail.sync_data()?;
        file.set_len(length)?;
        open.times.cut(length);
        let done = file.sync_data();
        self.lengths.insert(job.to_owned(), length);
        done
    }

    /// Removes a job's folder.
    ///
    /// # Errors
    /// Where it can't.
    pub fn remove(&mut self, job: &str) -> io::Result<()> {
        self.open.remove(job);
        self.unsynced.remove(job);
        self.lengths.remove(job);
        match fs::remove_dir_all(self.folder_of(job)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

/// Makes what was appended durable. A failure is told, and keeps nobody from going on.
pub fn sync(unsynced: Vec<(String, Arc<File>)>) {
    for (job, file) in unsynced {
        if let Err(error) = file.sync_data() {
            tracing::warn!("failed to sync the log of {job}: {error}");
        }
    }
}

fn lengths(folder: &Path) -> io::Result<BTreeMap<String, u64>> {
    let mut lengths = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(job) = entry.file_name().into_string() else { continue };
        match fs::metadata(entry.path().join("log")) {
            Ok(log) => drop(lengths.insert(job, log.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(lengths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::log_times::Origin;

    #[test]
    fn what_is_cut_off_is_kept_beside() {
        let dir = tempfile::tempdir().unwrap();
        let mut logs = JobLogs::open(dir.path()).unwrap();
        logs.append("a-1", b"one two", (Written::Now(Origin::Output), 1000)).unwrap();
        logs.cut("a-1", 100, 1).unwrap();
        logs.cut("a-1", 3, 2).unwrap();
        logs.append("a-1", b"!", (Written::Now(Origin::Error), 5000)).unwrap();
        let times = logs.times("a-1").unwrap();
        let at = |place| times.at(place).map(|piece| (piece.at_ms, piece.origin));
        assert_eq!([at(2), at(3)], [Some((1000, Origin::Output)), Some((5000, Origin::Error))]);
        assert_eq!(*times, protocol::log_times::read(&dir.path().join("a-1/log.times"), 4));
        sync(logs.take_unsynced());
        let read = |name: &str| fs::read_to_string(dir.path().join("a-1").join(name)).unwrap();
        assert_eq!((read("log"), read("log.before-2")), ("one!".to_owned(), " two".to_owned()));
        assert_eq!(*logs.lengths(), BTreeMap::from([("a-1".to_owned(), 4)]));
        assert_eq!(lengths(dir.path()).unwrap(), *logs.lengths());
        assert_eq!(logs.read("a-1", 1, 3).unwrap(), b"ne!");
        assert!(logs.read("a-1", 2, 3).is_err());
        assert!(logs.append("../x", b"", (Written::Before(Vec::new()), 1)).is_err());
        logs.remove("a-1").unwrap();
        assert!(logs.lengths().is_empty());
    }
}
