//! Ranges of pages.

/// Ranges of addresses (start, end), sorted, that do not touch each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Of ranges in ascending order that do not overlap, as the kernel tells them.
    pub fn of(all: Vec<(u64, u64)>) -> Self {
        Self(all)
    }

    /// Adds one that begins behind the start of the last, and makes one of both where they touch.
    fn add(&mut self, start: u64, end: u64) {
        match self.0.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => self.0.push((start, end)),
        }
    }

    /// The parts of them that lie between two addresses.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let first = self.0.partition_point(|(_, last)| *last <= start);
        let some = self.0[first..].iter().take_while(move |(from, _)| *from < end);
        some.map(move |(from, to)| (*from.max(&start), *to.min(&end)))
    }

    /// Not more than so many of them, the longest ones.
    #[must_use]
    pub fn longest(mut self, most: usize, page: u64) -> Self {
        let mut least = page;
        while self.0.len() > most {
            least = least.saturating_mul(2);
            self.0.retain(|(start, end)| end - start >= least);
        }
        self
    }

    /// How many bytes they have together.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let (mut all, mut at, mut of_other) = (Vec::new(), 0, 0);
        while let (Some(one), Some(two)) = (self.0.get(at), other.0.get(of_other)) {
            let (start, end) = (one.0.max(two.0), one.1.min(two.1));
            if start < end {
                all.push((start, end));
            }
            if one.1 <= two.1 {
                at += 1;
            } else {
                of_other += 1;
            }
        }
        Self(all)
    }

    /// What is in one of both.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let (mut all, mut of_other) = (Self::default(), other.0.iter().peekable());
        for (start, end) in &self.0 {
            while let Some((before, to)) = of_other.next_if(|(other, _)| other < start) {
                all.add(*before, *to);
            }
            all.add(*start, *end);
        }
        of_other.for_each(|(start, end)| all.add(*start, *end));
        all
    }

    /// Which of 64 pages from this address on are whole in here: bit N is page N.
    pub fn pages_from(&self, address: u64, page: u64) -> u64 {
        let last = address.saturating_add(64 * page);
        let first = self.0.partition_point(|(_, end)| *end <= address);
        let mut bits = 0;
        for (start, end) in self.0[first..].iter().take_while(|(start, _)| *start < last) {
            let from = (start.max(&address) - address).div_ceil(page);
            let to = (end.min(&last) - address) / page;
            for index in from..to {
                bits |= 1 << index;
            }
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 0x1000;

    fn ranges(all: &[(u64, u64)]) -> Ranges {
        Ranges::of(all.iter().map(|(start, end)| (start * PAGE, end * PAGE)).collect())
    }

    /// Page by page, as a list of numbers.
    fn pages(of: &Ranges) -> Vec<u64> {
        of.0.iter().flat_map(|(start, end)| start / PAGE..end / PAGE).collect()
    }

    #[test]
    fn of_two_what_both_have_and_what_one_has() {
        let (none, one) = (Ranges::default(), ranges(&[(1, 4), (6, 10), (12, 13)]));
        assert!(none.and(&one).is_empty() && one.and(&none).is_empty());
        assert_eq!(one.and(&one), one);
        let other = ranges(&[(0, 2), (3, 7), (9, 20)]);
        assert_eq!(one.and(&other), ranges(&[(1, 2), (3, 4), (6, 7), (9, 10), (12, 13)]));
        assert_eq!(one.and(&other), other.and(&one));
        assert_eq!(one.or(&other), ranges(&[(0, 20)]));
        assert_eq!(one.or(&none), one);
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for _ in 0..500 {
            let mut some = || {
                let (mut at, mut all) = (0, Vec::new());
                for _ in 0..next(6) {
                    let start = at + 1 + next(9);
                    at = start + 1 + next(9);
                    all.push((start, at));
                }
                ranges(&all)
            };
            let (one, two) = (some(), some());
            let of_two = pages(&two);
            let both: Vec<u64> =
                pages(&one).into_iter().filter(|page| of_two.contains(page)).collect();
            assert_eq!(pages(&one.and(&two)), both, "{one:?} {two:?}");
            let mut either = [pages(&one), of_two].concat();
            either.sort_unstable();
            either.dedup();
            let found = one.or(&two);
            assert_eq!(pages(&found), either, "{one:?} {two:?}");
            assert!(found.0.windows(2).all(|pair| pair[0].1 < pair[1].0), "{found:?}");
        }
    }

    #[test]
    fn the_longest_stay() {
        let some = ranges(&[(1, 2), (3, 9), (10, 12), (20, 24)]);
        assert_eq!(some.clone().longest(4, PAGE), some);
        assert_eq!(some.clone().longest(3, PAGE), ranges(&[(3, 9), (10, 12), (20, 24)]));
        assert_eq!(some.clone().longest(2, PAGE), ranges(&[(3, 9), (20, 24)]));
        assert!(some.longest(0, PAGE).is_empty());
    }

    #[test]
    fn parts_within_end_where_that_ends() {
        let some = ranges(&[(1, 4), (6, 10), (12, 13)]);
        let within = |start, end| -> Vec<_> {
            let parts = some.within(start * PAGE, end * PAGE);
            parts.map(|(start, end)| (start / PAGE, end / PAGE)).collect()
        };
        assert_eq!(within(0, 20), [(1, 4), (6, 10), (12, 13)]);
        assert_eq!(within(3, 7), [(3, 4), (6, 7)]);
        assert_eq!(within(4, 6), []);
        assert_eq!(within(12, 13), [(12, 13)]);
    }

    #[test]
    fn pages_of_a_window_are_bits() {
        let some = ranges(&[(60, 66), (70, 71), (127, 200)]);
        assert_eq!(some.pages_from(64 * PAGE, PAGE), 0b11 | 1 << 6 | 1 << 63);
        assert_eq!(some.pages_from(128 * PAGE, PAGE), u64::MAX);
        assert_eq!(some.pages_from(0, PAGE), 0b1111 << 60);
        assert_eq!(some.pages_from(256 * PAGE, PAGE), 0);
        // A range of smaller pages than these has none of them whole.
        assert_eq!(Ranges::of(vec![(100, 300)]).pages_from(0, PAGE), 0);
    }
}
