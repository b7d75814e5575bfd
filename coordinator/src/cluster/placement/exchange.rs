//! Among plans that load the machines alike: the one that moves the fewest bytes.
//!
//! Units with the same to do are exchanged around cycles of machines, as long as that saves anything:
//! a cycle of negative cost in the graph whose edge from A to B costs what the best unit on A
//! would cost more on B (Bellman and Ford find it). Where there is none, no exchange of any kind
//! saves anything.

use super::{Draft, Piece};
use std::collections::{BTreeMap, BTreeSet};

/// Rounds at most: each saves at least a byte, most save an image.
const MOST_ROUNDS: usize = 10_000;

#[derive(Clone, Copy)]
struct Edge {
    cost: i128,
    piece: usize,
}

impl Draft<'_> {
    pub(super) fn exchange(&mut self, moved: &[usize]) {
        let alike = |index: usize| {
            let Piece { load, burden, .. } = &self.pieces[index];
            (*load, burden.work.to_bits(), burden.heaviest.to_bits())
        };
        let mut classes: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for index in moved {
            classes.entry(alike(*index)).or_default().push(*index);
        }
        for class in classes.into_values() {
            for _ in 0..MOST_ROUNDS {
                if !self.improve(&class) {
                    break;
                }
            }
        }
    }

    fn improve(&mut self, class: &[usize]) -> bool {
        // No cycle goes through a machine that has nothing to give.
        let homes: BTreeSet<usize> =
            class.iter().filter_map(|index| Some(self.pieces[*index].home?.0)).collect();
        let homes: Vec<usize> = homes.into_iter().collect();
        let machines = homes.len();
        let mut edges: Vec<Option<Edge>> = vec![None; machines * machines];
        for index in class {
            let piece = &self.pieces[*index];
            let Some((home, _)) = piece.home else { continue };
            let Ok(from) = homes.binary_search(&home) else { continue };
            let others = (0..machines).filter(|to| *to != from);
            for to in others.filter(|to| self.fit.is(piece.image, homes[*to])) {
                let there = i128::from(self.cost(piece, homes[to]));
                let cost = there - i128::from(self.cost(piece, home));
                let edge = &mut edges[from * machines + to];
                if edge.is_none_or(|known| cost < known.cost) {
                    *edge = Some(Edge { cost, piece: *index });
                }
            }
        }
        let cycle = negative_cycle(machines, &edges);
        for (from, to) in &cycle {
            if let Some(edge) = edges[from * machines + to] {
                if let Some((home, _)) = &mut self.pieces[edge.piece].home {
                    *home = homes[*to];
                }
            }
        }
        !cycle.is_empty()
    }
}

/// The edges of a cycle with a negative sum; empty where there is none.
fn negative_cycle(machines: usize, edges: &[Option<Edge>]) -> Vec<(usize, usize)> {
    let mut distance = vec![0_i128; machines];
    let mut nearer = vec![true; machines];
    let mut before: Vec<Option<usize>> = vec![None; machines];
    let mut relaxed = None;
    for _ in 0..machines {
        relaxed = None;
        for from in 0..machines {
            // What leads from where nothing has changed since was looked at already.
            if !std::mem::take(&mut nearer[from]) {
                continue;
            }
            for to in 0..machines {
                if let Some(edge) = edges[from * machines + to] {
                    if distance[from] + edge.cost < distance[to] {
                        distance[to] = distance[from] + edge.cost;
                        before[to] = Some(from);
                        nearer[to] = true;
                        relaxed = Some(to);
                    }
                }
            }
        }
        if relaxed.is_none() {
            break;
        }
    }
    let Some(mut at) = relaxed else { return Vec::new() };
    // After so many steps back one is in the cycle for certain.
    for _ in 0..machines {
        at = before[at].unwrap_or(at);
    }
    let mut cycle = Vec::new();
    let start = at;
    while let Some(from) = before[at] {
        cycle.push((from, at));
        at = from;
        if at == start || cycle.len() > machines {
            break;
        }
    }
    cycle
}
