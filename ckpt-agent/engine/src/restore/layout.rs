//! Where things go while a helper's memory is replaced: holes that neither the old nor the new
//! layout uses.

use super::super::arch::{Architecture, Current};
use super::super::error::{EngineError, Result};

/// ObjectKind kept between a hole and its neighbours: stacks may grow, and neighbours must not merge.
const GAP: u64 = 16 * 1024 * 1024;
/// No hole is looked for below this address.
const LOWEST: u64 = 256 * 1024 * 1024;

/// Address ranges in use.
#[derive(Debug, Clone, Default)]
pub struct Occupied {
    ranges: Vec<(u64, u64)>,
    /// Holes are looked for above first.
    preferred: u64,
}

impl Occupied {
    /// Adds a range.
    pub fn add(&mut self, start: u64, end: u64) {
        self.ranges.push((start, end));
    }

    /// Holes are looked for above this address from now on, as long as there are any.
    pub fn prefer_above(&mut self, address: u64) {
        self.preferred = address;
    }

    /// Takes the lowest hole of this length.
    ///
    /// # Errors
    /// Where the address space is full.
    pub fn take(&mut self, length: u64) -> Result<u64> {
        let above = (self.preferred + GAP).next_multiple_of(1 << 16).max(LOWEST);
        self.take_above(above, length).or_else(|_| self.take_above(LOWEST, length))
    }

    fn take_above(&mut self, lowest: u64, length: u64) -> Result<u64> {
        self.ranges.sort_unstable();
        let mut at = lowest;
        for &(start, end) in &self.ranges {
            if start >= at + length + GAP {
                break;
            }
            at = at.max((end + GAP).next_multiple_of(1 << 16));
        }
        if at + length + GAP > Current::user_top() {
            return Err(EngineError::odd("address space", "no hole in it"));
        }
        self.add(at, at + length);
        Ok(at)
    }
}

/// What lies between these ranges, from 0 to the top of user space.
pub fn gaps(mut keep: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    keep.sort_unstable();
    let mut gaps = Vec::new();
    let mut at = 0;
    for (start, end) in keep {
        if start > at {
            gaps.push((at, start));
        }
        at = at.max(end);
    }
    if at < Current::user_top() {
        gaps.push((at, Current::user_top()));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_above_where_they_can_be() {
        let mut occupied = Occupied::default();
        let heap = Current::user_top() / 2;
        occupied.prefer_above(heap);
        assert!(occupied.take(1 << 20).unwrap() > heap);
        occupied.prefer_above(Current::user_top() - 4096);
        assert!(occupied.take(1 << 20).unwrap() < heap);
    }

    #[test]
    fn holes_do_not_touch_anything() {
        let mut occupied = Occupied::default();
        occupied.add(0x40_0000, 0x50_0000);
        occupied.add(0x2000_0000, 0x3000_0000);
        let first = occupied.take(1 << 20).unwrap();
        let second = occupied.take(1 << 20).unwrap();
        for (start, end) in [(0x40_0000, 0x50_0000), (0x2000_0000, 0x3000_0000)] {
            for hole in [first, second] {
                assert!(hole + (1 << 20) <= start || hole >= end);
            }
        }
        assert!(first + (1 << 20) <= second || second + (1 << 20) <= first);
    }

    #[test]
    fn gaps_complement() {
        assert_eq!(
            gaps(vec![(0x3000, 0x4000), (0x1000, 0x2000)]),
            vec![(0, 0x1000), (0x2000, 0x3000), (0x4000, Current::user_top())]
        );
    }
}
