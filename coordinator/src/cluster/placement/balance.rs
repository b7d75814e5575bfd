//! Where what departed finishes first.

use super::{Board, Why};

/// Differences in time below this are none.
const EQUAL: f64 = 1e-9;

impl Board<'_> {
    /// Places all that counts as load and has no home, the heaviest first. What was placed.
    pub(super) fn distribute(&mut self) -> Vec<usize> {
        let mut free: Vec<usize> = (0..self.pieces.len())
            .filter(|index| self.pieces[*index].home.is_none() && self.pieces[*index].load > 0)
            .collect();
        free.sort_by_key(|index| {
            let piece = &self.pieces[*index];
            (std::cmp::Reverse((piece.load, piece.bytes)), *index)
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
        let all: f64 = self.load.iter().map(|load| f64::from(*load)).sum::<f64>()
            + free.iter().map(|index| f64::from(self.pieces[*index].load)).sum::<f64>();
        let rates: f64 = self.machines.iter().map(super::Machine::rate).sum();
        self.machines.iter().map(|machine| all * machine.rate() / rates).collect()
    }

    fn best(&self, index: usize, shares: &[f64]) -> (usize, Why) {
        let piece = &self.pieces[index];
        let fits = |machine: &usize| self.fit[piece.image][*machine];
        let all = || (0..self.machines.len()).filter(fits);
        // First those with a number to be filled, then those without one, below their share if
        // there are any.
        let lacking = |machine: &usize| {
            self.pins[*machine].is_some_and(|most| self.own[*machine] + piece.load <= most)
        };
        let unpinned = |machine: &usize| self.pins[*machine].is_none();
        let below = |machine: &usize| f64::from(self.load[*machine]) < shares[*machine] - EQUAL;
        let (candidates, why): (Vec<usize>, Why) = if all().any(|machine| lacking(&machine)) {
            (all().filter(lacking).collect(), Why::Pinned)
        } else if all().any(|machine| unpinned(&machine) && below(&machine)) {
            (all().filter(|machine| unpinned(machine) && below(machine)).collect(), Why::Balanced)
        } else if all().any(|machine| unpinned(&machine)) {
            (all().filter(unpinned).collect(), Why::Balanced)
        } else {
            (all().collect(), Why::Balanced)
        };
        let time = |machine: usize| {
            f64::from(self.load[machine].saturating_add(piece.load)) / self.machines[machine].rate()
        };
        let mut best = candidates.first().copied().unwrap_or(0);
        for machine in candidates {
            let (this, other) = (time(machine), time(best));
            let sooner = this < other - EQUAL;
            let equal = (this - other).abs() <= EQUAL;
            if sooner || (equal && self.cost(piece, machine) < self.cost(piece, best)) {
                best = machine;
            }
        }
        (best, why)
    }
}
