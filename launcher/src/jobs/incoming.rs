//! A job's folder that comes from outside, until all of it is checked.

use super::state_dir::write_record;
use super::{JobError, JobFolder, JobRecord, StateDir, name};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How the names of such folders begin: no job's id begins with a dot.
const PREFIX: &str = ".import-";

/// A folder that is being filled. Nothing lists it. Dropping it removes it, and so does the next import
/// or collection if the process was killed.
#[derive(Debug)]
pub struct Incoming {
    path: PathBuf,
    /// On the folder; it goes with the process.
    _lock: Flock<File>,
}

impl Incoming {
    /// Makes one in the folder of jobs.
    ///
    /// # Errors
    /// Where it can't be made.
    pub fn new(state: &StateDir) -> Result<Self, JobError> {
        state.make()?;
        sweep(state)?;
        for attempt in 0..100 {
            let path = state.path().join(format!("{PREFIX}{}-{attempt}", std::process::id()));
            if DirBuilder::new().mode(0o700).create(&path).is_err() {
                continue;
            }
            // Between the two calls somebody else's sweep may have taken it away.
            let Some(lock) = lock(&path) else { continue };
            let same = |there: fs::Metadata| lock.metadata().is_ok_and(|m| m.ino() == there.ino());
            if fs::metadata(&path).is_ok_and(same) {
                return Ok(Self { path, _lock: lock });
            }
        }
        let error = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        Err(JobError::io("create a folder in", state.path())(error))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it a job's, under a new id: `complete` is told the id and does the rest in the folder. Only
    /// then it can be seen.
    ///
    /// # Errors
    /// Where the name is not one or taken, `complete` fails, or the system refuses.
    pub fn publish<E: From<JobError>>(
        mut self,
        state: &StateDir,
        wanted: &Wanted,
        mut record: JobRecord,
        complete: impl FnOnce(&str) -> Result<(), E>,
    ) -> Result<JobFolder, E> {
        wanted.check(state)?;
        let stem = match &wanted.name {
            Some(name) => name.clone(),
            None => name::stem_of_id(&record.id),
        };
        let (id, place) = state.make_folder(&stem)?;
        // Until it has a record the empty folder is nobody's.
        let reserved = Reserved(place.clone());
        record.name = wanted.name.clone().unwrap_or_else(|| id.clone());
        record.id = id;
        complete(&record.id)?;
        write_record(&self.path, &record)?;
        // rename(2) takes the place of an empty folder.
        fs::rename(&self.path, &place).map_err(JobError::io("create", &place))?;
        drop(reserved);
        self.path = PathBuf::new();
        let synced = File::open(state.path()).and_then(|folder| folder.sync_all());
        synced.map_err(JobError::io("write", state.path()))?;
        Ok(JobFolder::of(place, record))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The place of a job that is not there yet; removed if it is empty still.
struct Reserved(PathBuf);

impl Drop for Reserved {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The name that an imported job is to have.
#[derive(Debug, Clone)]
pub struct Wanted {
    name: Option<String>,
}

impl Wanted {
    /// The one that was asked for, else the one that the job had, if somebody gave it one.
    #[must_use]
    pub fn of(asked: Option<&str>, record: &JobRecord) -> Self {
        let own = (record.name != record.id).then_some(record.name.as_str());
        Self { name: asked.or(own).map(str::to_owned) }
    }

    /// Whether it is a name, and free.
    ///
    /// # Errors
    /// Where it is not.
    pub fn check(&self, state: &StateDir) -> Result<(), JobError> {
        let Some(name) = &self.name else { return Ok(()) };
        name::check(name)?;
        let taken = |job: &JobFolder| job.name() == name || job.id() == name;
        match state.jobs(|_| {})?.iter().any(taken) {
            true => Err(JobError::ImportedNameTaken { name: name.clone() }),
            false => Ok(()),
        }
    }
}

/// Removes what killed imports have left. Those that go on hold their locks.
///
/// # Errors
/// Where the folder of jobs can't be read.
pub fn sweep(state: &StateDir) -> Result<(), JobError> {
    for id in state.ids()?.iter().filter(|id| id.starts_with(PREFIX)) {
        let path = state.path().join(id);
        if lock(&path).is_some() {
            fs::remove_dir_all(&path).map_err(JobError::io("remove", path))?;
        }
    }
    Ok(())
}

fn lock(path: &Path) -> Option<Flock<File>> {
    Flock::lock(File::open(path).ok()?, FlockArg::LockExclusiveNonblock).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::JobSettings;

    fn record(id: &str, name: &str) -> JobRecord {
        JobRecord::new(
            id.into(),
            name.into(),
            vec!["prog".into()],
            "/".into(),
            JobSettings::default(),
        )
    }

    fn publish(state: &StateDir, record: JobRecord) -> Result<JobFolder, JobError> {
        let wanted = Wanted::of(None, &record);
        Incoming::new(state)?.publish(state, &wanted, record, |_| Ok(()))
    }

    #[test]
    fn ids_are_new_and_names_kept() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::find(Some(dir.path().to_owned())).unwrap();
        let first = publish(&state, record("prog-7", "prog-7")).unwrap();
        let second = publish(&state, record("prog-7", "prog-7")).unwrap();
        let named = publish(&state, record("x-1", "fold")).unwrap();
        assert_eq!((first.id(), first.name()), ("prog-1", "prog-1"));
        assert_eq!(second.id(), "prog-2");
        assert_eq!((named.id(), named.name()), ("fold-1", "fold"));
        let error = publish(&state, record("x-1", "fold")).unwrap_err();
        assert!(error.to_string().contains("--name"), "{error}");
        for bad in ["../x", "a/b", "", "latest"] {
            assert!(publish(&state, record("x-1", bad)).is_err(), "{bad:?}");
        }
        assert_eq!(publish(&state, record("../..", "../..")).unwrap().id(), "_..-1");
        assert_eq!(state.jobs(|_| {}).unwrap().len(), 4);
        assert_eq!(state.ids().unwrap().len(), 4);
    }

    #[test]
    fn what_a_killed_import_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::find(Some(dir.path().to_owned())).unwrap();
        let left = dir.path().join(".import-1-0");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("job.json"), "{}").unwrap();
        assert!(state.jobs(|_| {}).unwrap().is_empty());
        let going_on = Incoming::new(&state).unwrap();
        assert!(!left.exists());
        sweep(&state).unwrap();
        assert!(going_on.path().exists());
        let path = going_on.path().to_owned();
        drop(going_on);
        assert!(!path.exists());
    }
}
