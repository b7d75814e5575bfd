//! Tasks that come one by one, and what somebody wants of one of them.

use super::running::{Running, State};
use super::{Farm, Origin, Phase};
use crate::entry::{Entry, Try, Verdict};
use crate::event::Action;
use crate::settings::Limits;
use crate::task::Task;
use std::time::Duration;

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// There is no such task.
    Unknown,
    /// It waits for a slot.
    Queued,
    /// It runs, or is being ended.
    Running,
    /// It could not be brought back from its checkpoint.
    Stuck,
    /// It has ended with status 0.
    Right,
    /// It has ended otherwise, was cancelled, or is not run.
    Wrong,
}

impl Farm {
    /// How far a task is.
    #[must_use]
    pub fn stage(&self, task: Task) -> Stage {
        if !(1..=self.total).contains(&task.0) {
            Stage::Unknown
        } else if self.wrong.contains_key(&task) {
            Stage::Wrong
        } else if self.ended.contains(task) {
            Stage::Right
        } else if self.running.contains_key(&task) {
            Stage::Running
        } else if self.stuck.contains(&task) {
            Stage::Stuck
        } else {
            Stage::Queued
        }
    }

    /// Those that could not be brought back.
    pub fn stuck(&self) -> impl Iterator<Item = Task> + '_ {
        self.stuck.iter().copied()
    }

    /// How many run at a time.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.settings.slots
    }

    /// Whether it is being brought to its end, so that nothing comes of what somebody wants of a task.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.phase != Phase::Going
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_idle(&mut self) -> bool {
        self.running.is_empty() && self.is_recordable && !self.has_more()
    }

    /// Takes note of what holds for a task.
    pub(super) fn limit(&mut self, task: Task, limits: Limits) {
        if limits != Limits::default() {
            self.limits.insert(task, limits);
        }
    }

    /// How long a task may take.
    pub(super) fn timeout(&self, task: Task) -> Option<Duration> {
        self.limits.get(&task).and_then(|limits| limits.timeout).or(self.settings.timeout)
    }

    /// How often a task is tried again.
    pub(super) fn retries(&self, task: Task) -> u32 {
        let own = self.limits.get(&task).and_then(|limits| limits.retries);
        own.unwrap_or(self.settings.retries)
    }

    pub(super) fn add(&mut self, limits: Limits) {
        if !self.is_open {
            return;
        }
        self.total += 1;
        self.ended.grow_to(self.total);
        self.apart.grow_to(self.total);
        self.limit(Task(self.total), limits);
    }

    /// Ends a task, or takes it out of the queue.
    pub(super) fn cancel(&mut self, now: Duration, task: Task, out: &mut Vec<Action>) {
        if !self.is_open || self.is_ending() {
            return;
        }
        match self.stage(task) {
            Stage::Unknown | Stage::Right | Stage::Wrong => {}
            Stage::Running => self.cancel_running(now, task, out),
            Stage::Queued | Stage::Stuck => self.cancel_waiting(now, task, out),
        }
    }

    fn cancel_running(&mut self, now: Duration, task: Task, out: &mut Vec<Action>) {
        let Some(running) = self.running.get_mut(&task) else { return };
        // Also in the place of another reason, by which it would be tried again.
        running.verdict = Some(Verdict::Cancelled);
        match running.state {
            State::Runs => {
                running.state =
                    State::Ending { asked: true, kill_at: Some(now + self.settings.grace) };
                out.push(Action::Terminate(task));
            }
            // Its process has ended already.
            State::Doubted { how, .. } => self.own_end(now, task, (how, now), out),
            // Those that save are of a farm that ends.
            State::Ending { .. } | State::Saving { .. } | State::Saved => {}
        }
    }

    /// A task could not be brought back: it waits for another try, unless somebody has cancelled it meanwhile.
    pub(super) fn not_restored(
        &mut self,
        now: Duration,
        task: Task,
        running: &Running,
        out: &mut Vec<Action>,
    ) {
        self.stuck.insert(task);
        if running.verdict == Some(Verdict::Cancelled) {
            self.cancel_waiting(now, task, out);
        }
    }

    fn cancel_waiting(&mut self, now: Duration, task: Task, out: &mut Vec<Action>) {
        let is_kept = self.stuck.remove(&task)
            || self.first.iter().any(|first| *first == (task, Origin::Checkpoint));
        self.first.retain(|(first, _)| *first != task);
        self.again.retain(|again| *again != task);
        let tries = self.attempt(task) - u32::from(!is_kept);
        let tried =
            Try { task, attempt: tries, verdict: Verdict::Cancelled, took_ms: 0, restored: false };
        self.conclude(now, tried, is_kept, out);
    }

    /// Has a task run again that has not ended right.
    pub(super) fn retry(&mut self, task: Task, out: &mut Vec<Action>) {
        if self.is_open && !self.is_ending() && self.reopen(task) {
            out.push(Action::Record(Entry::Retried { task }));
            self.apart.insert(task);
            self.first.push_back((task, Origin::Beginning));
        }
    }

    /// A task has not ended from now on; whether it had, and not right.
    pub(super) fn reopen(&mut self, task: Task) -> bool {
        let Some(attempt) = self.wrong.remove(&task) else { return false };
        self.ended.remove(task);
        self.outcome.failed -= 1;
        if attempt > 0 {
            self.failures.insert(task, attempt);
            self.reopened.insert(task, attempt);
        }
        true
    }
}
