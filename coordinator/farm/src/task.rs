//! What tasks are called.

use serde::{Deserialize, Serialize};

/// A task, by its number in the list of all; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Task(pub u32);

/// Which time a task is tried; the first is 1.
pub type Attempt = u32;

/// A set of tasks, one bit for each.
#[derive(Debug, Clone)]
pub(crate) struct TaskSet {
    words: Vec<u64>,
    length: u32,
}

impl TaskSet {
    /// An empty one for so many tasks.
    pub(crate) fn of(total: u32) -> Self {
        Self { words: vec![0; total as usize / 64 + 1], length: 0 }
    }

    /// Makes room for so many.
    pub(crate) fn grow_to(&mut self, total: u32) {
        let words = total as usize / 64 + 1;
        if words > self.words.len() {
            self.words.resize(words, 0);
        }
    }

    /// Puts one in; whether it was not there.
    pub(crate) fn insert(&mut self, task: Task) -> bool {
        let Some(word) = self.words.get_mut(task.0 as usize / 64) else { return false };
        let bit = 1 << (task.0 % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        self.length += u32::from(is_new);
        is_new
    }

    /// Takes one out; whether it was there.
    pub(crate) fn remove(&mut self, task: Task) -> bool {
        let Some(word) = self.words.get_mut(task.0 as usize / 64) else { return false };
        let bit = 1 << (task.0 % 64);
        let was_there = *word & bit != 0;
        *word &= !bit;
        self.length -= u32::from(was_there);
        was_there
    }

    /// Whether it is in it.
    pub(crate) fn contains(&self, task: Task) -> bool {
        self.words.get(task.0 as usize / 64).is_some_and(|word| word & (1 << (task.0 % 64)) != 0)
    }

    /// How many are in it.
    pub(crate) fn len(&self) -> u32 {
        self.length
    }
}
