//! Daemons: processes that wait for others. They are no load, and go to their children.

use super::{Draft, Why};
use std::cmp::Reverse;
use std::collections::BTreeMap;

impl Draft<'_> {
    /// Places what is left: units that count for nothing, children before their parents.
    pub(super) fn place_daemons(&mut self) {
        if self.pieces.iter().all(|piece| piece.home.is_some()) {
            return;
        }
        // (image, pid) -> piece
        let mut piece_of: BTreeMap<(usize, i32), usize> = BTreeMap::new();
        for (index, piece) in self.pieces.iter().enumerate() {
            for unit in &piece.units {
                for pid in &self.images[piece.image].units[*unit].pids {
                    piece_of.insert((piece.image, *pid), index);
                }
            }
        }
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); self.pieces.len()];
        for (image, of) in self.images.iter().enumerate() {
            for (pid, parent) in &of.parents {
                let pair = (piece_of.get(&(image, *pid)), piece_of.get(&(image, *parent)));
                if let (Some(child), Some(parent)) = pair {
                    if child != parent {
                        children[*parent].push(*child);
                    }
                }
            }
        }
        let mut left: Vec<usize> =
            (0..self.pieces.len()).filter(|index| self.pieces[*index].home.is_none()).collect();
        while !left.is_empty() {
            let ready = |index: &usize| {
                children[*index].iter().all(|child| self.pieces[*child].home.is_some())
            };
            // Units can be each other's parents: then whoever comes first.
            let at = left.iter().position(ready).unwrap_or(0);
            let index = left.remove(at);
            self.place_daemon(index, &children[index]);
        }
    }

    fn place_daemon(&mut self, index: usize, children: &[usize]) {
        let piece = &self.pieces[index];
        let mut there = vec![0_usize; self.machines.len()];
        for child in children {
            if let Some((machine, _)) = self.pieces[*child].home {
                there[machine] += 1;
            }
        }
        let best = (0..self.machines.len())
            .filter(|machine| self.fit.is(piece.image, *machine))
            .min_by_key(|machine| {
                let time = self.load[*machine].work / self.machines[*machine].rate();
                // Thousandths are fine enough for a tie of things that are no load.
                let time = (time * 1000.0) as u64;
                (Reverse(there[*machine]), self.cost(piece, *machine), time, *machine)
            });
        if let Some(machine) = best {
            let why = if there[machine] > 0 { Why::WithChildren } else { Why::Balanced };
            self.put(index, machine, why);
        }
    }
}
