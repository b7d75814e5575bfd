//! Ways to place queens on a board so that none attacks another.

/// Rows of the board.
pub const SIZE: u32 = 14;
/// In how many ways so many queens can be placed on it (OEIS A000170).
pub const WAYS: u64 = 365_596;

/// A part of the work: the columns of the first two queens.
pub type Piece = (u32, u32);

/// All parts.
pub fn pieces() -> Vec<Piece> {
    let columns = || 0..SIZE;
    columns().flat_map(|first| columns().map(move |second| (first, second))).filter(fits).collect()
}

/// Whether the second queen is not attacked by the first.
fn fits(piece: &Piece) -> bool {
    piece.0.abs_diff(piece.1) > 1
}

/// In how many ways the others can be placed then.
pub fn count((first, second): Piece) -> u64 {
    if !(first < SIZE && second < SIZE && fits(&(first, second))) {
        return 0;
    }
    let (first, second) = (1 << first, 1 << second);
    place(first | second, (first << 2) | (second << 1), (first >> 2) | (second >> 1))
}

/// `columns`, `left`, `right`: the places of the next row that are attacked.
fn place(columns: u32, left: u32, right: u32) -> u64 {
    const ALL: u32 = (1 << SIZE) - 1;
    if columns == ALL {
        return 1;
    }
    let mut free = ALL & !(columns | left | right);
    let mut ways = 0;
    while free != 0 {
        let queen = free & free.wrapping_neg();
        free &= free - 1;
        ways += place(columns | queen, (left | queen) << 1, (right | queen) >> 1);
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_make_the_whole() {
        assert_eq!(pieces().len(), 156);
        assert_eq!(pieces().into_iter().map(count).sum::<u64>(), WAYS);
    }

    #[test]
    fn what_is_no_part_counts_nothing() {
        assert_eq!(count((3, 4)), 0);
        assert_eq!(count((SIZE, 0)), 0);
        assert_eq!(count((0, u32::MAX)), 0);
    }
}
