//! Tasks that wait for others.

use super::Farm;
use crate::entry::{Entry, Try};
use crate::event::Action;
use crate::task::{Task, TaskSet};

impl Farm {
    /// Takes note of which tasks had ended when the run goes on; `wrong`: those of them that have failed or are skipped, with
    /// the ones that are the reason.
    pub(super) fn let_flow(&mut self, wrong: &[(Task, Task)]) {
        let Some(flow) = &mut self.flow else { return };
        let mut is_wrong = TaskSet::of(self.total);
        for (task, because) in wrong {
            is_wrong.insert(*task);
            // Everything may have been killed before all of these were recorded.
            for below in flow.descendants(*task, &mut self.ended) {
                is_wrong.insert(below);
                self.outcome.skipped += 1;
                self.skipped.push((below, *because));
            }
        }
        let ended = (1..=self.total).map(Task).filter(|task| self.ended.contains(*task));
        for task in ended.filter(|task| !is_wrong.contains(*task)) {
            flow.had_ended(task);
        }
    }

    /// All could begin that wait for nothing any more.
    pub(super) fn flow_begins(&mut self) {
        if let Some(flow) = &mut self.flow {
            flow.begin([&self.ended, &self.apart]);
        }
    }

    /// A task is over: what waits for it could begin, or is skipped.
    pub(super) fn flow_on(&mut self, tried: &Try) {
        let Some(flow) = &mut self.flow else { return };
        let Try { task, verdict, took_ms, .. } = *tried;
        if verdict.is_right() {
            return flow.has_ended(task, took_ms, [&self.ended, &self.apart]);
        }
        let below = flow.descendants(task, &mut self.ended);
        self.outcome.skipped += below.len() as u32;
        self.skipped.extend(below.into_iter().map(|below| (below, task)));
    }

    /// Has it recorded which tasks are skipped.
    pub(super) fn tell_skipped(&mut self, out: &mut Vec<Action>) {
        for (task, because) in std::mem::take(&mut self.skipped) {
            out.push(Action::Record(Entry::Skipped { task, because }));
        }
    }
}
