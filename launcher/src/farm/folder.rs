//! The folder of a run: DIR/farms/NAME.

use super::FarmError;
use super::journal::{self, Standing};
use super::locked;
use super::open::Spool;
use super::tasks::{TASKS, Tasks};
use super::workflow::{STEPS, Steps};
use crate::cli::FarmSettings;
use crate::jobs::{StateDir, check_name};
use ckptd_farm::{Order, Plan};
use nix::fcntl::Flock;
use protocol::durable::remove_if_there;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// In the folder of jobs; no job's id is called so.
const FARMS: &str = "farms";
/// What describes a run. A folder without it is none (yet).
const RECORD: &str = "farm.json";
const LOCK: &str = "lock";
/// What the folder of a run that is being removed is called, before a number: no name of a run begins like that.
const DISCARDED: &str = ".removed-";
/// The version of it that this build writes of an open farm: whoever knows none must not run its tasks.
const FORMAT: u32 = 3;
/// That of a workflow, likewise.
const FORMAT_OF_WORKFLOW: u32 = 2;
/// That of all other runs.
const FORMAT_OF_PLAIN: u32 = 1;
/// The largest that is read, in bytes.
const MAX_RECORD: u64 = 1024 * 1024;
/// The most runs that are looked at.
const MAX_RUNS: usize = 100_000;
/// The word for the newest run.
const LATEST: &str = "latest";

/// What is run, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FarmRecord {
    /// Version of the file.
    pub format: u32,
    /// The run's name, and that of its folder.
    pub name: String,
    /// How many tasks it has; of an open farm, when this was read.
    pub tasks: u32,
    /// Where they are run.
    pub working_directory: PathBuf,
    /// When it began, in milliseconds since 1970 UTC.
    pub created_at_ms: u64,
    /// The version of ckptd.
    pub version: String,
    /// How they are run.
    pub settings: FarmSettings,
    /// Whether tasks wait for others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub workflow: bool,
    /// Of a farm whose tasks are submitted one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<Open>,
}

/// What an open farm has beside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// How long its worker waits for tasks where there is nothing to do.
    pub idle: Duration,
}

/// The folder of a run.
#[derive(Debug, Clone)]
pub struct FarmFolder {
    path: PathBuf,
    record: FarmRecord,
}

/// Held by the one process that runs it, or changes its folder: it goes with that.
#[derive(Debug)]
pub struct FarmLock {
    _file: Flock<File>,
}

/// A folder that is being filled: without a record it is no run. Dropping it removes it. Its lock is held until there is
/// one: without that, it was left by a kill.
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
    name: String,
    _lock: FarmLock,
}

impl Draft {
    /// Makes one, by the name that was asked for, else one that begins like that.
    ///
    /// # Errors
    /// Where the name is not one or taken, or the folder can't be made.
    pub fn new(state: &StateDir, asked: Option<&str>, stem: &str) -> Result<Self, FarmError> {
        if let Some(name) = asked {
            check_name(name)?;
        }
        let folder = state.passing_through()?.path().join(FARMS);
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        match builder.create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(FarmError::io("create", &folder)(error));
            }
            _ => {}
        }
        let stem = if check_name(stem).is_ok() { stem } else { "farm" };
        for number in 1..=MAX_RUNS {
            let name = asked.map_or_else(|| format!("{stem}-{number}"), str::to_owned);
            let path = folder.join(&name);
            // Whoever was about to make it may have been killed.
            remove_left(&path);
            match builder.create(&path) {
                Ok(()) => match lock(&path, &name) {
                    // Another one has taken it for what was left, and completed it meanwhile.
                    Ok(_) if path.join(RECORD).exists() && asked.is_some() => {
                        return Err(FarmError::NameTaken(name));
                    }
                    Ok(_) if path.join(RECORD).exists() => {}
                    Ok(_lock) => return Ok(Self { path, name, _lock }),
                    // Another one was about to make it, and has taken this for what was left.
                    Err(_) if asked.is_some() => return Err(FarmError::NameTaken(name)),
                    Err(_) => {}
                },
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(FarmError::io("create", &path)(error));
                }
                Err(_) if asked.is_some() => return Err(FarmError::NameTaken(name)),
                Err(_) => {}
            }
        }
        Err(FarmError::io("create a folder in", &folder)(io::ErrorKind::AlreadyExists.into()))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it a run's.
    ///
    /// # Errors
    /// Where its record can't be written.
    pub fn complete(
        self,
        tasks: u32,
        working_directory: PathBuf,
        settings: FarmSettings,
    ) -> Result<FarmFolder, FarmError> {
        self.record(tasks, working_directory, settings, None)
    }

    /// Makes it an open farm's, durably.
    ///
    /// # Errors
    /// Where that can't be written.
    pub fn complete_open(
        self,
        settings: FarmSettings,
        open: Open,
    ) -> Result<FarmFolder, FarmError> {
        Spool::create(&self.path)?;
        let path = fs::canonicalize(&self.path).map_err(FarmError::io("find", &self.path))?;
        // What is submitted is durable, so its folder is, and the folders that this is in: before anybody finds it.
        for above in path.ancestors().skip(1).take(3) {
            let synced = File::open(above).and_then(|above| protocol::durable::sync_folder(&above));
            synced.map_err(FarmError::io("make durable", above))?;
        }
        self.record(0, path, settings, Some(open))
    }

    fn record(
        mut self,
        tasks: u32,
        working_directory: PathBuf,
        settings: FarmSettings,
        open: Option<Open>,
    ) -> Result<FarmFolder, FarmError> {
        let workflow = self.path.join(STEPS).exists();
        let record = FarmRecord {
            format: match (open, workflow) {
                (Some(_), _) => FORMAT,
                (None, true) => FORMAT_OF_WORKFLOW,
                (None, false) => FORMAT_OF_PLAIN,
            },
            name: self.name.clone(),
            tasks,
            working_directory,
            created_at_ms: crate::text::now_ms(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings,
            workflow,
            open,
        };
        FarmFolder { path: self.path.clone(), record }.write()?;
        FarmFolder::open(std::mem::take(&mut self.path))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // What is left of it is no run.
            let _ = discard(&self.path);
        }
    }
}

/// Removes a run's folder that was never completed, unless it is being filled; whether there was one.
fn remove_left(path: &Path) -> bool {
    if path.join(RECORD).exists() {
        return false;
    }
    let file = match OpenOptions::new().write(true).open(path.join(LOCK)) {
        Ok(file) => file,
        // It is empty: somebody may be about to fill it.
        Err(_) => return fs::remove_dir(path).is_ok(),
    };
    match locked::hold(file, &path.join(LOCK)) {
        Ok(Some(_lock)) if !path.join(RECORD).exists() => discard(path).is_ok(),
        Ok(_) | Err(_) => false,
    }
}

/// Removes a run's folder, whose lock the caller holds. Its name is free at once: what a kill leaves of it is in nobody's way,
/// and goes with the next run that is removed.
fn discard(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent() else { return Err(io::ErrorKind::InvalidInput.into()) };
    // Half a run is none.
    remove_if_there(&path.join(RECORD))?;
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(DISCARDED.as_bytes()) {
            // Its remover may be at it.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let discarded =
        folder.join(format!("{DISCARDED}{}.{}", std::process::id(), crate::text::now_ms()));
    fs::rename(path, &discarded)?;
    match fs::remove_dir_all(&discarded) {
        // Another one has removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// How often a lock is tried for that is held, and how long it is waited each time: who only asks whether a run is running
/// has it for a moment.
const TRIES: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(5);

fn lock(folder: &Path, name: &str) -> Result<FarmLock, FarmError> {
    for _ in 0..TRIES {
        match try_lock(folder) {
            Ok(Some(lock)) => return Ok(lock),
            Ok(None) => std::thread::sleep(BETWEEN),
            Err(error) => return Err(FarmError::io("lock", folder)(error)),
        }
    }
    Err(FarmError::Running(name.to_owned()))
}

/// Takes the lock; None: another process has it, or has just removed the folder with it.
fn try_lock(folder: &Path) -> io::Result<Option<FarmLock>> {
    let file = locked::take(&folder.join(LOCK))?;
    Ok(file.map(|file| FarmLock { _file: file }))
}

impl FarmFolder {
    /// Removes what was left of a run of that name that was never completed; whether there was something.
    ///
    /// # Errors
    /// Where the folder of runs can't be found.
    pub fn remove_left(state: &StateDir, name: &str) -> Result<bool, FarmError> {
        if check_name(name).is_err() {
            return Ok(false);
        }
        Ok(remove_left(&state.passing_through()?.path().join(FARMS).join(name)))
    }

    /// Opens a run's folder.
    ///
    /// # Errors
    /// Where its record can't be read.
    pub fn open(path: PathBuf) -> Result<Self, FarmError> {
        // Its tasks are known by it, however it is spelled.
        let path = fs::canonicalize(&path).map_err(FarmError::io("find", &path))?;
        let file = path.join(RECORD);
        let size = fs::metadata(&file).map_err(FarmError::io("read", &file))?.len();
        let bad = |reason: String| FarmError::BadRecord { path: file.clone(), reason };
        if size > MAX_RECORD {
            return Err(bad(format!("it exceeds the limit of {MAX_RECORD} bytes")));
        }
        let text = fs::read(&file).map_err(FarmError::io("read", &file))?;
        let mut record: FarmRecord =
            protocol::json::read(&text).map_err(|error| bad(error.to_string()))?;
        if record.format > FORMAT {
            let found = record.format;
            return Err(bad(format!(
                "it has format {found}, this ckptd reads up to {FORMAT}: use a newer one"
            )));
        }
        if record.open.is_some() {
            record.tasks = Spool::count(&path)?;
        }
        Ok(Self { path, record })
    }

    /// All runs, oldest first. What can't be read is given to `complain` and left out.
    ///
    /// # Errors
    /// Where their folder can't be read.
    pub fn all(
        state: &StateDir,
        mut complain: impl FnMut(FarmError),
    ) -> Result<Vec<Self>, FarmError> {
        let folder = state.passing_through()?.path().join(FARMS);
        let listing = match fs::read_dir(&folder) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(FarmError::io("read", &folder)(error)),
        };
        let mut all = Vec::new();
        for entry in listing.flatten().take(MAX_RUNS) {
            let is_run = !entry.file_name().as_encoded_bytes().starts_with(DISCARDED.as_bytes());
            if is_run && entry.path().join(RECORD).exists() {
                match Self::open(entry.path()) {
                    Ok(run) => all.push(run),
                    Err(error) => complain(error),
                }
            }
        }
        all.sort_by_key(|run| (run.record.created_at_ms, run.record.name.clone()));
        Ok(all)
    }

    /// The run that is meant: by its name, or 'latest', which is no open farm.
    ///
    /// # Errors
    /// Where there is none.
    pub fn find(state: &StateDir, wanted: &str) -> Result<Self, FarmError> {
        if wanted == LATEST {
            // An open farm has no end to be gone on to.
            let mut all = Self::all(state, |_| {})?;
            all.retain(|run| run.record.open.is_none());
            let newest = all.pop();
            return newest.ok_or_else(|| FarmError::Unknown(wanted.to_owned()));
        }
        check_name(wanted).map_err(|_| FarmError::Unknown(wanted.to_owned()))?;
        let path = state.passing_through()?.path().join(FARMS).join(wanted);
        match path.join(RECORD).exists() {
            true => Self::open(path),
            false => Err(FarmError::Unknown(wanted.to_owned())),
        }
    }

    /// What is run, and how.
    pub fn record(&self) -> &FarmRecord {
        &self.record
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its tasks; of a workflow, with what waits for what.
    ///
    /// # Errors
    /// Where they can't be read.
    pub fn open_tasks(&self) -> Result<(Tasks, Option<Plan>), FarmError> {
        if self.record.open.is_some() {
            return Ok((Tasks::of_spool(Spool::open(&self.path)?), None));
        }
        let tasks = Tasks::open(&self.path.join(TASKS), self.record.tasks)?;
        if !self.record.workflow {
            return Ok((tasks, None));
        }
        let order: Order = self.record.settings.order.unwrap_or_default();
        let (steps, plan) = Steps::open(&self.path.join(STEPS), self.record.tasks, order)?;
        Ok((tasks.with(steps), Some(plan)))
    }

    /// How many tasks its journal is about: of an open farm, none from the beginning.
    pub fn fixed_tasks(&self) -> u32 {
        if self.record.open.is_some() { 0 } else { self.record.tasks }
    }

    /// The folder of the jobs that its tasks have become.
    pub fn jobs(&self) -> PathBuf {
        self.path.join("jobs")
    }

    /// What has been said about these jobs.
    pub fn said(&self) -> PathBuf {
        self.path.join("said")
    }

    /// The file of what has ended.
    pub fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// Where results are.
    pub fn results(&self) -> PathBuf {
        self.record.settings.results.clone().unwrap_or_else(|| self.path.join("results"))
    }

    /// How many tasks have ended.
    ///
    /// # Errors
    /// Where the journal can't be read.
    pub fn standing(&self) -> Result<Standing, FarmError> {
        journal::read(&self.journal())
    }

    /// Uses other settings from now on. The caller holds the lock.
    ///
    /// # Errors
    /// Where they can't be written.
    pub fn change(&mut self, settings: FarmSettings) -> Result<(), FarmError> {
        let open = self.record.open;
        self.change_open(settings, open)
    }

    /// The same for an open farm.
    ///
    /// # Errors
    /// As [`FarmFolder::change`].
    pub fn change_open(
        &mut self,
        settings: FarmSettings,
        open: Option<Open>,
    ) -> Result<(), FarmError> {
        if self.record.settings == settings && self.record.open == open {
            return Ok(());
        }
        (self.record.settings, self.record.open) = (settings, open);
        self.write()
    }

    fn write(&self) -> Result<(), FarmError> {
        let path = self.path.join(RECORD);
        let text = serde_json::to_string_pretty(&self.record).map_err(io::Error::from);
        let written =
            text.and_then(|text| protocol::durable::replace(&path, (text + "\n").as_bytes()));
        written.map_err(FarmError::io("write", &path))
    }

    /// Takes the lock.
    ///
    /// # Errors
    /// [`FarmError::Running`] where another process holds it.
    pub fn lock(&self) -> Result<FarmLock, FarmError> {
        lock(&self.path, self.name())
    }

    /// Removes it with all that is in it. The caller holds the lock.
    ///
    /// # Errors
    /// Where that is not possible.
    pub fn remove(&self) -> Result<(), FarmError> {
        discard(&self.path).map_err(FarmError::io("remove", &self.path))
    }

    /// Whether it is still there.
    pub fn is_there(&self) -> bool {
        self.path.join(RECORD).exists()
    }

    /// Which folder is there under its name; None: there is none.
    pub fn identity(&self) -> Option<(u64, u64)> {
        fs::metadata(&self.path).ok().map(|found| (found.dev(), found.ino()))
    }

    /// Whether a process runs it.
    pub fn is_running(&self) -> bool {
        // Nothing is made in a folder that may be being removed.
        locked::is_taken(&self.path.join(LOCK)).unwrap_or(false)
    }
}
