//! What a newcomer takes off machines that have more to do.

use super::{Draft, Piece, Why};
use std::collections::BTreeSet;

/// Differences in time below this are none.
const EQUAL: f64 = 1e-9;
/// How much sooner the one who takes a piece must be done with it than the one who gives it would have been: speeds are
/// not known better.
const MARGIN: f64 = 1.03;

impl Draft<'_> {
    /// Moves pieces to these machines, one by one, from whichever has the most to do for its speed, as long as
    /// that machine and the one that takes the piece both finish sooner than it would have alone. A piece whose
    /// machine the user has named stays.
    pub(super) fn level(&mut self, targets: &BTreeSet<usize>) {
        let mut settled = BTreeSet::new();
        while let Some(from) = self.slowest(&settled) {
            match self.best_relief(from, targets) {
                Some((piece, to)) => {
                    self.take(piece);
                    self.put(piece, to, Why::Joined);
                }
                None => drop(settled.insert(from)),
            }
        }
    }

    /// When the job is done, where one unit of work is what a process does in a second on a core of speed 1:
    /// all its processes have the same to do, and the last one counts.
    pub(super) fn finish(&self) -> f64 {
        let busy = (0..self.machines.len()).filter(|machine| self.own[*machine] > 0);
        busy.map(|machine| self.load[machine].time(&self.machines[machine])).fold(0.0, f64::max)
    }

    /// The machine with the latest end, but for some.
    fn slowest(&self, but: &BTreeSet<usize>) -> Option<usize> {
        let time = |machine: &usize| self.load[*machine].time(&self.machines[*machine]);
        let busy = (0..self.machines.len())
            .filter(|machine| self.own[*machine] > 0 && !but.contains(machine));
        busy.max_by(|one, other| time(one).total_cmp(&time(other)).then(other.cmp(one)))
    }

    /// The piece whose move to one of these machines helps most; among equals, the one of the fewest bytes.
    fn best_relief(&self, from: usize, targets: &BTreeSet<usize>) -> Option<(usize, usize)> {
        if self.pins[from].is_some() {
            return None;
        }
        let now = self.load[from].time(&self.machines[from]);
        let mut best: Option<(f64, u64, usize, usize)> = None;
        for (index, piece) in self.pieces.iter().enumerate() {
            if piece.load == 0 || piece.home.is_none_or(|(home, _)| home != from) {
                continue;
            }
            let left = self.load[from].time_without(&self.machines[from], piece.burden);
            for to in targets.iter().copied().filter(|to| *to != from) {
                if !self.fit.is(piece.image, to) || self.pins[to].is_some() {
                    continue;
                }
                let there = self.load[to].time_with(&self.machines[to], piece.burden);
                let later = left.max(there);
                if left >= now - EQUAL || there * MARGIN >= now - EQUAL {
                    continue;
                }
                let cost = self.cost(piece, to);
                let better = best.is_none_or(|(time, bytes, ..)| {
                    later < time - EQUAL || (later <= time + EQUAL && cost < bytes)
                });
                if better {
                    best = Some((later, cost, index, to));
                }
            }
        }
        best.map(|(_, _, piece, to)| (piece, to))
    }

    pub(super) fn take(&mut self, piece: usize) {
        let Piece { load, burden, .. } = self.pieces[piece];
        if let Some((home, _)) = self.pieces[piece].home.take() {
            self.load[home].remove(burden);
            self.own[home] = self.own[home].saturating_sub(load);
        }
    }
}
