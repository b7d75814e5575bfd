//! What tasks of a workflow write: files by their own paths, whose names the workflow tells.
//!
//! A program that writes by its own path can't be made to write elsewhere: a file that is being written is seen, as with
//! make. What is held instead: a file that a task has written is left where it ends right, and removed where it fails or is
//! begun anew. Files of its outputs that are there before it begins are removed, too: after a kill of everything nobody
//! knows which of them a task had changed, and one from before would be taken for what it has written. Nobody within the
//! workflow sees one that is not complete, since what reads it begins after that.

use super::{Role, Worker};
use crate::farm::tasks::Tasks;
use crate::farm::workflow::shown;
use ckptd_farm::{Entry, How, Task};
use std::path::Path;

impl Worker {
    /// Removes what is there of a task's files before it begins.
    ///
    /// # Errors
    /// Why that can't be done, in words.
    pub(super) fn make_way(&self, task: Task) -> Result<(), String> {
        let step = match self.tasks.step(task) {
            None => return Ok(()),
            Some(step) => step.map_err(|error| format!("the workflow can't be read: {error}"))?,
        };
        let removed = step.remove_outputs(&self.folder.record().working_directory);
        removed
            .map_err(|(file, error)| format!("the file {} can't be removed: {error}", shown(&file)))
    }

    /// How a task has ended, with what it has written in mind.
    pub(super) fn judged(&mut self, task: Task, how: How) -> How {
        if how != How::Exited(0) {
            return how;
        }
        let without = match self.tasks.step(task) {
            None => return how,
            Some(Ok(step)) => match step.missing(&self.folder.record().working_directory) {
                None => return how,
                Some(file) => {
                    format!("({}) has ended without its file {}", shown(&step.id), shown(file))
                }
            },
            Some(Err(error)) => {
                format!("has ended, and which files it should have written can't be read: {error}")
            }
        };
        self.progress.warn(&format!("task {} {without}", task.0));
        How::NoOutput
    }

    /// Has removed what a task has written that has failed, once that is durable: before, it may have to go on from a
    /// checkpoint, and find its files.
    pub(super) fn tidy_once_durable(&mut self, entry: &Entry) {
        let (Entry::Failed(tried) | Entry::Ended(tried)) = entry else { return };
        if !tried.verdict.is_right() && self.tasks.are_steps() {
            self.untidied.push((tried.task, self.recorder.recorded()));
        }
    }

    /// Removes what those have written whose failure is durable.
    pub(super) fn tidy(&mut self) {
        let due = super::take_durable(&mut self.untidied, self.recorder.durable());
        for task in due {
            if let Err(reason) = self.make_way(task) {
                self.progress.warn(&format!("task {} has failed, and {reason}", task.0));
            }
        }
    }

    /// Whether a task of a workflow must not begin anew yet: there is a checkpoint of its last try until it is durable how
    /// that has ended, and with that its files.
    pub(super) fn is_still_kept(&self, task: Task) -> bool {
        let is_leaving =
            |role: &Role| matches!(role, Role::Leaving(leaving, _) if *leaving == task);
        self.tasks.are_steps()
            && (self.over.iter().any(|((over, _), _)| *over == task)
                || self.roles.values().any(is_leaving))
    }
}

/// Whether what a task should have written is there, as far as anybody knows.
pub fn are_there(tasks: &Tasks, task: Task, folder: &Path) -> bool {
    match tasks.step(task) {
        None => true,
        Some(Ok(step)) => step.missing(folder).is_none(),
        Some(Err(_)) => false,
    }
}
