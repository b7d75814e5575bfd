//! Which of the tasks that could begin does.
//!
//! The orders are those of M. Tanaka and O. Tatebe, "Disk cache-aware task scheduling for data-intensive and many-task
//! workflow" (CLUSTER 2014), as in their Pwrake: what was written last is still in memory, so that what reads it is begun
//! first; and where few tasks of the highest rank are left, these come first, so that no long way is left to the end when
//! all else is done.

use crate::graph::Graph;
use crate::task::{Task, TaskSet};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// Which of the tasks that could begin does. Of those that could at the same time, the first in the list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Order {
    /// The one that could for the longest time.
    #[default]
    Fifo,
    /// The one that could last.
    Lifo,
    /// One of the highest rank, if there are no more of that than slots; else the one that could last.
    LifoHrf,
    /// One of the highest rank, if there are no more of that than slots; else one of the rank that has had the least of the
    /// slots' time, by what tasks of the same kind took on average: all ranks get the same.
    RankHrf,
}

/// The orders, by their names.
const NAMES: [(&str, Order); 4] = [
    ("fifo", Order::Fifo),
    ("lifo", Order::Lifo),
    ("lifo-hrf", Order::LifoHrf),
    ("rank-hrf", Order::RankHrf),
];

/// What is wrong with such a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadOrder;

impl Display for BadOrder {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str("must be fifo, lifo, lifo-hrf or rank-hrf")
    }
}

impl std::error::Error for BadOrder {}

impl FromStr for Order {
    type Err = BadOrder;

    fn from_str(text: &str) -> Result<Self, BadOrder> {
        NAMES.iter().find(|(name, _)| *name == text).map(|(_, order)| *order).ok_or(BadOrder)
    }
}

impl TryFrom<String> for Order {
    type Error = BadOrder;

    fn try_from(text: String) -> Result<Self, BadOrder> {
        text.parse()
    }
}

impl From<Order> for String {
    fn from(order: Order) -> Self {
        order.to_string()
    }
}

impl Display for Order {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, order)| order == self).map_or("fifo", |(name, _)| *name);
        out.write_str(name)
    }
}

/// Tasks of one rank.
#[derive(Debug, Default)]
struct Lane {
    tasks: Vec<Task>,
    /// How many of them have not been taken.
    waiting: usize,
    /// What it has had of the slots' time, in milliseconds.
    had: u64,
}

/// Tasks that could begin, in an order. Each is put in once.
#[derive(Debug)]
pub(crate) struct Ready {
    order: Order,
    /// The kind of each task; task N has the place N.
    kinds: Vec<u32>,
    waiting: TaskSet,
    /// In the order in which they came; some may have been taken by their rank.
    queue: VecDeque<Task>,
    /// By their ranks, where the order needs these; some may have been taken by the queue.
    lanes: BTreeMap<u32, Lane>,
    /// The ranks by what they have had of the slots' time, the highest of the same first.
    poorest: BTreeSet<(u64, Reverse<u32>)>,
    /// What the rank had had of the slots' time that was chosen last.
    floor: u64,
    /// Of a kind: how many have ended, and how long all of these took, in milliseconds.
    took: HashMap<u32, (u64, u64)>,
    all_took: (u64, u64),
}

impl Ready {
    pub(crate) fn new(order: Order, total: u32, kinds: Vec<u32>) -> Self {
        Self {
            order,
            kinds,
            waiting: TaskSet::of(total),
            queue: VecDeque::new(),
            lanes: BTreeMap::new(),
            poorest: BTreeSet::new(),
            floor: 0,
            took: HashMap::new(),
            all_took: (0, 0),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.len() == 0
    }

    /// Puts tasks in that can begin from now on, in the order of their numbers.
    pub(crate) fn extend(&mut self, graph: &Graph, tasks: &[Task]) {
        // The last one that comes is the first that goes.
        let is_reversed = self.order != Order::Fifo;
        for at in 0..tasks.len() {
            let task = tasks[if is_reversed { tasks.len() - 1 - at } else { at }];
            if !self.waiting.insert(task) {
                continue;
            }
            if self.order != Order::RankHrf {
                self.queue.push_back(task);
            }
            if matches!(self.order, Order::LifoHrf | Order::RankHrf) {
                self.add_to_lane(graph.rank(task), task);
            }
        }
    }

    fn add_to_lane(&mut self, rank: u32, task: Task) {
        let floor = self.floor;
        let lane = self.lanes.entry(rank).or_insert_with(|| {
            self.poorest.insert((floor, Reverse(rank)));
            Lane { had: floor, ..Lane::default() }
        });
        lane.tasks.push(task);
        lane.waiting += 1;
    }

    /// Takes the next one.
    pub(crate) fn take(&mut self, graph: &Graph, slots: usize) -> Option<Task> {
        let task = match self.order {
            Order::Fifo => self.of_queue(VecDeque::pop_front),
            Order::Lifo => self.of_queue(VecDeque::pop_back),
            Order::LifoHrf => match self.few_of_the_highest(slots) {
                Some(rank) => self.of_lane(rank),
                None => self.of_queue(VecDeque::pop_back),
            },
            Order::RankHrf => {
                let poorest = self.poorest.first().map(|(_, Reverse(rank))| *rank);
                self.of_lane(self.few_of_the_highest(slots).or(poorest)?)
            }
        }?;
        self.waiting.remove(task);
        let cost = self.expected(task);
        let rank = graph.rank(task);
        if let Some(lane) = self.lanes.get_mut(&rank) {
            self.poorest.remove(&(lane.had, Reverse(rank)));
            self.floor = lane.had;
            lane.had = lane.had.saturating_add(cost);
            lane.waiting -= 1;
            match lane.waiting {
                0 => _ = self.lanes.remove(&rank),
                _ => _ = self.poorest.insert((lane.had, Reverse(rank))),
            }
        }
        Some(task)
    }

    fn of_queue(&mut self, pop: fn(&mut VecDeque<Task>) -> Option<Task>) -> Option<Task> {
        loop {
            let task = pop(&mut self.queue)?;
            if self.waiting.contains(task) {
                return Some(task);
            }
        }
    }

    fn of_lane(&mut self, rank: u32) -> Option<Task> {
        let lane = self.lanes.get_mut(&rank)?;
        loop {
            let task = lane.tasks.pop()?;
            if self.waiting.contains(task) {
                return Some(task);
            }
        }
    }

    fn few_of_the_highest(&self, slots: usize) -> Option<u32> {
        let (rank, lane) = self.lanes.last_key_value()?;
        (lane.waiting <= slots).then_some(*rank)
    }

    /// How long a task will take, by those of its kind that have ended, or by all that have.
    fn expected(&self, task: Task) -> u64 {
        let mean = |(number, took): (u64, u64)| took.checked_div(number);
        let kind = self.kinds.get(task.0 as usize).and_then(|kind| self.took.get(kind));
        let expected = kind.copied().and_then(mean).or_else(|| mean(self.all_took));
        expected.unwrap_or(0).max(1)
    }

    /// A task has ended as it should.
    pub(crate) fn took(&mut self, task: Task, took_ms: u64) {
        let Some(kind) = self.kinds.get(task.0 as usize) else { return };
        for sum in [self.took.entry(*kind).or_default(), &mut self.all_took] {
            sum.0 += 1;
            sum.1 = sum.1.saturating_add(took_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tasks 1 to 4 have rank 0, 5 to 7 rank 1, 8 rank 2; those of a rank are of a kind.
    fn ready(order: Order) -> (Graph, Ready) {
        let edges = [(8, 7), (5, 1), (6, 1), (7, 1)];
        let edges = edges.map(|(from, to)| (Task(from), Task(to))).to_vec();
        let graph = Graph::new(8, edges).unwrap();
        let kinds = vec![0, 0, 0, 0, 0, 1, 1, 1, 2];
        let mut ready = Ready::new(order, 8, kinds);
        // As if what they wait for had ended.
        ready.extend(&graph, &[Task(1), Task(2), Task(5)]);
        ready.extend(&graph, &[Task(3), Task(4), Task(6), Task(7)]);
        (graph, ready)
    }

    fn taken(graph: &Graph, ready: &mut Ready, slots: usize) -> Vec<u32> {
        std::iter::from_fn(|| ready.take(graph, slots)).map(|task| task.0).collect()
    }

    #[test]
    fn orders_are_what_they_say() {
        for (order, slots, expected) in [
            (Order::Fifo, 1, [1, 2, 5, 3, 4, 6, 7]),
            (Order::Lifo, 1, [3, 4, 6, 7, 1, 2, 5]),
            // Three of the highest rank are more than two slots until the one at the end is taken.
            (Order::LifoHrf, 2, [3, 4, 6, 7, 5, 1, 2]),
            (Order::LifoHrf, 3, [6, 7, 5, 3, 4, 1, 2]),
            (Order::LifoHrf, 1, [3, 4, 6, 7, 5, 1, 2]),
            // Both ranks in turn, as long as nothing is known; then the last one of the highest.
            (Order::RankHrf, 1, [6, 3, 7, 5, 4, 1, 2]),
            (Order::RankHrf, 9, [6, 7, 5, 3, 4, 1, 2]),
        ] {
            let (graph, mut ready) = ready(order);
            assert_eq!(taken(&graph, &mut ready, slots), expected, "{order} {slots}");
            assert!(ready.is_empty());
        }
    }

    /// Ranks get the same time: where tasks of one take a third of the other's, three of these are begun for one.
    #[test]
    fn short_tasks_are_begun_more_often() {
        let chain = (1..=40).map(|task| (Task(task), Task(41))).collect();
        let graph = Graph::new(81, chain).unwrap();
        let kinds = (0..=81).map(|task| u32::from(task > 41)).collect();
        let mut ready = Ready::new(Order::RankHrf, 81, kinds);
        ready.took(Task(41), 3000);
        ready.took(Task(81), 1000);
        let all: Vec<Task> = (1..=40).chain(42..=80).map(Task).collect();
        ready.extend(&graph, &all);
        let first: Vec<Task> = (0..20).filter_map(|_| ready.take(&graph, 1)).collect();
        assert_eq!(first.iter().filter(|task| task.0 <= 40).count(), 5);
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for (name, order) in NAMES {
            assert_eq!((name.parse(), order.to_string()), (Ok(order), name.to_owned()));
        }
        assert_eq!("random".parse::<Order>(), Err(BadOrder));
    }
}
