//! In which order a program's threads have changed its mappings, of which the kernel tells in any order. The tests are beside
//! what is done by it (`table.rs`).

use std::collections::BTreeMap;

/// Of the calls of several threads it can't be told which came first: what is where is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many threads moved memory to and from {0:#x} at once")]
pub(super) struct Ambiguous(u64);

/// What a program has done to its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change<C> {
    /// mremap(2)
    Moved { from: u64, to: u64, length: u64 },
    /// madvise(2): pages have lost their content.
    Removed(u64, u64),
    /// munmap(2), or another mapping in its place.
    Unmapped(u64, u64),
    /// fork(2), with what the child is to be watched by.
    Forked(C),
}

impl<C> Change<C> {
    /// Where memory is no more.
    fn vacated(&self) -> Option<(u64, u64)> {
        match self {
            Self::Moved { from, length, .. } => Some((*from, from.saturating_add(*length))),
            Self::Unmapped(start, end) => Some((*start, *end)),
            Self::Removed(..) | Self::Forked(_) => None,
        }
    }

    /// Where memory has come to.
    fn occupied(&self) -> Option<(u64, u64)> {
        match self {
            Self::Moved { to, length, .. } => Some((*to, to.saturating_add(*length))),
            _ => None,
        }
    }
}

/// Whether two ranges have anything in common.
pub(super) fn overlap(one: (u64, u64), other: (u64, u64)) -> bool {
    one.0 < other.1 && other.0 < one.1
}

/// Memory that is watched: each mapping's start and end. A mapping may be longer (mremap(2) does not tell by how much).
#[derive(Debug, Clone, Default)]
pub(super) struct Watched(BTreeMap<u64, u64>);

impl Watched {
    /// Adds a mapping.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        self.0.insert(start, end);
    }

    /// Whether any of it lies in a range.
    pub(super) fn has(&self, (start, end): (u64, u64)) -> bool {
        self.0.range(..end).next_back().is_some_and(|(_, last)| *last > start)
    }

    fn cut(&mut self, (start, end): (u64, u64)) {
        while let Some((first, last)) = self.0.range(..end).next_back() {
            let (first, last) = (*first, *last);
            if last <= start {
                return;
            }
            self.0.remove(&first);
            if last > end {
                self.0.insert(end, last);
            }
            if first < start {
                self.0.insert(first, start);
                return;
            }
        }
    }

    /// Takes over a change.
    pub(super) fn apply<C>(&mut self, change: &Change<C>) {
        change.vacated().into_iter().for_each(|range| self.cut(range));
        if let Some((start, end)) = change.occupied() {
            // The kernel has found nothing there.
            self.cut((start, end));
            self.0.insert(start, end);
        }
    }

    /// Puts changes into the order in which they were made. The kernel tells of a change when it is done and others may be made
    /// already: so memory may seem to have come to where other memory has not gone yet. All must be here that were made
    /// by then. Returns ranges that may not be there any more: what was unmapped there may be what has come.
    pub(super) fn put_in_order<C>(
        &self,
        changes: &mut Vec<Change<C>>,
    ) -> Result<Vec<(u64, u64)>, Ambiguous> {
        let mut doubtful = Vec::new();
        // Each goes to the front of another one at most once.
        for _ in 0..=changes.len() * changes.len() {
            let Some((from, to)) = self.misplaced(changes)? else { return Ok(doubtful) };
            let change = changes.remove(from);
            if let Change::Unmapped(start, end) = change {
                let come = changes[to..from].iter().filter_map(Change::occupied);
                let parts = come.map(|(first, last)| (first.max(start), last.min(end)));
                doubtful.extend(parts.filter(|(first, last)| first < last));
            }
            changes.insert(to, change);
        }
        Err(Ambiguous(changes.first().and_then(Change::vacated).map_or(0, |range| range.0)))
    }

    /// Of later changes the first by which memory has gone from a range that is watched now. `None`: without a word.
    fn first_to_go<C>(
        &self,
        range: (u64, u64),
        later: &[Change<C>],
    ) -> Result<Option<usize>, Ambiguous> {
        let mut going: Vec<(usize, (u64, u64), bool)> = Vec::new();
        for (place, change) in later.iter().enumerate() {
            let Some(source) = change.vacated().filter(|source| overlap(*source, range)) else {
                continue;
            };
            let moves = change.occupied().is_some();
            // What begins where nothing was is about what has come.
            if moves && !self.has((source.0, source.0 + 1)) {
                continue;
            }
            if going
                .iter()
                .any(|(_, other, is_move)| overlap(*other, source) && (moves || *is_move))
            {
                return Err(Ambiguous(range.0));
            }
            going.push((place, source, moves));
        }
        Ok(going.first().map(|(place, ..)| *place))
    }

    /// The first that must have come before an earlier one: both places.
    fn misplaced<C>(&self, changes: &[Change<C>]) -> Result<Option<(usize, usize)>, Ambiguous> {
        let mut watched = self.clone();
        for (place, change) in changes.iter().enumerate() {
            let comes_to =
                |range| move |one: &Change<C>| one.occupied().is_some_and(|to| overlap(to, range));
            if let (Change::Unmapped(..), Some(range)) = (change, change.vacated()) {
                // What was unmapped is what was there before, or what has come: that is doubtful then.
                if let Some(before) = changes[..place].iter().position(comes_to(range)) {
                    return Ok(Some((place, before)));
                }
            } else if let (Some(range), Some(source)) = (change.occupied(), change.vacated()) {
                // One mapping moves: what lies behind its beginning has come later.
                let is_behind = |one: &Change<C>| {
                    one.occupied().is_some_and(|to| overlap(to, source) && to.0 > source.0)
                };
                if let Some(before) = changes[..place].iter().position(is_behind) {
                    return Ok(Some((place, before)));
                }
                if watched.has(range) {
                    if let Some(first) = watched.first_to_go(range, &changes[place + 1..])? {
                        return Ok(Some((place + 1 + first, place)));
                    }
                }
            }
            watched.apply(change);
        }
        Ok(None)
    }
}
