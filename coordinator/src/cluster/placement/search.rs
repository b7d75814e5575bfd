//! Where it is known how much everybody has to do: a search through all ways to deal out what departed, as far as there
//! are not too many, for one that is done sooner than the first plan.

use super::{Draft, Why};

/// More pieces and machines than these are left as they were first placed.
const MOST_PIECES: usize = 24;
const MOST_MACHINES: usize = 16;
/// Steps of the search at most.
const MOST_STEPS: u32 = 100_000;
/// What is sooner by less than this part is not sooner: figures are not known better.
const WORTH: f64 = 0.01;
/// Differences in time below this are none.
const EQUAL: f64 = 1e-9;

struct Search<'a> {
    free: &'a [usize],
    /// Where each is, so far.
    homes: Vec<usize>,
    best: Option<Vec<usize>>,
    /// A plan must end before then to be better.
    limit: f64,
    /// No plan ends before.
    bound: f64,
    steps: u32,
}

impl Draft<'_> {
    /// Places these anew, if there is a way that is done sooner. Nobody else is touched.
    pub(super) fn search(&mut self, free: &[usize]) {
        let is_pinned = self.pins.iter().any(Option::is_some);
        if is_pinned || free.len() > MOST_PIECES || self.machines.len() > MOST_MACHINES {
            return;
        }
        let first = self.finish();
        let before: Vec<_> = free.iter().map(|piece| self.pieces[*piece].home).collect();
        free.iter().for_each(|piece| self.take(*piece));
        let mut search = Search {
            free,
            homes: Vec::with_capacity(free.len()),
            best: None,
            limit: first * (1.0 - WORTH),
            bound: self.bound(free),
            steps: 0,
        };
        search.go(self, self.finish());
        match search.best {
            Some(homes) => {
                for (piece, home) in free.iter().zip(homes) {
                    self.put(*piece, home, Why::Balanced);
                }
            }
            None => {
                for (piece, home) in free.iter().zip(before) {
                    if let Some((machine, why)) = home {
                        self.put(*piece, machine, why);
                    }
                }
            }
        }
    }

    /// When the job is done at the earliest: with all machines at work until then, and with what stays where it is.
    fn bound(&self, free: &[usize]) -> f64 {
        let fixed = self.load.iter().zip(&self.own).filter(|(_, own)| **own > 0);
        let all: f64 = fixed.map(|(load, _)| load.work).sum::<f64>()
            + free.iter().map(|piece| self.pieces[*piece].burden.work).sum::<f64>();
        let rates: f64 = self.machines.iter().map(super::Machine::rate).sum();
        (all / rates).max(self.finish())
    }

    /// Whether two pieces can change places without any difference.
    fn are_twins(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.pieces[one], &self.pieces[other]);
        one.burden == other.burden && self.fit.are_alike(one.image, other.image)
    }
}

impl Search<'_> {
    /// Deals out the rest, where the job is done at `time` with those that have a home.
    fn go(&mut self, draft: &mut Draft<'_>, time: f64) {
        let depth = self.homes.len();
        let Some(piece) = self.free.get(depth).copied() else {
            self.best = Some(self.homes.clone());
            self.limit = time * (1.0 - EQUAL) - EQUAL;
            return;
        };
        let burden = draft.pieces[piece].burden;
        let image = draft.pieces[piece].image;
        // Twins in rising order only.
        let twin = depth.checked_sub(1).filter(|last| draft.are_twins(self.free[*last], piece));
        let from = twin.map_or(0, |last| self.homes[last]);
        let mut ways: Vec<(f64, usize)> = (from..draft.machines.len())
            .filter(|machine| draft.fit.is(image, *machine))
            .map(|machine| {
                let with = draft.load[machine].time_with(&draft.machines[machine], burden);
                (with.max(time), machine)
            })
            .collect();
        ways.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        for (end, machine) in ways {
            self.steps += 1;
            if end > self.limit || self.steps > MOST_STEPS || self.limit <= self.bound {
                return;
            }
            draft.put(piece, machine, Why::Balanced);
            self.homes.push(machine);
            self.go(draft, end);
            self.homes.pop();
            draft.take(piece);
        }
    }
}
