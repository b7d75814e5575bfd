//! The journal of a run between its parts: read for a report, and changed where failed tasks are to be tried again.

use super::journal;
use super::line::Line;
use super::{FarmError, FarmFolder};
use ckptd_farm::{Attempt, Entry, Task, Verdict};
use std::collections::{BTreeMap, HashSet};

/// A try of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The task.
    pub task: Task,
    /// When it began, in milliseconds since 1970 UTC; from its last restart where it went on from a checkpoint.
    pub from_ms: u64,
    /// When it ended.
    pub to_ms: u64,
    /// How.
    pub verdict: Verdict,
    /// Whether it went on from a checkpoint.
    pub restored: bool,
}

/// A part of a run: from one command to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// When it began, in milliseconds since 1970 UTC.
    pub from_ms: u64,
    /// When something last ended in it.
    pub to_ms: u64,
    /// How many tasks ran at a time; 0: not known.
    pub slots: u32,
}

/// What a journal tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// All tries that have come to an end, in the order of their ends.
    pub spans: Vec<Span>,
    /// The parts of the run.
    pub parts: Vec<Part>,
    /// Tasks that have failed, and how.
    pub failed: BTreeMap<Task, Verdict>,
    /// Tasks that are not run, and the ones that are the reason.
    pub skipped: BTreeMap<Task, Task>,
    /// How many have ended right.
    pub right: u32,
    /// The tries that are among `spans`: a line that may not be durable is written once more.
    seen: HashSet<(Task, Attempt)>,
}

/// Reads the journal of a run without changing it.
///
/// # Errors
/// Where it can't be read.
pub fn history(folder: &FarmFolder) -> Result<History, FarmError> {
    let mut history = History::default();
    journal::each(&folder.journal(), |line| history.take(&line))?;
    Ok(history)
}

/// Has all tasks of a run tried again that have failed. The caller holds its lock.
///
/// # Errors
/// Where that can't be recorded.
pub fn reopen(folder: &FarmFolder, retries: u32) -> Result<(), FarmError> {
    journal::reopen(&folder.journal(), folder.record().tasks, retries)
}

impl History {
    fn take(&mut self, line: &Line) {
        match line {
            Line::Opened { .. } => {}
            Line::Part { at_ms, slots } => {
                self.parts.push(Part { from_ms: *at_ms, to_ms: *at_ms, slots: *slots });
            }
            Line::Ended { at_ms, entry } => self.entry(*at_ms, *entry),
        }
    }

    fn entry(&mut self, at_ms: u64, entry: Entry) {
        match entry {
            Entry::Failed(tried) | Entry::Ended(tried) => {
                if tried.attempt == 0 {
                    // It was cancelled before it was tried.
                    self.failed.insert(tried.task, tried.verdict);
                    return;
                }
                if !self.seen.insert((tried.task, tried.attempt)) {
                    return;
                }
                let from_ms = at_ms.saturating_sub(tried.took_ms);
                let (verdict, restored) = (tried.verdict, tried.restored);
                self.spans.push(Span {
                    task: tried.task,
                    from_ms,
                    to_ms: at_ms,
                    verdict,
                    restored,
                });
                // Of an older journal, nothing is known of the parts.
                if self.parts.is_empty() {
                    self.parts.push(Part { from_ms, to_ms: at_ms, slots: 0 });
                }
                if let Some(part) = self.parts.last_mut() {
                    part.to_ms = part.to_ms.max(at_ms);
                }
                match (entry, verdict.is_right()) {
                    (Entry::Ended(_), true) => self.right += 1,
                    (Entry::Ended(_), false) => _ = self.failed.insert(tried.task, verdict),
                    _ => {}
                }
            }
            Entry::Skipped { task, because } => _ = self.skipped.insert(task, because),
            Entry::Reopened => {
                self.failed.clear();
                self.skipped.clear();
            }
            Entry::Retried { task } => _ = self.failed.remove(&task),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ckptd_farm::Try;

    #[test]
    fn an_older_journal_tells_less() {
        let tried = Try {
            task: Task(2),
            attempt: 1,
            verdict: Verdict::Exited(3),
            took_ms: 400,
            restored: false,
        };
        let mut old = History::default();
        old.take(&Line::Opened { format: 1, tasks: 3 });
        old.take(&Line::Ended { at_ms: 1000, entry: Entry::Failed(tried) });
        let again = Try { attempt: 2, ..tried };
        for _ in 0..2 {
            old.take(&Line::Ended { at_ms: 2000, entry: Entry::Ended(again) });
        }
        assert_eq!(old.parts, [Part { from_ms: 600, to_ms: 2000, slots: 0 }]);
        assert_eq!((old.spans.len(), old.failed.len(), old.right), (2, 1, 0));
        old.take(&Line::Ended {
            at_ms: 2001,
            entry: Entry::Skipped { task: Task(3), because: Task(2) },
        });
        old.take(&Line::Ended { at_ms: 2100, entry: Entry::Reopened });
        old.take(&Line::Part { at_ms: 3000, slots: 4 });
        assert!(old.failed.is_empty() && old.skipped.is_empty());
        let cancelled = Try { task: Task(3), attempt: 0, verdict: Verdict::Cancelled, ..tried };
        for _ in 0..2 {
            old.take(&Line::Ended { at_ms: 3100, entry: Entry::Ended(cancelled) });
            assert_eq!((old.failed.len(), old.spans.len()), (1, 2));
            old.take(&Line::Ended { at_ms: 3200, entry: Entry::Retried { task: Task(3) } });
            assert!(old.failed.is_empty());
        }
        assert_eq!(old.parts[1], Part { from_ms: 3000, to_ms: 3000, slots: 4 });
    }
}
