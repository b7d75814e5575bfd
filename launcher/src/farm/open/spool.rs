//! All tasks that were submitted, on the disk: their words in `tasks`, one behind the other, what holds for them in `index`,
//! and their environments in a folder.
//!
//! A task is there once its entry in the index is whole and its checksum is right: that is written behind its words, and both
//! are made durable before the next one is added. So only the last one may be torn; it was never told of, and its place is
//! the next one's. Tasks are never removed, so that no number is used twice.

use super::gate::Gate;
use super::submission::{MOST, Submission, damaged};
use crate::farm::FarmError;
use crate::farm::limits::{MOST_ENDS, MOST_TASKS};
use ckptd_farm::{Limits, Task};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The words of all.
const WORDS: &str = "tasks";
/// What holds for each task.
const INDEX: &str = "index";
/// The environments of tasks, each by its hash.
const ENVIRONMENTS: &str = "environments";
/// The length of an entry of the index, in bytes.
const ENTRY: usize = 48;
/// The most bytes that a farm keeps of its tasks.
const MOST_BYTES: u64 = 4 << 30;
/// The most tries of all tasks: half of what the journal has room for, so that there is some for those that are to be run again.
const MOST_TRIES: u64 = MOST_ENDS / 2;
/// What stands for a limit that is not given.
const NONE: u64 = u64::MAX;

/// An entry of the index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Entry {
    /// Where the words of the task end, and those of the next one begin.
    end: u64,
    limits: Limits,
    /// How many tries it and all before it may take.
    tries: u64,
    /// How many bytes of words and environments it and all before it have taken.
    bytes: u64,
}

impl Entry {
    /// With the checksum of that and of the words.
    fn write(&self, words: &[u8]) -> [u8; ENTRY] {
        let timeout = self
            .limits
            .timeout
            .map_or(NONE, |limit| limit.as_millis().min(u128::from(NONE - 1)) as u64);
        let retries = self.limits.retries.map_or(NONE, u64::from);
        let mut entry = [0; ENTRY];
        let fields = [self.end, timeout, retries, self.tries, self.bytes];
        for (place, field) in entry.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        let check = check_of(&entry[..ENTRY - 8], words);
        entry[ENTRY - 8..].copy_from_slice(&check);
        entry
    }

    fn read(entry: &[u8]) -> Self {
        let field = |number: usize| {
            let bytes = entry.get(number * 8..number * 8 + 8);
            bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
        };
        let given = |field: u64| (field != NONE).then_some(field);
        let limits = Limits {
            timeout: given(field(1)).map(Duration::from_millis),
            retries: given(field(2)).map(|retries| u32::try_from(retries).unwrap_or(u32::MAX)),
        };
        Self { end: field(0), limits, tries: field(3), bytes: field(4) }
    }
}

/// Whether what was read is not, or not all, that was to be written.
fn is_torn(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData)
}

fn check_of(entry: &[u8], words: &[u8]) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(entry).update(words);
    let mut check = [0; 8];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    check
}

/// The tasks of an open farm, on the disk.
#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    tasks: File,
    index: File,
    /// How many of them are known.
    number: u32,
}

impl Spool {
    /// Makes one without tasks.
    ///
    /// # Errors
    /// Where it can't be made.
    pub fn create(folder: &Path) -> Result<(), FarmError> {
        for name in [WORDS, INDEX] {
            let path = folder.join(name);
            let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
            made.and_then(|file| file.sync_all()).map_err(FarmError::io("create", &path))?;
        }
        let path = folder.join(ENVIRONMENTS);
        DirBuilder::new().mode(0o700).create(&path).map_err(FarmError::io("create", &path))
    }

    /// Opens it, with all that are there by now: the last one may not be durable.
    ///
    /// # Errors
    /// Where it can't be read.
    pub fn open(folder: &Path) -> Result<Self, FarmError> {
        let open = |name| {
            let path = folder.join(name);
            let mut options = OpenOptions::new();
            options.read(true).write(true);
            options.open(&path).map_err(FarmError::io("open", path))
        };
        let (tasks, index) = (open(WORDS)?, open(INDEX)?);
        let mut spool = Self { folder: folder.to_owned(), tasks, index, number: 0 };
        spool.number = spool.whole().map_err(FarmError::io("read", folder.join(INDEX)))?;
        Ok(spool)
    }

    /// How many tasks are known.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// How many tasks there are.
    ///
    /// # Errors
    /// Where that can't be told.
    pub fn count(folder: &Path) -> Result<u32, FarmError> {
        Ok(Self::open(folder)?.number)
    }

    /// How many entries the index has, but for a last one that is torn.
    fn whole(&self) -> io::Result<u32> {
        let number = self.index.metadata()?.len() / ENTRY as u64;
        let number = u32::try_from(number).ok().filter(|number| *number <= MOST_TASKS);
        let number = number.ok_or_else(damaged)?;
        if number == 0 {
            return Ok(0);
        }
        let Err(error) = self.words(Task(number)) else { return Ok(number) };
        if !is_torn(&error) {
            return Err(error);
        }
        // The one before it was durable before that was begun: whoever had taken it for torn would write over it.
        if number > 1 {
            self.words(Task(number - 1))?;
        }
        Ok(number - 1)
    }

    fn entry(&self, number: u32) -> io::Result<(Entry, [u8; ENTRY])> {
        let mut entry = [0; ENTRY];
        let Some(before) = number.checked_sub(1) else { return Ok((Entry::default(), entry)) };
        self.index.read_exact_at(&mut entry, u64::from(before) * ENTRY as u64)?;
        Ok((Entry::read(&entry), entry))
    }

    /// The words of a task, which are those that were submitted.
    fn words(&self, task: Task) -> io::Result<Vec<u8>> {
        let before = task.0.checked_sub(1).ok_or_else(damaged)?;
        let (from, (entry, written)) = (self.entry(before)?.0.end, self.entry(task.0)?);
        let length = entry.end.checked_sub(from).filter(|length| *length <= MOST as u64);
        // Memory is taken for what is there alone.
        let is_there = entry.end <= self.tasks.metadata()?.len();
        let length = length.filter(|_| is_there).ok_or_else(damaged)?;
        let mut words = vec![0; usize::try_from(length).map_err(|_| damaged())?];
        self.tasks.read_exact_at(&mut words, from)?;
        let is_right = written[ENTRY - 8..] == check_of(&written[..ENTRY - 8], &words);
        is_right.then_some(words).ok_or_else(damaged)
    }

    /// What holds for all tasks that are known.
    ///
    /// # Errors
    /// Where that can't be read.
    pub fn limits(&self) -> Result<Vec<Limits>, FarmError> {
        let read = || -> io::Result<Vec<Limits>> {
            let mut all = vec![0; self.number as usize * ENTRY];
            self.index.read_exact_at(&mut all, 0)?;
            Ok(all.chunks_exact(ENTRY).map(|entry| Entry::read(entry).limits).collect())
        };
        read().map_err(FarmError::io("read", self.folder.join(INDEX)))
    }

    /// Takes note of the next task up to that one, which are durable; what holds for it. None: all of them are known.
    ///
    /// # Errors
    /// Where it can't be read.
    pub fn next(&mut self, last: Task) -> Result<Option<Limits>, FarmError> {
        if self.number >= last.0 {
            return Ok(None);
        }
        let read = self.words(Task(self.number + 1)).and_then(|_| self.entry(self.number + 1));
        let (entry, _) = read.map_err(FarmError::io("read", self.folder.join(INDEX)))?;
        self.number += 1;
        Ok(Some(entry.limits))
    }

    /// The last task that there is, which is durable then.
    ///
    /// # Errors
    /// Where that can't be told, or done.
    pub fn last(&self, gate: &Gate) -> Result<Task, FarmError> {
        let whole = self.whole().map_err(FarmError::io("read", self.folder.join(INDEX)))?;
        if whole > self.number {
            self.sync(gate)?;
        }
        Ok(Task(whole))
    }

    /// Makes durable what is there: whoever was about to may have been killed.
    ///
    /// # Errors
    /// Where that can't be done.
    pub fn sync(&self, _gate: &Gate) -> Result<(), FarmError> {
        let synced = self.tasks.sync_data().and_then(|()| self.index.sync_data());
        synced.map_err(FarmError::io("make durable", &self.folder))
    }

    /// A task as it was submitted.
    ///
    /// # Errors
    /// Where it can't be read.
    pub fn submission(&self, task: Task) -> io::Result<Submission> {
        let words = self.words(task)?;
        let name = Submission::name_of(&words)?;
        Submission::read(&words, &self.environment(name)?)
    }

    /// An environment by its name, which is its hash.
    fn environment(&self, name: &str) -> io::Result<Vec<u8>> {
        let path = self.folder.join(ENVIRONMENTS).join(name);
        let mut options = OpenOptions::new();
        // Whatever stands there, it is neither waited for nor followed.
        options.read(true).custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW);
        let file = options.open(path)?;
        let mut environment = Vec::new();
        if file.metadata()?.is_file() {
            file.take(MOST as u64 + 1).read_to_end(&mut environment)?;
        }
        let is_right = blake3::hash(&environment).to_hex().as_str() == name;
        is_right.then_some(environment).ok_or_else(damaged)
    }

    /// The words of a task, as they would be written for the shell.
    ///
    /// # Errors
    /// Where they can't be read.
    pub fn shown(&self, task: Task) -> io::Result<Vec<u8>> {
        self.words(task).map(|words| Submission::shown(&words))
    }

    fn add(&mut self, submission: &Submission, limits: Limits) -> Result<Task, FarmError> {
        let number = self.number + 1;
        let bad = |reason| FarmError::BadTask { number: number.into(), reason };
        let written =
            submission.write().ok_or_else(|| bad("its words or its environment exceed 2 MiB"))?;
        if number > MOST_TASKS {
            return Err(bad("a farm has 500,000 at most; '--farm NAME' begins another one"));
        }
        let failed = FarmError::io("write", &self.folder);
        let environment = self.folder.join(ENVIRONMENTS).join(&written.name);
        // One that is damaged is replaced.
        let is_known = self.environment(&written.name).is_ok();
        let (last, _) = self.entry(self.number).map_err(FarmError::io("read", &self.folder))?;
        let stored = written.task.len() + if is_known { 0 } else { written.environment.len() };
        let entry = Entry {
            end: last.end + written.task.len() as u64,
            limits,
            tries: last.tries + u64::from(limits.retries.unwrap_or(0)) + 1,
            bytes: last.bytes + stored as u64,
        };
        if entry.tries > MOST_TRIES || entry.bytes > MOST_BYTES {
            return Err(bad("the farm has no room for it; '--farm NAME' begins another one"));
        }
        let put = || -> io::Result<()> {
            match is_known {
                false => protocol::durable::replace(&environment, &written.environment)?,
                // Whoever has written it may have been killed before its name was durable.
                true => {
                    protocol::durable::sync_folder(&File::open(self.folder.join(ENVIRONMENTS))?)?
                }
            }
            self.tasks.set_len(last.end)?;
            self.index.set_len(u64::from(self.number) * ENTRY as u64)?;
            self.tasks.write_all_at(&written.task, last.end)?;
            self.tasks.sync_data()?;
            let at = u64::from(self.number) * ENTRY as u64;
            self.index.write_all_at(&entry.write(&written.task), at)?;
            let synced = self.index.sync_data();
            if synced.is_err() {
                // It is not told of, so it must not be there.
                self.index.set_len(at)?;
            }
            synced
        };
        put().map_err(failed)?;
        self.number = number;
        Ok(Task(number))
    }
}

/// Adds a task, durably; its number.
///
/// # Errors
/// Where that can't be done.
pub fn submit(folder: &Path, submission: &Submission, limits: Limits) -> Result<Task, FarmError> {
    let _gate = Gate::wait(folder)?;
    // With the gate, all that there are were told of, or are whole.
    Spool::open(folder)?.add(submission, limits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn submission(word: &str) -> Submission {
        let environment = vec![("A".into(), "b".into())];
        Submission { directory: "/".into(), words: vec![word.into()], environment }
    }

    #[test]
    fn tasks_are_added_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        Spool::create(dir.path()).unwrap();
        let mut spool = Spool::open(dir.path()).unwrap();
        let limits = Limits { timeout: Some(Duration::from_millis(1500)), retries: Some(3) };
        assert_eq!(submit(dir.path(), &submission("one"), limits).unwrap(), Task(1));
        assert_eq!(submit(dir.path(), &submission("two"), Limits::default()).unwrap(), Task(2));
        let gate = Gate::wait(dir.path()).unwrap();
        assert_eq!(spool.last(&gate).unwrap(), Task(2));
        assert_eq!(spool.next(Task(2)).unwrap(), Some(limits));
        assert_eq!(spool.next(Task(2)).unwrap(), Some(Limits::default()));
        assert_eq!(spool.next(Task(2)).unwrap(), None);
        let again = Spool::open(dir.path()).unwrap();
        assert_eq!(again.limits().unwrap(), [limits, Limits::default()]);
        assert_eq!(again.submission(Task(2)).unwrap(), submission("two"));
        assert_eq!(again.shown(Task(1)).unwrap(), b"one");
        assert!(again.submission(Task(0)).is_err() && again.submission(Task(3)).is_err());
        assert_eq!(fs::read_dir(dir.path().join(ENVIRONMENTS)).unwrap().count(), 1);
    }

    /// Whatever a loss of power leaves of the last one, it was not there; its number is the next one's.
    #[test]
    fn a_torn_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        Spool::create(dir.path()).unwrap();
        submit(dir.path(), &submission("one"), Limits::default()).unwrap();
        let (tasks, index) = (dir.path().join(WORDS), dir.path().join(INDEX));
        let before = (fs::read(&tasks).unwrap(), fs::read(&index).unwrap());
        submit(dir.path(), &submission("two"), Limits::default()).unwrap();
        let after = (fs::read(&tasks).unwrap(), fs::read(&index).unwrap());
        let mut zeros = after.0.clone();
        zeros[before.0.len()..].fill(0);
        let mut half = before.1.clone();
        half.resize(after.1.len(), 0);
        for (words, entries) in [
            (&after.0, &after.1[..after.1.len() - 1].to_vec()),
            (&before.0, &after.1),
            (&zeros, &after.1),
            (&after.0, &half),
        ] {
            fs::write(&tasks, words).unwrap();
            fs::write(&index, entries).unwrap();
            assert_eq!(Spool::count(dir.path()).unwrap(), 1);
            let task = submit(dir.path(), &submission("three"), Limits::default()).unwrap();
            assert_eq!(task, Task(2));
            let spool = Spool::open(dir.path()).unwrap();
            assert_eq!(spool.submission(task).unwrap(), submission("three"));
            assert_eq!(spool.submission(Task(1)).unwrap(), submission("one"));
        }
    }

    /// Only the last one can be torn: nothing is written over what was told of.
    #[test]
    fn damage_behind_the_last_one_is_told() {
        let dir = tempfile::tempdir().unwrap();
        Spool::create(dir.path()).unwrap();
        for word in ["one", "two", "three"] {
            submit(dir.path(), &submission(word), Limits::default()).unwrap();
        }
        let tasks = dir.path().join(WORDS);
        let before = fs::read(&tasks).unwrap();
        let cut = before.len() - b"three\0".len() - 1;
        fs::write(&tasks, &before[..cut]).unwrap();
        assert_eq!(Spool::count(dir.path()).unwrap(), 2);
        fs::write(&tasks, &before[..before.len() / 2]).unwrap();
        assert!(submit(dir.path(), &submission("four"), Limits::default()).is_err());
        fs::write(&tasks, &before).unwrap();
        assert_eq!(Spool::count(dir.path()).unwrap(), 3);
    }

    /// Neither a pipe nor another file takes the place of an environment; the next one that has it mends that.
    #[test]
    fn a_damaged_environment_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        Spool::create(dir.path()).unwrap();
        submit(dir.path(), &submission("one"), Limits::default()).unwrap();
        let folder = dir.path().join(ENVIRONMENTS);
        let only = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        fs::remove_file(&only).unwrap();
        nix::unistd::mkfifo(&only, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        assert!(spool.submission(Task(1)).is_err());
        submit(dir.path(), &submission("two"), Limits::default()).unwrap();
        assert_eq!(spool.submission(Task(1)).unwrap(), submission("one"));
    }
}
