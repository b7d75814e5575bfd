//! Which pages of an address space are still to be filled, and where in the image each of them is. The program moves,
//! removes and unmaps them meanwhile.

use std::collections::BTreeMap;

use super::order::{Ambiguous, Change, Watched};

/// A run of pages that are still to be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    end: u64,
    /// The address in the image of its first page.
    origin: u64,
}

/// Pages that are still to be filled, by where they are now. All addresses are multiples of a page.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    pending: BTreeMap<u64, Piece>,
    watched: Watched,
}

impl Table {
    /// Notes memory that is watched.
    pub(super) fn watch(&mut self, start: u64, end: u64) {
        self.watched.add(start, end);
    }

    /// Adds pages that are to be filled, at the address that they have in the image.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        match self.pending.range_mut(..=start).next_back() {
            Some((first, piece)) if piece.end == start && piece.origin == *first => piece.end = end,
            _ => drop(self.pending.insert(start, Piece { end, origin: start })),
        }
    }

    /// The first run that is to be filled in a range of addresses: start, end, and the address in the image.
    pub(super) fn first_within(&self, start: u64, end: u64) -> Option<(u64, u64, u64)> {
        let before = self.pending.range(..=start).next_back();
        let (first, piece) = before
            .filter(|(_, piece)| piece.end > start)
            .or_else(|| self.pending.range(start..).next())?;
        let from = (*first).max(start);
        (from < end).then(|| (from, piece.end.min(end), piece.origin + (from - first)))
    }

    /// Whether nothing is to be filled any more.
    pub(super) fn is_done(&self) -> bool {
        self.pending.is_empty()
    }

    /// Bytes that are to be filled.
    pub(super) fn bytes(&self) -> u64 {
        self.pending.iter().map(|(start, piece)| piece.end - start).sum()
    }

    /// These pages are filled, or have lost their content: from now on they are what the kernel has there.
    pub(super) fn forget(&mut self, start: u64, end: u64) {
        drop(self.cut(start, end));
    }

    /// Takes over what the program has done, all of it that was done by now, in whichever order it was told. `forked` takes
    /// children, each with the table of its parent at that time. Returns ranges of which it is to be seen whether anything is
    /// there.
    ///
    /// # Errors
    /// Where their order can't be told.
    pub(super) fn apply<C>(
        &mut self,
        mut changes: Vec<Change<C>>,
        mut forked: impl FnMut(C, Self),
    ) -> Result<Vec<(u64, u64)>, Ambiguous> {
        let doubtful = self.watched.put_in_order(&mut changes)?;
        for change in changes {
            self.watched.apply(&change);
            match change {
                Change::Moved { from, to, length } => self.move_to(from, to, length),
                Change::Removed(start, end) | Change::Unmapped(start, end) => {
                    self.forget(start, end)
                }
                Change::Forked(child) => forked(child, self.clone()),
            }
        }
        Ok(doubtful)
    }

    /// What is to be filled moves with its memory. What was thought to be there is there no more.
    fn move_to(&mut self, from: u64, to: u64, length: u64) {
        let moved = self.cut(from, from.saturating_add(length));
        self.forget(to, to.saturating_add(length));
        for (start, piece) in moved {
            let (start, end) = (start - from + to, piece.end - from + to);
            self.pending.insert(start, Piece { end, origin: piece.origin });
        }
    }

    /// Takes a range out.
    fn cut(&mut self, start: u64, end: u64) -> Vec<(u64, Piece)> {
        let mut taken = Vec::new();
        while let Some((from, to, origin)) = self.first_within(start, end) {
            let Some((first, piece)) = self.pending.range(..=from).next_back() else { break };
            let (first, piece) = (*first, *piece);
            self.pending.remove(&first);
            if first < from {
                self.pending.insert(first, Piece { end: from, origin: piece.origin });
            }
            if to < piece.end {
                let origin = piece.origin + (to - first);
                self.pending.insert(to, Piece { end: piece.end, origin });
            }
            taken.push((from, Piece { end: to, origin }));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::super::order::overlap;
    use super::*;

    /// Page by page: where each is in the image.
    fn pages(table: &Table) -> BTreeMap<u64, u64> {
        let all = table.pending.iter();
        all.flat_map(|(start, piece)| {
            let (start, origin) = (*start, piece.origin);
            (start..piece.end).map(move |page| (page, origin + (page - start)))
        })
        .collect()
    }

    fn origin(table: &Table, at: u64) -> Option<u64> {
        table.first_within(at, at + 1).map(|(_, _, origin)| origin)
    }

    fn table(runs: &[(u64, u64)]) -> Table {
        let mut table = Table::default();
        for (start, end) in runs {
            table.watch(*start, *end);
            table.add(*start, *end);
        }
        table
    }

    #[test]
    fn runs_that_touch_are_one() {
        let mut table = table(&[(0, 4), (4, 8), (10, 12)]);
        assert_eq!((table.pending.len(), table.bytes()), (2, 10));
        assert_eq!(table.first_within(6, 11), Some((6, 8, 6)));
        assert_eq!(table.first_within(8, 11), Some((10, 11, 10)));
        assert_eq!(table.first_within(8, 10), None);
        assert_eq!(
            (origin(&table, 7), origin(&table, 8), origin(&table, 12)),
            (Some(7), None, None)
        );
        table.forget(0, 20);
        assert!(table.is_done() && table.watched.has((3, 4)) && !table.watched.has((8, 10)));
    }

    fn apply(table: &mut Table, changes: &[Change<()>]) -> Result<Vec<(u64, u64)>, Ambiguous> {
        table.apply(changes.to_vec(), |(), _| panic!("nobody has forked"))
    }

    fn moved(from: u64, to: u64, length: u64) -> Change<()> {
        Change::Moved { from, to, length }
    }

    #[test]
    fn what_moves_keeps_its_place_in_the_image() {
        let mut table = table(&[(0, 8)]);
        table.forget(3, 4);
        apply(&mut table, &[moved(2, 22, 4)]).unwrap();
        let expected = [(0, 0), (1, 1), (6, 6), (7, 7), (22, 2), (24, 4), (25, 5)];
        assert_eq!(pages(&table), expected.into());
        // And back again.
        apply(&mut table, &[moved(22, 2, 4)]).unwrap();
        assert_eq!(pages(&table), (0..8).filter(|page| *page != 3).map(|at| (at, at)).collect());
    }

    #[test]
    fn memory_comes_to_where_other_memory_has_gone_whatever_is_told_first() {
        let (go, come) = (moved(8, 50, 4), moved(0, 9, 4));
        for changes in [[go, come], [come, go]] {
            let mut of_two = table(&[(0, 4), (8, 12)]);
            apply(&mut of_two, &changes).unwrap();
            let expected = (0..4).flat_map(|page| [(page + 9, page), (page + 50, page + 8)]);
            assert_eq!(pages(&of_two), expected.collect());
        }
        // To where a mapping has grown, of which nobody has told.
        let (go, come) = (moved(8, 50, 12), moved(0, 14, 4));
        for changes in [[go, come], [come, go]] {
            let mut of_two = table(&[(0, 4), (8, 12)]);
            apply(&mut of_two, &changes).unwrap();
            let expected = (0..4).flat_map(|page| [(page + 14, page), (page + 50, page + 8)]);
            assert_eq!(pages(&of_two), expected.collect());
        }
        let (end, come) = (Change::Unmapped(8, 20), moved(0, 14, 4));
        for changes in [[end, come], [come, end]] {
            let mut of_two = table(&[(0, 4), (8, 12)]);
            apply(&mut of_two, &changes).unwrap();
            assert_eq!(pages(&of_two), (0..4).map(|page| (page + 14, page)).collect());
        }
        // What has come may be what was unmapped.
        let mut of_one = table(&[(0, 4)]);
        let changes = [moved(0, 9, 4), Change::Unmapped(10, 20)];
        assert_eq!(apply(&mut of_one, &changes), Ok(vec![(10, 13)]));
        // One call after the other of the same thread.
        let mut of_one = table(&[(0, 4)]);
        apply(&mut of_one, &[moved(0, 20, 4), moved(20, 40, 4), moved(40, 20, 2)]).unwrap();
        assert_eq!(pages(&of_one), [(20, 0), (21, 1), (42, 2), (43, 3)].into());
    }

    #[test]
    fn what_cannot_be_told_is_not_guessed() {
        let mut of_two = table(&[(0, 4), (8, 12)]);
        let changes = [moved(0, 8, 4), moved(8, 50, 4), moved(8, 60, 4)];
        apply(&mut of_two, &changes).unwrap_err();
    }

    #[test]
    fn a_child_has_what_its_parent_had_when_it_was_forked() {
        let mut parent = table(&[(0, 4)]);
        let changes = vec![Change::Removed(0, 1), Change::Forked(7), Change::Unmapped(1, 3)];
        let mut children = Vec::new();
        parent.apply(changes, |child, table| children.push((child, pages(&table)))).unwrap();
        assert_eq!(pages(&parent), [(3, 3)].into());
        assert_eq!(children, [(7, [(1, 1), (2, 2), (3, 3)].into())]);
    }

    /// A block of memory, as the kernel has it: its first page, its length, and what of the image is in it from there on.
    #[derive(Debug, Clone, Copy)]
    struct Block {
        start: u64,
        length: u64,
        origin: u64,
        content: u64,
    }

    #[test]
    fn calls_of_several_threads_are_told_in_any_order() {
        let mut seed = 5_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        let mut inverted = 0;
        for _ in 0..4000 {
            let content = 6;
            let block =
                |at: u64| Block { start: at * 20, length: content, origin: at * 20, content };
            let mut blocks: Vec<Block> = (0..5).map(block).collect();
            let mut table =
                table(&blocks.iter().map(|b| (b.start, b.start + 6)).collect::<Vec<_>>());
            for _ in 0..4 {
                // Threads that do not wait for each other: each does one thing to a block of its own.
                let mut changes: Vec<Change<()>> = Vec::new();
                for index in (0..blocks.len()).rev() {
                    let Block { start, length, .. } = blocks[index];
                    match next(4) {
                        0 => {
                            blocks.remove(index);
                            changes.push(Change::Unmapped(start, start + length));
                        }
                        1 | 2 => {
                            let longer = length + next(4);
                            let others =
                                blocks.iter().enumerate().filter(|(other, _)| *other != index);
                            let taken: Vec<_> =
                                others.map(|(_, b)| (b.start, b.start + b.length)).collect();
                            // As the kernel does: the first place that is free.
                            let is_free = |to: &u64| {
                                let place = (*to, to + longer);
                                !taken.iter().any(|other| overlap(*other, place))
                                    && !overlap((start, start + length), place)
                            };
                            let Some(to) = (next(60)..400).find(is_free) else { continue };
                            changes.push(moved(start, to, length));
                            (blocks[index].start, blocks[index].length) = (to, longer);
                        }
                        _ => {}
                    }
                }
                let truth = changes.clone();
                for at in (1..changes.len()).rev() {
                    changes.swap(at, next(at as u64 + 1) as usize);
                }
                inverted += usize::from(changes != truth);
                apply(&mut table, &changes).unwrap();
                let found = pages(&table);
                for block in &blocks {
                    for page in 0..block.length {
                        let there = found.get(&(block.start + page)).copied();
                        let expected = (page < block.content).then_some(block.origin + page);
                        assert_eq!(there, expected, "{truth:?} told as {changes:?}");
                    }
                }
            }
        }
        assert!(inverted > 1000, "{inverted}");
    }
}
