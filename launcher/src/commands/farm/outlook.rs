//! Whether what somebody waits for can come.

use crate::farm::{FarmError, FarmFolder, Stuck};
use ckptd_farm::Task;
use std::collections::BTreeSet;

/// What would make it vain to wait.
#[derive(Debug)]
pub struct Outlook {
    folder: FarmFolder,
    /// Which folder it was: another one of that name has other tasks.
    was: Option<(u64, u64)>,
    stuck: Stuck,
}

impl Outlook {
    /// Of tasks of that farm.
    pub fn of(folder: &FarmFolder) -> Self {
        Self { folder: folder.clone(), was: folder.identity(), stuck: Stuck::of(folder) }
    }

    /// To be called at each look; `left` names what has not ended.
    ///
    /// # Errors
    /// Where the farm was removed, or its notes can't be read.
    pub fn look(&mut self, left: impl FnOnce() -> String) -> Result<(), FarmError> {
        if self.was.is_none() || self.folder.identity() != self.was {
            let name = self.folder.name().to_owned();
            return Err(FarmError::Removed { name, left: left() });
        }
        self.stuck.read()
    }

    /// Whether a task can't be brought back.
    pub fn is_stuck(&self, task: Task) -> bool {
        self.stuck.why(task).is_some()
    }

    /// Why not, if so.
    pub fn why(&self, task: Task) -> Option<&str> {
        self.stuck.why(task)
    }

    /// Those of these that can't be brought back.
    pub fn among<'a>(&'a self, tasks: &'a BTreeSet<Task>) -> impl Iterator<Item = Task> + 'a {
        self.stuck.tasks().filter(|task| tasks.contains(task))
    }

    /// Whether none of these can.
    pub fn are_stuck(&self, tasks: &BTreeSet<Task>) -> bool {
        self.among(tasks).count() == tasks.len()
    }

    /// What to tell whoever waits for a task that can't; `left` names all of them.
    pub fn failure(&self, task: Task, left: String) -> FarmError {
        FarmError::Stuck {
            name: self.folder.name().to_owned(),
            left,
            task: task.0,
            reason: self.why(task).unwrap_or("nobody has told why").to_owned(),
        }
    }
}
