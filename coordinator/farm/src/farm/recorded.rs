//! What was recorded and found of a run that goes on.

use super::{Farm, Origin};
use crate::entry::{Entry, Verdict};
use crate::event::{Found, What};
use crate::task::Task;
use std::collections::{HashMap, HashSet};

impl Farm {
    /// Takes note of all that was recorded; the tasks that have failed for good by it or are skipped, each with the one that
    /// is the reason.
    pub(super) fn replay(
        &mut self,
        recorded: impl IntoIterator<Item = Entry>,
    ) -> Vec<(Task, Task)> {
        let mut skipped: Vec<(Task, Task)> = Vec::new();
        for entry in recorded {
            match entry {
                Entry::Failed(tried) if !self.ended.contains(tried.task) => {
                    self.failures.insert(tried.task, tried.attempt);
                }
                Entry::Failed(_) => {}
                Entry::Ended(tried) if self.is_over(tried.task) => {
                    self.failures.remove(&tried.task);
                    self.count(&tried);
                }
                Entry::Skipped { task, because } if self.is_over(task) => {
                    self.outcome.skipped += 1;
                    skipped.push((task, because));
                }
                Entry::Ended(_) | Entry::Skipped { .. } => {}
                Entry::Reopened => {
                    for (task, attempt) in std::mem::take(&mut self.wrong) {
                        self.ended.remove(task);
                        self.failures.insert(task, attempt);
                        self.reopened.insert(task, attempt);
                    }
                    for (task, _) in skipped.drain(..) {
                        self.ended.remove(task);
                    }
                    (self.outcome.failed, self.outcome.skipped) = (0, 0);
                }
                Entry::Retried { task } => _ = self.reopen(task),
            }
        }
        skipped.extend(self.wrong.keys().map(|task| (*task, *task)));
        skipped
    }

    /// Takes note of an end; whether it is the first one of a task that there is.
    fn is_over(&mut self, task: Task) -> bool {
        (1..=self.total).contains(&task.0) && self.ended.insert(task)
    }

    /// Takes note of what was found.
    pub(super) fn take_all_found(&mut self, found: impl IntoIterator<Item = Found>) {
        let mut found: Vec<Found> = found.into_iter().collect();
        let is_right_end = |found: &&Found| {
            found.what == What::End(0)
                && found.attempt == self.attempt(found.task)
                && !self.ended.contains(found.task)
        };
        let ends: Vec<Task> = found.iter().filter(is_right_end).map(|found| found.task).collect();
        let (free, sorted) = self.flow.as_ref().map(|flow| flow.free_by(&ends)).unwrap_or_default();
        let places: HashMap<Task, usize> = sorted.into_iter().zip(0..).collect();
        // A task's end is recorded behind those that it has waited for: a loss of power may take the later ones alone.
        found.sort_by_key(|found| {
            (places.get(&found.task).copied().unwrap_or(usize::MAX), found.task)
        });
        for found in found {
            self.take_found(found, &free);
        }
    }

    fn take_found(&mut self, found: Found, free: &HashSet<Task>) {
        let Found { task, attempt, what } = found;
        let is_of_use = (1..=self.total).contains(&task.0)
            && !self.ended.contains(task)
            && attempt == self.attempt(task)
            && what != What::Nothing
            // A loss of power has taken the word of the ends it waited for: these tasks are run again, and write again what
            // it has read.
            && self.flow.as_ref().is_none_or(|flow| flow.may_begin(task) || free.contains(&task));
        if !is_of_use || !self.apart.insert(task) {
            self.useless.push((task, attempt));
            return;
        }
        match what {
            What::End(status) => self.found.push((task, attempt, Verdict::Exited(status))),
            What::Checkpoint | What::Nothing => self.first.push_back((task, Origin::Checkpoint)),
        }
    }

    /// Those that have failed and are not over are tried again.
    pub(super) fn queue_failures(&mut self) {
        let mut failed: Vec<Task> = self.failures.keys().copied().collect();
        failed.sort_unstable();
        for task in failed {
            if self.apart.insert(task) {
                self.again.push_back(task);
            }
        }
    }
}
