//! Which tasks wait for which.

use crate::task::Task;
use std::fmt::{self, Display, Formatter};

/// The most pairs of a task and one that waits for it.
pub const MOST_EDGES: usize = 4_000_000;
/// The most tasks of a cycle that are named.
const MOST_NAMED: usize = 20;

/// What waits for what, without cycles.
///
/// Of each task there are two numbers, of each edge one: 500,000 tasks with 4,000,000 edges take 22 MB.
#[derive(Debug, Clone)]
pub struct Graph {
    /// Where the children of a task begin; task N has the place N.
    begins: Vec<u32>,
    children: Vec<Task>,
    parents: Vec<u32>,
    ranks: Vec<u32>,
}

/// Why tasks can't wait for each other like that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadGraph {
    /// There is no such task.
    Unknown(Task),
    /// There are more edges than [`MOST_EDGES`].
    TooMany,
    /// Each of these waits for the one before it, and the first for the last.
    Cycle(Vec<Task>),
}

impl Display for BadGraph {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(task) => write!(out, "there is no task {}", task.0),
            Self::TooMany => {
                write!(out, "more than {MOST_EDGES} pairs of tasks wait for each other")
            }
            Self::Cycle(tasks) => {
                let numbers: Vec<String> = tasks.iter().map(|task| task.0.to_string()).collect();
                write!(out, "tasks wait for each other in a circle: {}", numbers.join(", "))
            }
        }
    }
}

impl std::error::Error for BadGraph {}

impl Graph {
    /// So many tasks; of each edge, the second waits for the first. An edge may be there several times.
    ///
    /// # Errors
    /// Where a task is unknown, there are too many edges, or a task waits for itself.
    pub fn new(total: u32, mut edges: Vec<(Task, Task)>) -> Result<Self, BadGraph> {
        if edges.len() > MOST_EDGES {
            return Err(BadGraph::TooMany);
        }
        edges.sort_unstable();
        edges.dedup();
        let places = total as usize + 1;
        let mut begins = vec![0; places + 1];
        let mut parents = vec![0; places];
        for (parent, child) in &edges {
            for task in [parent, child] {
                if !(1..=total).contains(&task.0) {
                    return Err(BadGraph::Unknown(*task));
                }
            }
            begins[parent.0 as usize + 1] += 1;
            parents[child.0 as usize] += 1;
        }
        for place in 1..begins.len() {
            begins[place] += begins[place - 1];
        }
        let children = edges.into_iter().map(|(_, child)| child).collect();
        let mut graph = Self { begins, children, parents, ranks: Vec::new() };
        graph.ranks = graph.measure()?;
        Ok(graph)
    }

    /// How many tasks there are.
    pub(crate) fn total(&self) -> u32 {
        // In range: it was made of such a number.
        (self.parents.len() - 1) as u32
    }

    /// Those that wait for it.
    #[must_use]
    pub fn children(&self, task: Task) -> &[Task] {
        let place = |index: usize| self.begins.get(index).copied().unwrap_or(0) as usize;
        let index = task.0 as usize;
        self.children.get(place(index)..place(index + 1)).unwrap_or(&[])
    }

    /// How many it waits for.
    #[must_use]
    pub fn parents(&self, task: Task) -> u32 {
        self.parents.get(task.0 as usize).copied().unwrap_or(0)
    }

    /// Its rank: the longest way from it to an end, in tasks that wait for it one after the other.
    #[must_use]
    pub fn rank(&self, task: Task) -> u32 {
        self.ranks.get(task.0 as usize).copied().unwrap_or(0)
    }

    fn measure(&self) -> Result<Vec<u32>, BadGraph> {
        let total = self.total();
        let mut left = self.parents.clone();
        let mut sorted: Vec<Task> =
            (1..=total).map(Task).filter(|task| self.parents(*task) == 0).collect();
        let mut at = 0;
        while let Some(task) = sorted.get(at).copied() {
            at += 1;
            for child in self.children(task) {
                left[child.0 as usize] -= 1;
                if left[child.0 as usize] == 0 {
                    sorted.push(*child);
                }
            }
        }
        if sorted.len() < total as usize {
            return Err(BadGraph::Cycle(self.cycle(&left)));
        }
        let mut ranks = vec![0; self.parents.len()];
        for task in sorted.into_iter().rev() {
            let longest = self.children(task).iter().map(|child| ranks[child.0 as usize] + 1).max();
            ranks[task.0 as usize] = longest.unwrap_or(0);
        }
        Ok(ranks)
    }

    /// One of the cycles; `left`: for how many each task waits that wait themselves.
    fn cycle(&self, left: &[u32]) -> Vec<Task> {
        let waits = |task: Task| left[task.0 as usize] > 0;
        let mut before = vec![Task(0); left.len()];
        let mut any = Task(0);
        for task in (1..=self.total()).map(Task).filter(|task| waits(*task)) {
            for child in self.children(task) {
                before[child.0 as usize] = task;
            }
            any = task;
        }
        // Each that waits has one before it that does: whoever goes back for long enough is in a cycle.
        for _ in 0..self.total() {
            any = before[any.0 as usize];
        }
        let mut found = vec![any];
        let mut at = before[any.0 as usize];
        while at != any && found.len() < MOST_NAMED {
            found.push(at);
            at = before[at.0 as usize];
        }
        found.reverse();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(total: u32, edges: &[(u32, u32)]) -> Result<Graph, BadGraph> {
        Graph::new(total, edges.iter().map(|(from, to)| (Task(*from), Task(*to))).collect())
    }

    #[test]
    fn ranks_are_the_longest_ways_to_an_end() {
        // 1 → 2 → 4, 1 → 4, 3 → 4; 5 alone.
        let graph = graph(5, &[(1, 2), (2, 4), (1, 4), (3, 4), (1, 4)]).unwrap();
        let ranks: Vec<u32> = (1..=5).map(|task| graph.rank(Task(task))).collect();
        assert_eq!(ranks, [2, 1, 1, 0, 0]);
        let parents: Vec<u32> = (1..=5).map(|task| graph.parents(Task(task))).collect();
        assert_eq!(parents, [0, 1, 0, 3, 0]);
        assert_eq!(graph.children(Task(1)), [Task(2), Task(4)]);
        assert_eq!(graph.children(Task(5)), []);
        assert_eq!(graph.children(Task(6)), []);
    }

    #[test]
    fn a_cycle_is_named_without_what_leads_to_it_and_away_from_it() {
        let refused = graph(7, &[(1, 2), (2, 3), (3, 4), (4, 2), (4, 5), (5, 6)]).unwrap_err();
        let BadGraph::Cycle(mut tasks) = refused else { panic!("{refused}") };
        tasks.sort_unstable();
        assert_eq!(tasks, [Task(2), Task(3), Task(4)]);
        assert_eq!(graph(2, &[(2, 2)]).unwrap_err(), BadGraph::Cycle(vec![Task(2)]));
    }

    #[test]
    fn what_there_is_not_is_refused() {
        assert_eq!(graph(2, &[(1, 3)]).unwrap_err(), BadGraph::Unknown(Task(3)));
        assert_eq!(graph(2, &[(0, 1)]).unwrap_err(), BadGraph::Unknown(Task(0)));
        let many = vec![(Task(1), Task(2)); MOST_EDGES + 1];
        assert_eq!(Graph::new(2, many).unwrap_err(), BadGraph::TooMany);
    }

    /// A chain as long as a run may be: nothing recurses.
    #[test]
    fn a_long_chain_is_one() {
        let edges = (1..500_000).map(|task| (Task(task), Task(task + 1))).collect();
        let graph = Graph::new(500_000, edges).unwrap();
        assert_eq!((graph.rank(Task(1)), graph.rank(Task(500_000))), (499_999, 0));
    }
}
