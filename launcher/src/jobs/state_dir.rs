//! The folder that holds all jobs.

use super::{JobError, JobFolder, JobLock, JobRecord, JobSettings, name};
use protocol::database::users::Account;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The most jobs that a folder may hold.
const MAX_JOBS: usize = 100_000;

/// The folder that holds all jobs.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
}

fn set(variable: &str) -> Option<OsString> {
    std::env::var_os(variable).filter(|value| !value.is_empty())
}

fn at_home() -> Result<PathBuf, JobError> {
    let home = match set("HOME") {
        Some(home) => Some(PathBuf::from(home)),
        // A service has none (systemd.exec(5)).
        None => Account::of_uid(nix::unistd::geteuid().as_raw()).map(|user| user.home),
    };
    Ok(home.ok_or(JobError::NoPlace)?.join(".local/state/ckptd"))
}

impl StateDir {
    /// The folder that was asked for, else the default. It need not exist.
    ///
    /// # Errors
    /// [`JobError::NoPlace`] where none can be told.
    pub fn find(asked: Option<PathBuf>) -> Result<Self, JobError> {
        let path = match (asked, set("CKPTD_DIR")) {
            (Some(path), _) => path,
            (None, Some(path)) => path.into(),
            (None, None) => at_home()?,
        };
        let path = std::path::absolute(&path).map_err(JobError::io("find", path))?;
        Ok(Self { path })
    }

    /// A folder of this user's for what passes through: this one, or where this is another's, as that of an agent of root's
    /// is, the one at home.
    ///
    /// # Errors
    /// Where neither can be used.
    pub fn passing_through(&self) -> Result<Self, JobError> {
        let own = match self.make() {
            Err(JobError::OtherOwner { .. }) => Self { path: at_home()? },
            other => other.map(|()| Self { path: self.path.clone() })?,
        };
        own.make().map(|()| own)
    }

    /// The folder itself, which need not exist.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the folder, open to its user alone, or checks that it is the user's own.
    pub(super) fn make(&self) -> Result<(), JobError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .map_err(JobError::io("create", &self.path))?;
        let owner = fs::metadata(&self.path).map_err(JobError::io("read", &self.path))?.uid();
        // Images hold whole memories: they must not go where another could put them away.
        if owner == nix::unistd::geteuid().as_raw() {
            Ok(())
        } else {
            Err(JobError::OtherOwner { path: self.path.clone(), owner })
        }
    }

    pub(super) fn ids(&self) -> Result<Vec<String>, JobError> {
        let listing = match fs::read_dir(&self.path) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(JobError::io("read", &self.path)(error)),
        };
        let mut ids = Vec::new();
        for entry in listing.take(MAX_JOBS) {
            let entry = entry.map_err(JobError::io("read", &self.path))?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if let Ok(id) = entry.file_name().into_string() {
                    ids.push(id);
                }
            }
        }
        Ok(ids)
    }

    /// All jobs, oldest first. What can't be read is given to `complain` and left out.
    ///
    /// # Errors
    /// Where the folder itself can't be read.
    pub fn jobs(&self, mut complain: impl FnMut(JobError)) -> Result<Vec<JobFolder>, JobError> {
        let mut jobs = Vec::new();
        for id in self.ids()? {
            let path = self.path.join(&id);
            // A folder without a record is no job (yet).
            if id.starts_with('.') || !path.join(JobFolder::RECORD).exists() {
                continue;
            }
            match JobFolder::open(path, &id) {
                Ok(job) => jobs.push(job),
                Err(error) => complain(error),
            }
        }
        jobs.sort_by(|a, b| {
            let key = |job: &JobFolder| (job.record().created_at_ms, job.id().to_owned());
            key(a).cmp(&key(b))
        });
        Ok(jobs)
    }

    /// The job that is meant: by name, id, unambiguous beginning of an id, or 'latest'.
    ///
    /// # Errors
    /// Where it is none, or several.
    pub fn find_job(&self, wanted: &str) -> Result<JobFolder, JobError> {
        let mut broken = None;
        let mut jobs = self.jobs(|error| broken = Some(error))?;
        if wanted == name::LATEST {
            return jobs.pop().ok_or_else(|| JobError::NoJobs { dir: self.path.clone() });
        }
        let exact = |job: &&JobFolder| job.name() == wanted || job.id() == wanted;
        if let Some(job) = jobs.iter().find(exact) {
            return Ok(job.clone());
        }
        let begins = |job: &JobFolder| !wanted.is_empty() && job.id().starts_with(wanted);
        jobs.retain(begins);
        if jobs.len() > 1 {
            let ids: Vec<&str> = jobs.iter().map(JobFolder::id).take(5).collect();
            let more = if jobs.len() > 5 { " or others" } else { "" };
            return Err(JobError::Ambiguous {
                wanted: wanted.to_owned(),
                candidates: ids.join(", ") + more,
            });
        }
        match (jobs.pop(), broken) {
            (Some(job), _) => Ok(job),
            (None, Some(error)) => Err(error),
            (None, None) => Err(JobError::Unknown { wanted: wanted.to_owned() }),
        }
    }

    /// Makes the folder of a new job, and locks it.
    ///
    /// # Errors
    /// Where the name is not one or taken, or the folder can't be made.
    pub fn create(
        &self,
        asked_name: Option<&str>,
        command: &[OsString],
        working_directory: &Path,
        settings: JobSettings,
    ) -> Result<(JobFolder, JobLock), JobError> {
        if let Some(name) = asked_name {
            name::check(name)?;
        }
        self.make()?;
        let taken =
            |job: &JobFolder| Some(job.name()) == asked_name || Some(job.id()) == asked_name;
        if asked_name.is_some() && self.jobs(|_| {})?.iter().any(taken) {
            let name = asked_name.unwrap_or_default().to_owned();
            return Err(JobError::NameTaken { name });
        }
        let stem = match (asked_name, command.first()) {
            (Some(name), _) => name.to_owned(),
            (None, Some(program)) => name::stem(program),
            (None, None) => name::stem("".as_ref()),
        };
        let (id, path) = self.make_folder(&stem)?;
        let name = asked_name.unwrap_or(&id).to_owned();
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let record = JobRecord::new(
            id,
            name,
            command.iter().map(text).collect(),
            working_directory.to_string_lossy().into_owned(),
            settings,
        );
        write_record(&path, &record)?;
        let job = JobFolder::of(path, record);
        let lock = job.lock()?;
        Ok((job, lock))
    }

    pub(super) fn make_folder(&self, stem: &str) -> Result<(String, PathBuf), JobError> {
        let ids = self.ids()?;
        let newest = ids.iter().filter_map(|id| name::number(id, stem)).max().unwrap_or(0);
        let mut number = newest.saturating_add(1);
        loop {
            let id = format!("{stem}-{number}");
            let path = self.path.join(&id);
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok((id, path)),
                // Somebody else was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(JobError::io("create", path)(error)),
            }
        }
    }
}

/// Writes a record so that it is there whole, or not at all.
pub(super) fn write_record(folder: &Path, record: &JobRecord) -> Result<(), JobError> {
    let temporary = folder.join("job.json.new");
    let path = folder.join(JobFolder::RECORD);
    let write = || -> io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let mut text = serde_json::to_string_pretty(record)?;
        text.push('\n');
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(JobError::io("write", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(state: &StateDir, name: Option<&str>) -> Result<(JobFolder, JobLock), JobError> {
        state.create(name, &["/bin/prog".into()], Path::new("/"), JobSettings::default())
    }

    #[test]
    fn jobs_are_found_by_what_users_type() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::find(Some(dir.path().join("new/folder"))).unwrap();
        assert!(matches!(state.find_job("latest"), Err(JobError::NoJobs { .. })));
        let (first, lock) = create(&state, None).unwrap();
        let (second, _second_lock) = create(&state, None).unwrap();
        let (named, _named_lock) = create(&state, Some("fold")).unwrap();
        assert_eq!((first.id(), first.name()), ("prog-1", "prog-1"));
        assert_eq!(second.id(), "prog-2");
        assert_eq!((named.id(), named.name()), ("fold-1", "fold"));
        assert_eq!(state.find_job("fold").unwrap().id(), "fold-1");
        assert_eq!(state.find_job("fo").unwrap().id(), "fold-1");
        assert_eq!(state.find_job("prog-1").unwrap().id(), "prog-1");
        assert!(matches!(state.find_job("prog"), Err(JobError::Ambiguous { .. })));
        assert!(matches!(state.find_job(""), Err(JobError::Unknown { .. })));
        assert!(matches!(state.find_job("../new"), Err(JobError::Unknown { .. })));
        assert!(matches!(create(&state, Some("fold")), Err(JobError::NameTaken { .. })));
        assert!(first.is_running().unwrap());
        assert!(matches!(first.lock(), Err(JobError::Running { .. })));
        drop(lock);
        assert!(!first.is_running().unwrap());
        let mode = fs::metadata(first.path()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn a_broken_record_hides_no_other_job() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::find(Some(dir.path().to_owned())).unwrap();
        let (job, _lock) = create(&state, None).unwrap();
        fs::create_dir(dir.path().join("broken-1")).unwrap();
        fs::write(dir.path().join("broken-1/job.json"), "{\"format\":99}").unwrap();
        let mut complaints = 0;
        let jobs = state.jobs(|_| complaints += 1).unwrap();
        assert_eq!((jobs.len(), complaints), (1, 1));
        assert_eq!(jobs[0].id(), job.id());
        let error = state.find_job("broken-1").unwrap_err().to_string();
        assert!(error.contains("use a newer one"), "{error}");
    }
}
