//! What has ended: the journal, by which a run goes on, and results.jsonl, which is for the user.
//!
//! A line is in the journal before it is among the results, and results are made of the journal when a run goes on: a task
//! is in each of them once. Lines are written at once, and made durable once a second, which a busy disk may take its time for: a
//! kill loses nothing, a loss of power what the last seconds have brought.

use super::FarmError;
use super::limits::{LONGEST_LINE, MOST_ENDS};
use super::line::Line;
use super::results::{line_of, words};
use super::syncing::{NotSynced, Synced, Syncing};
use super::tasks::Tasks;
use ckptd_farm::{Entry, Task, Try, Verdict};
use coordinator::Journal;
use coordinator::log::LogError;
use protocol::durable::remove_if_there;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file of results.
pub const RESULTS: &str = "results.jsonl";
/// The version of the journal that this build writes.
const FORMAT: u32 = 1;
/// How long what is written may not be durable.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// Refuses so many tries that their ends have no room.
///
/// # Errors
/// [`FarmError::TooManyTries`].
pub fn check_tries(tasks: u32, retries: u32) -> Result<(), FarmError> {
    let most = (MOST_ENDS / u64::from(tasks).max(1)).saturating_sub(1);
    match u64::from(retries) > most {
        true => Err(FarmError::TooManyTries { tasks, most }),
        false => Ok(()),
    }
}

/// How many tasks of a run have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// With status 0.
    pub right: u32,
    /// Otherwise.
    pub failed: u32,
    /// Those that are not run since one of these has failed.
    pub skipped: u32,
}

/// Refuses a folder that has another run's results.
///
/// # Errors
/// [`FarmError::OtherResults`].
pub fn check_results(results: Option<&Path>) -> Result<(), FarmError> {
    match results.filter(|results| results.join(RESULTS).exists()) {
        Some(results) => Err(FarmError::OtherResults(results.to_owned())),
        None => Ok(()),
    }
}

/// Reads a journal without changing it, line by line.
///
/// # Errors
/// Where it can't be read.
pub fn each(path: &Path, mut take: impl FnMut(Line)) -> Result<(), FarmError> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text.map_err(FarmError::io("read", path))?,
    };
    // The last line may be being written; whoever goes on with the run checks them all.
    text.lines().filter_map(parse).for_each(&mut take);
    Ok(())
}

/// A line of a journal, without looking at its checksum.
pub fn parse(line: &str) -> Option<Line> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    protocol::json::of_value::<Line>(line.get("log")?).ok()
}

/// How many tasks have ended by a journal.
///
/// # Errors
/// Where it can't be read.
pub fn read(path: &Path) -> Result<Standing, FarmError> {
    // A line that may not be durable is written once more.
    let (mut right, mut failed, mut skipped) = (HashSet::new(), HashSet::new(), HashSet::new());
    each(path, |line| match line {
        Line::Ended { entry: Entry::Ended(tried), .. } => match tried.verdict.is_right() {
            true => _ = right.insert(tried.task),
            false => _ = failed.insert(tried.task),
        },
        Line::Ended { entry: Entry::Skipped { task, .. }, .. } => _ = skipped.insert(task),
        Line::Ended { entry: Entry::Reopened, .. } => {
            failed.clear();
            skipped.clear();
        }
        Line::Ended { entry: Entry::Retried { task }, .. } => _ = failed.remove(&task),
        Line::Ended { entry: Entry::Failed(_), .. } | Line::Opened { .. } | Line::Part { .. } => {}
    })?;
    // In range: there are no more tasks than a run may have.
    let number = |tasks: HashSet<Task>| tasks.len() as u32;
    let standing =
        Standing { right: number(right), failed: number(failed), skipped: number(skipped) };
    Ok(standing)
}

/// Has all tasks tried again that have failed, of so many, with those that were skipped for that. The caller holds the run's
/// lock.
///
/// # Errors
/// Where that can't be recorded.
pub fn reopen(path: &Path, tasks: u32, retries: u32) -> Result<(), FarmError> {
    if !path.exists() {
        return Ok(());
    }
    let length = fs::metadata(path).map_err(FarmError::io("read", path))?.len();
    let right = read(path)?.right;
    let lines = u64::from(tasks.saturating_sub(right)) * (u64::from(retries) + 1);
    if length + lines * LONGEST_LINE > coordinator::MAX_LOG {
        let reason = "it has no room for so many more tries; take a new run for what is left";
        return Err(FarmError::Journal { path: path.to_owned(), reason: reason.to_owned() });
    }
    let (mut journal, _) = open_journal(path, &Line::Opened { format: FORMAT, tasks })?;
    let line = Line::Ended { at_ms: crate::text::now_ms(), entry: Entry::Reopened };
    let written = journal.write_alone(&line).and_then(|()| journal.sync());
    written.map_err(of_log(path))
}

/// The journal and the results of a run, by the process that runs it.
pub struct Recorder {
    path: PathBuf,
    journal: Journal<Line>,
    opened: Line,
    results: File,
    results_length: u64,
    /// The folder of what tasks have written.
    folder: PathBuf,
    /// Where tasks of a workflow write their files.
    working: Option<PathBuf>,
    /// What is not durable yet.
    pending: VecDeque<Line>,
    /// How many of them are in the journal.
    written: usize,
    /// How many of them are among the results.
    listed: usize,
    /// How many entries were given to it.
    recorded: u64,
    /// Whether some are being made durable.
    is_syncing: bool,
    synced_at: Instant,
}

impl Recorder {
    /// Opens the journal, or makes it; the entries of a run that goes on. Results are put in order by them. `slots`: how many
    /// tasks run at a time from now on; 0: none does.
    ///
    /// # Errors
    /// Where something can't be read or written.
    pub fn open(
        path: &Path,
        results: &Path,
        number: u32,
        tasks: &Tasks,
        slots: u32,
    ) -> Result<(Self, Vec<Entry>), FarmError> {
        let opened = Line::Opened { format: FORMAT, tasks: number };
        let is_new = !path.exists();
        let results_file = results.join(RESULTS);
        if is_new {
            check_results(Some(results))?;
        }
        let (mut journal, lines) = open_journal(path, &opened)?;
        match lines.first() {
            Some(Line::Opened { format: FORMAT, tasks }) if *tasks == number => {}
            _ => {
                let reason = "it is of another run, or of another version of ckptd".to_owned();
                return Err(FarmError::Journal { path: path.to_owned(), reason });
            }
        }
        let (file, length) = list_all(&results_file, &lines, tasks)
            .map_err(FarmError::io("write", &results_file))?;
        let entries = lines.iter().filter_map(|line| match line {
            Line::Opened { .. } | Line::Part { .. } => None,
            Line::Ended { entry, .. } => Some(*entry),
        });
        let entries: Vec<Entry> = entries.collect();
        let last = entries.iter().filter_map(Entry::task).max();
        if let (Some(known), Some(last)) = (tasks.submitted(), last) {
            if last.0 > known {
                // Whoever took its number would be taken for ended.
                let last = last.0;
                let reason = format!(
                    "it tells of task {last}, and of {known} is known what they are: the farm is damaged"
                );
                return Err(FarmError::Journal { path: path.to_owned(), reason });
            }
        }
        if slots > 0 {
            // Without it a report knows less; whether a disk is full shows at the first end.
            let _ = journal.write_alone(&Line::Part { at_ms: crate::text::now_ms(), slots });
        }
        let recorder = Self {
            path: path.to_owned(),
            journal,
            opened,
            results: file,
            results_length: length,
            folder: results.to_owned(),
            working: None,
            pending: VecDeque::new(),
            written: 0,
            listed: 0,
            recorded: 0,
            is_syncing: false,
            synced_at: Instant::now(),
        };
        Ok((recorder, entries))
    }

    /// Has made durable what tasks write in that folder, too, before their ends are.
    pub fn writes_in(&mut self, working: &Path) {
        self.working = Some(working.to_owned());
    }

    /// Whether a task can be run again: its ends have to fit, and those of all that were submitted, for which half of it is.
    pub fn has_room_for_retry(&self) -> bool {
        const OF_A_RETRY: u64 = 1024 * LONGEST_LINE;
        let length = fs::metadata(&self.path).map_or(u64::MAX, |found| found.len());
        length.saturating_add(OF_A_RETRY) <= coordinator::MAX_LOG / 2
    }

    /// Records an entry.
    ///
    /// # Errors
    /// Where it can't be written now: [`Recorder::retry`] tries it again.
    pub fn record(&mut self, entry: Entry, tasks: &Tasks) -> Result<(), FarmError> {
        self.recorded += 1;
        self.pending.push_back(Line::Ended { at_ms: crate::text::now_ms(), entry });
        self.write(tasks)
    }

    fn write(&mut self, tasks: &Tasks) -> Result<(), FarmError> {
        while let Some(line) = self.pending.get(self.written) {
            let written = self.journal.write_alone(line);
            if let Err(error) = written {
                // Those before it stay: their ends are told already.
                return Err(of_log(&self.path)(error));
            }
            self.written += 1;
        }
        while let Some(line) = self.pending.get(self.listed) {
            let text = line_of(line, tasks);
            if let Err(error) = self.results.write_all(text.as_bytes()) {
                // Half a line is none.
                let _ = self.results.set_len(self.results_length);
                return Err(FarmError::io("write", RESULTS)(error));
            }
            self.results_length += text.len() as u64;
            self.listed += 1;
        }
        Ok(())
    }

    /// How many entries were recorded, of which as many may not be durable as [`Recorder::durable`] is less than that.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// So many of the first entries are durable.
    pub fn durable(&self) -> u64 {
        self.recorded.saturating_sub(self.pending.len() as u64)
    }

    /// Writes what could not be written. Nothing is being made durable meanwhile.
    ///
    /// # Errors
    /// Where it still can't.
    pub fn retry(&mut self, tasks: &Tasks) -> Result<(), FarmError> {
        if self.journal.is_poisoned() {
            self.journal = open_journal(&self.path, &self.opened)?.0;
        }
        self.write(tasks)?;
        self.sync()
    }

    /// When it has to be made durable, if there is something, and nobody does that yet.
    pub fn due(&self) -> Option<Instant> {
        (!self.pending.is_empty() && !self.is_syncing).then_some(self.synced_at + SYNC_EVERY)
    }

    /// What is to be made durable now; [`Recorder::synced`] is to be told how that went.
    ///
    /// # Errors
    /// Where a file can't be opened once more.
    pub fn begin_sync(&mut self) -> Result<Syncing, FarmError> {
        let lines = self.written.min(self.listed);
        let ended = self.pending.iter().take(lines).filter_map(|line| match line {
            Line::Ended { entry: Entry::Ended(tried), .. } => Some(tried.task),
            Line::Ended { .. } | Line::Opened { .. } | Line::Part { .. } => None,
        });
        let ended = ended.collect();
        let results = self.results.try_clone().map_err(FarmError::io("open", RESULTS))?;
        self.is_syncing = true;
        let (folder, working) = (self.folder.clone(), self.working.clone());
        Ok(Syncing { folder, working, ended, results, journal: self.journal.to_sync(), lines })
    }

    /// Nobody makes durable what was to be.
    pub fn not_synced(&mut self) {
        self.is_syncing = false;
    }

    /// How making durable went.
    ///
    /// # Errors
    /// Where it did not.
    pub fn synced(&mut self, synced: Synced) -> Result<(), FarmError> {
        self.is_syncing = false;
        self.synced_at = Instant::now();
        match synced.result {
            Ok(()) => {}
            Err(NotSynced::Outputs(error)) => return Err(error),
            Err(NotSynced::Journal(error)) => {
                self.written = 0;
                return Err(of_log(&self.path)(self.journal.lost(error)));
            }
        }
        self.journal.durable(synced.bytes);
        self.pending.drain(..synced.lines.min(self.pending.len()));
        self.written = self.written.saturating_sub(synced.lines);
        self.listed = self.listed.saturating_sub(synced.lines);
        Ok(())
    }

    /// Makes durable what was written. Nobody else is doing that.
    ///
    /// # Errors
    /// Where that fails.
    pub fn sync(&mut self) -> Result<(), FarmError> {
        let synced = self.begin_sync()?.perform();
        self.synced(synced)
    }
}

fn open_journal(path: &Path, opened: &Line) -> Result<(Journal<Line>, Vec<Line>), FarmError> {
    Journal::open(path, opened.clone()).map_err(of_log(path))
}

/// The errors of a journal are in the words of the coordinator's.
fn of_log(path: &Path) -> impl FnOnce(LogError) -> FarmError {
    let path = path.to_owned();
    move |error| match error {
        LogError::Io { action, path, source } => FarmError::Io { action, path, source },
        LogError::Damaged { line } => {
            FarmError::Journal { path, reason: format!("line {line} is damaged") }
        }
        LogError::Unknown { line } => {
            let reason = format!("line {line} was written by another version of ckptd: use that");
            FarmError::Journal { path, reason }
        }
        other => FarmError::Journal { path, reason: other.to_string() },
    }
}

/// Writes the results of all tasks that have ended, each once, in the place of what is there; the file for more of them.
fn list_all(path: &Path, lines: &[Line], tasks: &Tasks) -> io::Result<(File, u64)> {
    let draft = protocol::durable::draft_of(path);
    // Others may write in the folder: what they have put there is not followed.
    remove_if_there(&draft)?;
    let file = File::options().append(true).create_new(true).mode(0o600).open(&draft)?;
    let mut writer = BufWriter::new(file);
    let mut length = 0;
    for line in ends(lines) {
        let text = line_of(line, tasks);
        writer.write_all(text.as_bytes())?;
        length += text.len() as u64;
    }
    let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_data()?;
    fs::rename(&draft, path)?;
    if let Some(folder) = path.parent() {
        protocol::durable::sync_folder(&File::open(folder)?)?;
    }
    Ok((file, length))
}

/// The lines of ends that hold: the first one of each task, since it was tried again if it was.
fn ends(lines: &[Line]) -> Vec<&Line> {
    let mut places: HashMap<Task, usize> = HashMap::new();
    let mut found: Vec<Option<(Task, bool, &Line)>> = Vec::new();
    for line in lines {
        let Line::Ended { entry, .. } = line else { continue };
        let (task, is_right) = match entry {
            Entry::Ended(tried) => (tried.task, tried.verdict.is_right()),
            Entry::Skipped { task, .. } => (*task, false),
            Entry::Failed(_) => continue,
            Entry::Reopened => {
                found.retain(|end| matches!(end, Some((_, true, _))));
                let kept = found.iter().flatten().zip(0..);
                places = kept.map(|((task, ..), place)| (*task, place)).collect();
                continue;
            }
            Entry::Retried { task } => {
                let is_wrong = |place: &usize| !matches!(found[*place], Some((_, true, _)));
                if let Some(place) = places.get(task).copied().filter(is_wrong) {
                    found[place] = None;
                    places.remove(task);
                }
                continue;
            }
        };
        places.entry(task).or_insert_with(|| {
            found.push(Some((task, is_right, line)));
            found.len() - 1
        });
    }
    found.into_iter().flatten().map(|(.., line)| line).collect()
}

/// Names of tasks that have failed, with how, as far as a person reads on.
#[derive(Debug, Default)]
pub struct Failed {
    first: BTreeMap<Task, Verdict>,
}

impl Failed {
    /// The most that are named.
    const MOST: usize = 10;

    /// One more.
    pub fn add(&mut self, tried: &Try) {
        if self.first.len() < Self::MOST {
            self.first.insert(tried.task, tried.verdict);
        }
    }

    /// A line for each.
    pub fn lines<'a>(&'a self, tasks: &'a Tasks) -> impl Iterator<Item = String> + 'a {
        self.first.iter().map(|(task, verdict)| {
            let how = words(*verdict);
            let command = tasks.command(*task).unwrap_or_default();
            let command: String = String::from_utf8_lossy(&command).chars().take(60).collect();
            format!("task {} {how}: {}", task.0, crate::tables::printable(&command))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a task that was run again the last end counts; that of one that has ended right stays.
    #[test]
    fn what_was_run_again_ends_once() {
        let end = |task, attempt, verdict| {
            let tried = Try { task: Task(task), attempt, verdict, took_ms: 0, restored: false };
            Line::Ended { at_ms: 0, entry: Entry::Ended(tried) }
        };
        let retried = |task| Line::Ended { at_ms: 0, entry: Entry::Retried { task: Task(task) } };
        let lines = [
            end(1, 1, Verdict::Exited(1)),
            end(2, 1, Verdict::Exited(0)),
            end(3, 0, Verdict::Cancelled),
            retried(1),
            retried(2),
            end(1, 2, Verdict::Exited(0)),
            retried(3),
        ];
        assert_eq!(ends(&lines), [&lines[1], &lines[5]]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let opened = Line::Opened { format: FORMAT, tasks: 0 };
        let (mut journal, _) = open_journal(&path, &opened).unwrap();
        for line in &lines {
            journal.append(line).unwrap();
        }
        assert_eq!(read(&path).unwrap(), Standing { right: 2, failed: 0, skipped: 0 });
    }

    #[test]
    fn the_ends_of_all_tries_have_room() {
        let tried = Try {
            task: Task(500_000),
            attempt: 1_400_000,
            verdict: Verdict::Signalled(64),
            took_ms: 365 * 24 * 3600 * 1000,
            restored: false,
        };
        let line = Line::Ended { at_ms: 99_999_999_999_999, entry: Entry::Failed(tried) };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = open_journal(&path, &line).unwrap();
        let one = journal.length();
        journal.append(&line).unwrap();
        assert!(journal.length() - one <= LONGEST_LINE, "{one}");
        assert!(check_tries(500_000, 1).is_ok() && check_tries(0, u32::MAX).is_err());
        let refused = check_tries(500_000, 2).unwrap_err().to_string();
        assert!(refused.contains("at most 1 retries each"), "{refused}");
    }
}
