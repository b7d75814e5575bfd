//! What is kept of a workflow beside its commands: a line of JSON for each task, in the run's folder.

use super::place;
use crate::farm::FarmError;
use ckptd_farm::{Graph, Order, Plan, Task};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The file's name.
pub const STEPS: &str = "steps";

/// A task of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Its id in the workflow.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The numbers of those that it waits for.
    pub parents: Vec<u32>,
    /// The files that it writes, in the working directory.
    pub outputs: Vec<String>,
}

impl Step {
    /// What kind of task it is: its name without a number at the end, as recorded runs have it (`mAdd_ID0000018`).
    pub fn kind(&self) -> &str {
        let joined = ['_', '-', '.', '#', ' '];
        let stem = self.name.trim_end_matches(|c: char| c.is_ascii_digit());
        let stem = match stem.len() < self.name.len() {
            true => stem.strip_suffix("ID").filter(|stem| stem.ends_with(joined)).unwrap_or(stem),
            false => stem,
        };
        match stem.trim_end_matches(joined) {
            "" => &self.name,
            kind => kind,
        }
    }

    /// The first of its files that is not there.
    pub fn missing(&self, folder: &Path) -> Option<&str> {
        let is_missing = |file: &&String| !place::is_there(folder, file);
        self.outputs.iter().find(is_missing).map(String::as_str)
    }

    /// Removes the files that it writes. A folder stays as it is.
    ///
    /// # Errors
    /// Which one can't be removed, and why.
    pub fn remove_outputs(&self, folder: &Path) -> Result<(), (String, io::Error)> {
        let mut failed = Ok(());
        for file in &self.outputs {
            // All others are removed all the same.
            if let Err(error) = place::remove(folder, file) {
                failed = Err((file.clone(), error));
            }
        }
        failed
    }
}

/// Writes the file into the folder of a run that is being made.
///
/// # Errors
/// Where it can't be written.
pub fn write(folder: &Path, steps: &[Step]) -> Result<(), FarmError> {
    let path = folder.join(STEPS);
    let write = || -> io::Result<()> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        let mut file = BufWriter::new(file);
        for step in steps {
            serde_json::to_writer(&mut file, step)?;
            file.write_all(b"\n")?;
        }
        file.flush()?;
        file.get_ref().sync_all()
    };
    write().map_err(FarmError::io("write", &path))
}

/// The tasks of a workflow, on the disk; where each begins is in memory.
#[derive(Debug)]
pub struct Steps {
    file: File,
    /// Where each begins, and where the last one ends.
    places: Vec<u64>,
    /// The one that was last the reason why another is skipped, which is the same for all that wait for it.
    reason: Mutex<Option<(Task, String)>>,
}

impl Steps {
    /// Opens the file of so many; and what it says of the order of tasks.
    ///
    /// # Errors
    /// Where it can't be read, or is damaged.
    pub fn open(path: &Path, number: u32, order: Order) -> Result<(Self, Plan), FarmError> {
        let read = || -> io::Result<(Self, Plan)> {
            let file = File::open(path)?;
            let (mut places, mut at) = (vec![0], 0);
            let mut edges = Vec::new();
            let (mut kinds, mut known) = (vec![0], HashMap::new());
            let mut reader = BufReader::with_capacity(1 << 16, &file);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line)? > 0 {
                let step: Step = protocol::json::read(line.trim_ascii_end())?;
                let task = Task(places.len() as u32);
                edges.extend(step.parents.iter().map(|parent| (Task(*parent), task)));
                let next = known.len() as u32;
                kinds.push(*known.entry(step.kind().to_owned()).or_insert(next));
                at += line.len() as u64;
                places.push(at);
                line.clear();
            }
            if places.len() as u64 != u64::from(number) + 1 {
                return Err(io::Error::other(format!("it has not {number} tasks")));
            }
            let graph = Graph::new(number, edges).map_err(io::Error::other)?;
            Ok((Self { file, places, reason: Mutex::default() }, Plan { graph, kinds, order }))
        };
        read().map_err(FarmError::io("read", path))
    }

    /// The id of a task for which others are skipped.
    ///
    /// # Errors
    /// Where it can't be read.
    pub fn reason(&self, task: Task) -> io::Result<String> {
        let mut reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        match &*reason {
            Some((last, id)) if *last == task => Ok(id.clone()),
            _ => {
                let id = self.step(task)?.id;
                *reason = Some((task, id.clone()));
                Ok(id)
            }
        }
    }

    /// A task.
    ///
    /// # Errors
    /// Where it can't be read.
    pub fn step(&self, task: Task) -> io::Result<Step> {
        let place = |index: usize| self.places.get(index).copied();
        let index = task.0 as usize;
        let (Some(from), Some(to)) = (index.checked_sub(1).and_then(place), place(index)) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut line = vec![0; (to - from) as usize];
        self.file.read_exact_at(&mut line, from)?;
        Ok(protocol::json::read(line.trim_ascii_end())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn step(name: &str, parents: &[u32], outputs: &[&str]) -> Step {
        let outputs = outputs.iter().map(|file| (*file).to_owned()).collect();
        Step { id: format!("{name} id"), name: name.into(), parents: parents.to_vec(), outputs }
    }

    #[test]
    fn kinds_are_names_without_numbers() {
        for (name, kind) in [
            ("mProject_ID0000001", "mProject"),
            ("cpuhog_forkjoin_00000010", "cpuhog_forkjoin"),
            ("mAdd", "mAdd"),
            ("bwa-7", "bwa"),
            ("step2", "step"),
            ("GRID", "GRID"),
            ("17", "17"),
            ("_1", "_1"),
        ] {
            assert_eq!(step(name, &[], &[]).kind(), kind);
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let all =
            [step("a_1", &[], &["x", "y"]), step("a_2", &[], &[]), step("b", &[1, 2], &["z"])];
        write(dir.path(), &all).unwrap();
        let path = dir.path().join(STEPS);
        let (steps, plan) = Steps::open(&path, 3, Order::Fifo).unwrap();
        let read: Vec<Step> = (1..=3).map(|task| steps.step(Task(task)).unwrap()).collect();
        assert_eq!(read, all);
        assert!(steps.step(Task(0)).is_err() && steps.step(Task(4)).is_err());
        assert_eq!((plan.kinds, plan.graph.parents(Task(3))), (vec![0, 0, 0, 1], 2));
        assert!(Steps::open(&path, 4, Order::Fifo).is_err());
    }

    #[test]
    fn outputs_are_removed_and_missed() {
        let dir = tempfile::tempdir().unwrap();
        let step = step("a", &[], &["x", "d", "d/y"]);
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("x"), "").unwrap();
        assert_eq!(step.missing(dir.path()), Some("d/y"));
        fs::write(dir.path().join("d/y"), "").unwrap();
        assert_eq!(step.missing(dir.path()), None);
        step.remove_outputs(dir.path()).unwrap();
        assert_eq!(step.missing(dir.path()), Some("x"));
        assert!(dir.path().join("d").exists());
    }
}
