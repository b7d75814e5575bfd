//! Jobs' output, a file for each job.

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
    open: BTreeMap<String, Arc<File>>,
    unsynced: BTreeSet<String>,
    lengths: BTreeMap<String, u64>,
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

    fn file(&mut self, job: &str) -> io::Result<&File> {
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
            self.open.insert(job.to_owned(), Arc::new(file));
        }
        self.open.get(job).map(|file| &**file).ok_or_else(|| io::Error::other("log is not open"))
    }

    /// Appends.
    ///
    /// # Errors
    /// Where it can't.
    pub fn append(&mut self, job: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.file(job)?;
        file.write_all(bytes)?;
        *self.lengths.entry(job.to_owned()).or_default() += bytes.len() as u64;
        self.unsynced.insert(job.to_owned());
        Ok(())
    }

    /// Some bytes of a log.
    ///
    /// # Errors
    /// Where they can't be read.
    pub fn read(&mut self, job: &str, start: u64, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.file(job)?.read_exact_at(&mut bytes, start)?;
        Ok(bytes)
    }

    /// What was appended and is not durable yet, for somebody else to make it so.
    pub fn take_unsynced(&mut self) -> Vec<(String, Arc<File>)> {
        let unsynced = std::mem::take(&mut self.unsynced);
        let file = |job: String| self.open.get(&job).cloned().map(|file| (job, file));
        unsynced.into_iter().filter_map(file).collect()
    }

    /// Cuts a log to a length; what is behind goes to `log.before-CHECKPOINT` beside it.
    ///
    /// # Errors
    /// Where it can't.
    pub fn cut(&mut self, job: &str, length: u64, checkpoint: u64) -> io::Result<()> {
        let kept = self.folder_of(job)?.join(format!("log.before-{checkpoint}"));
        let mut file = self.file(job)?;
        if file.metadata()?.len() <= length {
            return Ok(());
        }
        let mut tail =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(kept)?;
        file.seek(SeekFrom::Start(length))?;
        io::copy(&mut file, &mut tail)?;
        tail.sync_data()?;
        file.set_len(length)?;
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

    #[test]
    fn what_is_cut_off_is_kept_beside() {
        let dir = tempfile::tempdir().unwrap();
        let mut logs = JobLogs::open(dir.path()).unwrap();
        logs.append("a-1", b"one two").unwrap();
        logs.cut("a-1", 100, 1).unwrap();
        logs.cut("a-1", 3, 2).unwrap();
        logs.append("a-1", b"!").unwrap();
        sync(logs.take_unsynced());
        let read = |name: &str| fs::read_to_string(dir.path().join("a-1").join(name)).unwrap();
        assert_eq!((read("log"), read("log.before-2")), ("one!".to_owned(), " two".to_owned()));
        assert_eq!(*logs.lengths(), BTreeMap::from([("a-1".to_owned(), 4)]));
        assert_eq!(lengths(dir.path()).unwrap(), *logs.lengths());
        assert_eq!(logs.read("a-1", 1, 3).unwrap(), b"ne!");
        assert!(logs.read("a-1", 2, 3).is_err());
        assert!(logs.append("../x", b"").is_err());
        logs.remove("a-1").unwrap();
        assert!(logs.lengths().is_empty());
    }
}
