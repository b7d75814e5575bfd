//! The run's time, and places for tasks.

use crate::farm::{Part, Span};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// The time of a run without the pauses between its parts.
#[derive(Debug)]
pub struct Clock {
    /// Each part's first moment, its last one, and how much was before it.
    parts: Vec<(u64, u64, u64)>,
}

impl Clock {
    pub fn of(parts: &[Part]) -> Self {
        let mut before = 0;
        let parts = parts.iter().map(|part| {
            let all = (part.from_ms, part.to_ms, before);
            before += part.to_ms.saturating_sub(part.from_ms);
            all
        });
        Self { parts: parts.collect() }
    }

    /// How much time there is, in milliseconds.
    pub fn length(&self) -> u64 {
        self.parts.last().map_or(0, |(from, to, before)| before + to.saturating_sub(*from))
    }

    /// The time of a moment, in milliseconds. One in a pause is at the end of the part before.
    pub fn at(&self, moment: u64) -> u64 {
        let next = self.parts.partition_point(|(from, ..)| *from <= moment);
        let Some((from, to, before)) = next.checked_sub(1).and_then(|index| self.parts.get(index))
        else {
            return 0;
        };
        before + moment.min(*to).saturating_sub(*from)
    }

    /// Where parts begin, but the first.
    pub fn seams(&self) -> impl Iterator<Item = u64> + '_ {
        self.parts.iter().skip(1).map(|(.., before)| *before)
    }
}

/// A try, in the time of the run, in a place that no other has at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    pub span: Span,
    pub from: u64,
    pub to: u64,
    pub place: usize,
}

/// Gives each try the lowest place that is free; and how many places there are. There are no more than `most`: what seems to
/// begin before a place is free does so by the precision of the journal's times alone.
pub fn place(spans: &[Span], clock: &Clock, most: usize) -> (Vec<Placed>, usize) {
    let placed = |span: &Span| Placed {
        span: *span,
        from: clock.at(span.from_ms),
        to: clock.at(span.to_ms),
        place: 0,
    };
    let mut all: Vec<Placed> = spans.iter().map(placed).collect();
    all.sort_by_key(|placed| (placed.from, placed.to));
    let mut free: BTreeSet<usize> = BTreeSet::new();
    let mut taken: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut places = 0;
    for placed in &mut all {
        while let Some(Reverse((to, place))) = taken.peek().copied() {
            let is_full = free.is_empty() && places == most;
            if to > placed.from && !is_full {
                break;
            }
            taken.pop();
            free.insert(place);
            placed.from = placed.from.max(to.min(placed.to));
        }
        placed.place = free.pop_first().unwrap_or_else(|| {
            places += 1;
            places - 1
        });
        taken.push(Reverse((placed.to, placed.place)));
    }
    (all, places)
}

/// How many ran on average in each of so many equal pieces of the time.
pub fn parallel(all: &[Placed], length: u64, pieces: usize) -> Vec<f64> {
    let mut sums = vec![0.0; pieces];
    let each = (length as f64 / pieces as f64).max(f64::MIN_POSITIVE);
    // What lies within whole pieces is added up by its edges, so that long tasks cost no more than short ones.
    let mut steps = vec![0.0; pieces + 1];
    for placed in all {
        let (from, to) = (placed.from as f64 / each, placed.to as f64 / each);
        let (first, last) = (from as usize, (to as usize).min(pieces.saturating_sub(1)));
        if first >= pieces {
            continue;
        }
        if first == last {
            sums[first] += to.min(pieces as f64) - from;
            continue;
        }
        sums[first] += (first + 1) as f64 - from;
        sums[last] += to.min(pieces as f64) - last as f64;
        steps[first + 1] += 1.0;
        steps[last] -= 1.0;
    }
    let mut running = 0.0;
    for (sum, step) in sums.iter_mut().zip(steps) {
        running += step;
        *sum += running;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use ckptd_farm::{Task, Verdict};

    fn span(task: u32, from_ms: u64, to_ms: u64) -> Span {
        Span { task: Task(task), from_ms, to_ms, verdict: Verdict::Exited(0), restored: false }
    }

    fn part(from_ms: u64, to_ms: u64) -> Part {
        Part { from_ms, to_ms, slots: 2 }
    }

    #[test]
    fn pauses_take_no_time() {
        let clock = Clock::of(&[part(100, 200), part(1000, 1050), part(5000, 5000)]);
        assert_eq!(clock.length(), 150);
        let times: Vec<u64> =
            [0, 100, 150, 200, 700, 1000, 1020, 9000].into_iter().map(|at| clock.at(at)).collect();
        assert_eq!(times, [0, 0, 50, 100, 100, 100, 120, 150]);
        assert_eq!(clock.seams().collect::<Vec<_>>(), [100, 150]);
        assert_eq!((Clock::of(&[]).length(), Clock::of(&[]).at(7)), (0, 0));
    }

    #[test]
    fn no_two_tasks_have_one_place_at_a_time() {
        let clock = Clock::of(&[part(0, 100)]);
        let (all, places) =
            place(&[span(1, 0, 10), span(2, 0, 30), span(3, 10, 20), span(4, 15, 40)], &clock, 9);
        let found: Vec<_> = all.iter().map(|placed| (placed.span.task.0, placed.place)).collect();
        assert_eq!((found, places), (vec![(1, 0), (2, 1), (3, 0), (4, 2)], 3));
        let mean = parallel(&all, 40, 4);
        assert_eq!(mean, [2.0, 2.5, 2.0, 1.0]);
        let (all, places) = place(&[span(1, 0, 10), span(2, 9, 20)], &clock, 1);
        assert_eq!((all[1].from, all[1].place, places), (10, 0, 1));
    }
}
