//! Where what departed finishes first.

use super::{Draft, Why};
use std::cmp::Ordering;

/// Differences in time below this are none.
const EQUAL: f64 = 1e-9;

impl Draft<'_> {
    /// Places all that counts as load and has no home, the heaviest first. What was placed.
    pub(super) fn distribute(&mut self) -> Vec<usize> {
        let mut free: Vec<usize> = (0..self.pieces.len())
            .filter(|index| self.pieces[*index].home.is_none() && self.pieces[*index].load > 0)
            .collect();
        free.sort_by(|one, other| {
            let (this, that) = (&self.pieces[*one], &self.pieces[*other]);
            let work = that.burden.work.total_cmp(&this.burden.work);
            work.then(that.bytes.cmp(&this.bytes)).then(one.cmp(other))
        });
        let shares = self.shares(&free);
        for index in &free {
            let (machine, why) = self.best(*index, &shares);
            self.put(*index, machine, why);
        }
        free
    }

    /// The part of everything that each machine would have, if it could be divided at will.
    fn shares(&self, free: &[usize]) -> Vec<f64> {
        let all: f64 = self.load.iter().map(|load| load.work).sum::<f64>()
            + free.iter().map(|index| self.pieces[*index].burden.work).sum::<f64>();
        let rates: f64 = self.machines.iter().map(super::Machine::rate).sum();
        self.machines.iter().map(|machine| all * machine.rate() / rates).collect()
    }

    fn best(&self, index: usize, shares: &[f64]) -> (usize, Why) {
        let piece = &self.pieces[index];
        let fits = |machine: &usize| self.fit.is(piece.image, *machine);
        let all = || (0..self.machines.len()).filter(fits);
        // First those with a number to be filled, then those without one, below their share if
        // there are any.
        let lacking = |machine: &usize| {
            self.pins[*machine].is_some_and(|most| self.own[*machine] + piece.load <= most)
        };
        let unpinned = |machine: &usize| self.pins[*machine].is_none();
        let below = |machine: &usize| self.load[*machine].work < shares[*machine] - EQUAL;
        let (candidates, why): (Vec<usize>, Why) = if all().any(|machine| lacking(&machine)) {
            (all().filter(lacking).collect(), Why::Pinned)
        } else if all().any(|machine| unpinned(&machine) && below(&machine)) {
            (all().filter(|machine| unpinned(machine) && below(machine)).collect(), Why::Balanced)
        } else if all().any(|machine| unpinned(&machine)) {
            (all().filter(unpinned).collect(), Why::Balanced)
        } else {
            (all().collect(), Why::Balanced)
        };
        // When it is done, and, among machines that have a core for each, where least is in use.
        let time = |machine: usize| {
            let (load, of) = (&self.load[machine], &self.machines[machine]);
            (load.time_with(of, piece.burden), (load.work + piece.burden.work) / of.rate())
        };
        let mut best = candidates.first().copied().unwrap_or(0);
        for machine in candidates {
            let (this, other) = (time(machine), time(best));
            let order = compare(this.0, other.0)
                .then(compare(this.1, other.1))
                .then(self.cost(piece, machine).cmp(&self.cost(piece, best)));
            if order.is_lt() {
                best = machine;
            }
        }
        (best, why)
    }
}

fn compare(one: f64, other: f64) -> Ordering {
    if (one - other).abs() <= EQUAL { Ordering::Equal } else { one.total_cmp(&other) }
}
