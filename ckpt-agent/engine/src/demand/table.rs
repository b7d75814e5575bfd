//! Which pages of an address space are still to be filled, and where in the image each of them is. The program moves,
//! removes and unmaps them meanwhile.

use std::collections::BTreeMap;

/// An order of the program's calls in which two of them are told the other way round: what is where can't be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("memory was moved to {0:#x}, where other memory has not gone yet")]
pub(super) struct OutOfOrder(u64);

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
    /// All memory that is watched: start and end.
    watched: BTreeMap<u64, u64>,
}

impl Table {
    /// Notes memory that is watched.
    pub(super) fn watch(&mut self, start: u64, end: u64) {
        self.watched.insert(start, end);
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

    /// Whether any memory that is watched lies in a range.
    pub(super) fn is_watched(&self, start: u64, end: u64) -> bool {
        self.watched.range(..end).next_back().is_some_and(|(_, last)| *last > start)
    }

    /// These pages are filled, or have lost their content: from now on they are what the kernel has there.
    pub(super) fn forget(&mut self, start: u64, end: u64) {
        drop(self.cut(start, end));
    }

    /// This memory is no more.
    pub(super) fn unmap(&mut self, start: u64, end: u64) {
        self.forget(start, end);
        self.cut_watched(start, end);
    }

    /// Memory has moved (mremap(2)).
    pub(super) fn move_to(&mut self, from: u64, to: u64, length: u64) -> Result<(), OutOfOrder> {
        let (end, new_end) = (from.saturating_add(length), to.saturating_add(length));
        let moved = self.cut(from, end);
        self.cut_watched(from, end);
        // What had been there was unmapped before, and that was told before.
        if self.is_watched(to, new_end) || self.first_within(to, new_end).is_some() {
            return Err(OutOfOrder(to));
        }
        self.watched.insert(to, new_end);
        for (start, piece) in moved {
            let start_now = start - from + to;
            let end_now = piece.end - from + to;
            self.pending.insert(start_now, Piece { end: end_now, origin: piece.origin });
        }
        Ok(())
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

    fn cut_watched(&mut self, start: u64, end: u64) {
        while let Some((first, last)) = self.watched.range(..end).next_back() {
            let (first, last) = (*first, *last);
            if last <= start {
                return;
            }
            self.watched.remove(&first);
            if last > end {
                self.watched.insert(end, last);
            }
            if first < start {
                self.watched.insert(first, start);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
        assert!(table.is_done() && table.is_watched(3, 4));
    }

    #[test]
    fn what_moves_keeps_its_place_in_the_image() {
        let mut table = table(&[(0, 8)]);
        table.forget(3, 4);
        table.move_to(2, 22, 4).unwrap();
        assert_eq!(
            pages(&table),
            [(0, 0), (1, 1), (6, 6), (7, 7), (22, 2), (24, 4), (25, 5)].into()
        );
        // And back again.
        table.move_to(22, 2, 4).unwrap();
        assert_eq!(pages(&table), (0..8).filter(|page| *page != 3).map(|at| (at, at)).collect());
    }

    #[test]
    fn memory_never_moves_to_where_other_memory_is() {
        let mut of_two = table(&[(0, 4), (8, 12)]);
        assert_eq!(of_two.clone().move_to(0, 9, 4), Err(OutOfOrder(9)));
        // Nor where all of it is filled.
        of_two.forget(8, 12);
        assert_eq!(of_two.clone().move_to(0, 11, 4), Err(OutOfOrder(11)));
        of_two.unmap(8, 12);
        of_two.move_to(0, 9, 4).unwrap();
        assert_eq!(pages(&of_two), (0..4).map(|page| (page + 9, page)).collect());
    }

    #[test]
    fn as_if_pages_were_kept_one_by_one() {
        let mut seed = 5_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for _ in 0..2000 {
            let mut table = table(&[(0, 10), (20, 30)]);
            let mut single = pages(&table);
            for _ in 0..8 {
                let (start, length) = (next(40), 1 + next(8));
                let end = start + length;
                match next(3) {
                    0 => table.forget(start, end),
                    1 => table.unmap(start, end),
                    _ => {
                        let to = 40 + next(100);
                        if table.move_to(start, to, length).is_err() {
                            break;
                        }
                        let moved: Vec<(u64, u64)> = single
                            .range(start..end)
                            .map(|(at, from)| (at - start + to, *from))
                            .collect();
                        single.retain(|at, _| !(start..end).contains(at));
                        single.extend(moved);
                        assert_eq!(pages(&table), single);
                        continue;
                    }
                }
                single.retain(|at, _| !(start..end).contains(at));
                assert_eq!(pages(&table), single);
                for at in 0..150 {
                    assert_eq!(origin(&table, at), single.get(&at).copied());
                    assert!(!single.contains_key(&at) || table.is_watched(at, at + 1));
                }
            }
        }
    }
}
