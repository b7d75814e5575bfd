//! Tasks that could not be brought back from their checkpoints, and why: for whoever waits for them. The worker notes them,
//! and each worker that begins tries all of them again.

use crate::farm::{FarmError, FarmFolder};
use ckptd_farm::Task;
use protocol::durable::remove_if_there;
use protocol::text;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

/// The file with them, in the farm's folder: a line of JSON for each, of which the last one about a task counts.
const STUCK: &str = "stuck";
/// The most that is read of it, in bytes.
const MOST: u64 = 64 << 20;
/// The longest reason, in bytes.
const MOST_SAID: usize = 1000;

/// A line of it.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    task: u32,
    /// Why; None: it is so no more.
    reason: Option<String>,
}

/// Notes that none is: all are tried again.
///
/// # Errors
/// Where the notes can't be removed.
pub fn forget_stuck(folder: &FarmFolder) -> Result<(), FarmError> {
    let path = folder.path().join(STUCK);
    remove_if_there(&path).map_err(FarmError::io("remove", path))
}

/// Notes that a task is, and why.
///
/// # Errors
/// Where that can't be written.
pub fn note_stuck(folder: &FarmFolder, task: Task, reason: &str) -> Result<(), FarmError> {
    let reason = text::cut(reason, MOST_SAID).to_owned();
    add(folder, Note { task: task.0, reason: Some(reason) })
}

/// Notes that a task is no more.
///
/// # Errors
/// Where that can't be written.
pub fn note_loose(folder: &FarmFolder, task: Task) -> Result<(), FarmError> {
    match folder.path().join(STUCK).exists() {
        true => add(folder, Note { task: task.0, reason: None }),
        false => Ok(()),
    }
}

fn add(folder: &FarmFolder, note: Note) -> Result<(), FarmError> {
    let path = folder.path().join(STUCK);
    let write = || -> io::Result<()> {
        // What was torn before it stays alone.
        let line = format!("\n{}\n", serde_json::to_string(&note).map_err(io::Error::other)?);
        File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)?
            .write_all(line.as_bytes())
    };
    write().map_err(FarmError::io("write", &path))
}

/// Those that are.
#[derive(Debug)]
pub struct Stuck {
    path: PathBuf,
    /// What was read last: which file, how long it was, and when it was changed.
    seen: Option<(u64, u64, i64)>,
    reasons: BTreeMap<Task, String>,
}

impl Stuck {
    /// Of that farm, where nothing was read.
    pub fn of(folder: &FarmFolder) -> Self {
        Self { path: folder.path().join(STUCK), seen: None, reasons: BTreeMap::new() }
    }

    /// Reads what there is.
    ///
    /// # Errors
    /// Where that can't be read.
    pub fn read(&mut self) -> Result<(), FarmError> {
        self.take().map_err(FarmError::io("read", &self.path))
    }

    fn take(&mut self) -> io::Result<()> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (self.seen, self.reasons) = (None, BTreeMap::new());
                return Ok(());
            }
            file => file?,
        };
        let found = file.metadata()?;
        let now = Some((found.ino(), found.len(), found.mtime_nsec()));
        if self.seen == now {
            return Ok(());
        }
        let mut text = Vec::new();
        file.take(MOST).read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        self.reasons.clear();
        // One that was torn by a full disk, or is being written, says nothing.
        for note in text.lines().filter_map(|line| serde_json::from_str::<Note>(line).ok()) {
            match note.reason {
                Some(reason) => self.reasons.insert(Task(note.task), reason),
                None => self.reasons.remove(&Task(note.task)),
            };
        }
        self.seen = now;
        Ok(())
    }

    /// All of them.
    pub fn tasks(&self) -> impl Iterator<Item = Task> + '_ {
        self.reasons.keys().copied()
    }

    /// Why a task is; None: it is not.
    pub fn why(&self, task: Task) -> Option<&str> {
        self.reasons.get(&task).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::farm::{Draft, Open};
    use crate::jobs::StateDir;
    use std::time::Duration;

    #[test]
    fn the_last_note_of_a_task_counts() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::find(Some(dir.path().to_owned())).unwrap();
        let draft = Draft::new(&state, Some("f"), "f").unwrap();
        let open = Open { idle: Duration::from_secs(1) };
        let folder = draft.complete_open(Default::default(), open).unwrap();
        let mut stuck = Stuck::of(&folder);
        let mut why = |task| {
            stuck.read().unwrap();
            stuck.why(Task(task)).map(str::to_owned)
        };
        assert_eq!(why(1), None);
        note_loose(&folder, Task(1)).unwrap();
        assert!(!folder.path().join(STUCK).exists());
        note_stuck(&folder, Task(1), "a \"file\"\nhas changed").unwrap();
        note_stuck(&folder, Task(2), &"é".repeat(MOST_SAID)).unwrap();
        assert_eq!(why(1).as_deref(), Some("a \"file\"\nhas changed"));
        assert_eq!(why(2).map(|why| why.len()), Some(MOST_SAID));
        let mut file = File::options().append(true).open(folder.path().join(STUCK)).unwrap();
        file.write_all(b"{\"task\":7,\"reason\":\"\xc3").unwrap();
        note_loose(&folder, Task(1)).unwrap();
        assert_eq!((why(1), why(3), why(7)), (None, None, None));
        assert!(why(2).is_some());
        forget_stuck(&folder).unwrap();
        assert_eq!(why(2), None);
        forget_stuck(&folder).unwrap();
    }
}
