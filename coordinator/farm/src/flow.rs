//! Tasks that wait for others: how many each still waits for, and which could begin.

use crate::graph::Graph;
use crate::order::{Order, Ready};
use crate::task::{Task, TaskSet};
use std::collections::{HashMap, HashSet};

/// Tasks that wait for others, and the order in which they begin.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What waits for what.
    pub graph: Graph,
    /// The kind of each task, task N at the place N: those of a kind take about as long. Without it, all are of one.
    pub kinds: Vec<u32>,
    /// Which of those that could begin does.
    pub order: Order,
}

/// How far that is.
#[derive(Debug)]
pub(crate) struct Flow {
    graph: Graph,
    /// For how many each task still waits; task N has the place N.
    left: Vec<u32>,
    ready: Ready,
}

impl Flow {
    /// Where nothing has begun.
    pub(crate) fn new(plan: Plan) -> Self {
        let Plan { graph, mut kinds, order } = plan;
        let total = graph.total();
        kinds.resize(total as usize + 1, 0);
        let left = (0..=total).map(|task| graph.parents(Task(task))).collect();
        Self { left, ready: Ready::new(order, total, kinds), graph }
    }

    /// How many tasks there are.
    pub(crate) fn total(&self) -> u32 {
        self.graph.total()
    }

    /// Whether all have ended right that a task waits for.
    pub(crate) fn may_begin(&self, task: Task) -> bool {
        self.left.get(task.0 as usize) == Some(&0)
    }

    /// Which tasks could begin where those have ended right of which that is not recorded: themselves, if what they wait for has
    /// ended right, and what waits for nothing else then.
    ///
    /// And those ends, each behind what it has waited for.
    pub(crate) fn free_by(&self, ends: &[Task]) -> (HashSet<Task>, Vec<Task>) {
        let mut sorted = Vec::new();
        let ends: HashSet<Task> = ends.iter().copied().collect();
        let mut open: Vec<Task> =
            ends.iter().copied().filter(|task| self.may_begin(*task)).collect();
        let mut free: HashSet<Task> = open.iter().copied().collect();
        let mut fewer: HashMap<Task, u32> = HashMap::new();
        while let Some(task) = open.pop() {
            sorted.push(task);
            for child in self.graph.children(task) {
                let fewer = fewer.entry(*child).or_default();
                *fewer += 1;
                let is_free = self.left.get(child.0 as usize) == Some(&*fewer);
                if is_free && free.insert(*child) && ends.contains(child) {
                    open.push(*child);
                }
            }
        }
        (free, sorted)
    }

    /// A task has ended right before this part of the run.
    pub(crate) fn had_ended(&mut self, task: Task) {
        for child in self.graph.children(task) {
            self.left[child.0 as usize] -= 1;
        }
    }

    /// All could begin that wait for nothing, but those.
    pub(crate) fn begin(&mut self, except: [&TaskSet; 2]) {
        let all = (1..=self.total()).map(Task);
        let may = all.filter(|task| {
            self.may_begin(*task) && except.iter().all(|tasks| !tasks.contains(*task))
        });
        let may: Vec<Task> = may.collect();
        self.ready.extend(&self.graph, &may);
    }

    /// A task has ended right. What waits for nothing then could begin, but those.
    pub(crate) fn has_ended(&mut self, task: Task, took_ms: u64, except: [&TaskSet; 2]) {
        self.ready.took(task, took_ms);
        let mut free = Vec::new();
        for child in self.graph.children(task) {
            let left = &mut self.left[child.0 as usize];
            *left -= 1;
            if *left == 0 && except.iter().all(|tasks| !tasks.contains(*child)) {
                free.push(*child);
            }
        }
        self.ready.extend(&self.graph, &free);
    }

    /// All that wait for a task, directly or not, and have not ended; they count as ended from now on. None of them has
    /// begun if the task has not ended right.
    pub(crate) fn descendants(&self, task: Task, ended: &mut TaskSet) -> Vec<Task> {
        let mut found = Vec::new();
        let mut open = vec![task];
        while let Some(task) = open.pop() {
            for child in self.graph.children(task) {
                if ended.insert(*child) {
                    found.push(*child);
                    open.push(*child);
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// Takes the next one that could begin.
    pub(crate) fn take(&mut self, slots: usize) -> Option<Task> {
        self.ready.take(&self.graph, slots)
    }

    /// Whether none could begin.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }
}
