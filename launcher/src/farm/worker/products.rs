//! What tasks of a workflow write: files by their own paths, whose names the workflow tells.
//!
//! A program that writes by its own path can't be made to write elsewhere: a file that is being written is seen, as with
//! make. What is held instead: a file that a task has written is left where it ends right, and removed where it fails or is
//! begun anew. Files of its outputs that are there before it begins are removed, too: after a kill of everything nobody
//! knows which of them a task had changed, and one from before would be taken for what it has written. Nobody within the
//! workflow sees one that is not complete, since what reads it begins after that.

use super::Worker;
use crate::farm::workflow::{Step, shown};
use ckptd_farm::{Entry, Found, How, Task, What};

impl Worker {
    fn step(&self, task: Task) -> Option<Step> {
        self.tasks.step(task)?.ok()
    }

    /// Removes what is there of a task's files before it begins.
    ///
    /// # Errors
    /// Why that can't be done, in words.
    pub(super) fn make_way(&self, task: Task) -> Result<(), String> {
        let Some(step) = self.step(task) else { return Ok(()) };
        let removed = step.remove_outputs(&self.folder.record().working_directory);
        removed.map_err(|(file, error)| format!("the file {file} can't be removed: {error}"))
    }

    /// How a task has ended, with what it has written in mind.
    pub(super) fn judged(&mut self, task: Task, how: How) -> How {
        if how != How::Exited(0) {
            return how;
        }
        let Some(step) = self.step(task) else { return how };
        match step.missing(&self.folder.record().working_directory) {
            None => how,
            Some(file) => {
                let id = shown(&step.id);
                self.progress.warn(&format!(
                    "task {} ({id}) has ended without its file {}",
                    task.0,
                    shown(file)
                ));
                How::NoOutput
            }
        }
    }

    /// Removes what a task has written that has failed.
    pub(super) fn tidy(&mut self, entry: &Entry) {
        let (Entry::Failed(tried) | Entry::Ended(tried)) = entry else { return };
        if tried.verdict.is_right() {
            return;
        }
        if let Err(reason) = self.make_way(tried.task) {
            self.progress.warn(&format!("task {} has failed, and {reason}", tried.task.0));
        }
    }
}

/// What was found of tasks when a run goes on: an end with status 0 that nobody has recorded is none without the files.
pub fn with_outputs(
    found: Vec<Found>,
    step: impl Fn(Task) -> Option<Step>,
    folder: &std::path::Path,
) -> Vec<Found> {
    let judged = |found: Found| {
        let is_missing = || step(found.task).is_some_and(|step| step.missing(folder).is_some());
        match found.what {
            What::End(0) if is_missing() => Found { what: What::Nothing, ..found },
            _ => found,
        }
    };
    found.into_iter().map(judged).collect()
}
