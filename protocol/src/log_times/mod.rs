//! When the pieces of a job's log were written, and what wrote them: an index beside the log. It is bounded: of a long
//! log, older pieces are joined, so that their times get coarser. What it does not know of is a gap, never a guess.
//!
//! - `file`: on disk.

mod file;

pub use file::{NAME, TimesFile, behind, read, write};

use serde::{Deserialize, Serialize};

/// Pieces that are remembered.
pub const MOST: usize = 4096;

/// What is written within so many milliseconds, from one origin, is one piece.
const WINDOW_MS: u64 = 100;

/// Pieces that are joined take no more than such a part of the time since then.
const COARSENESS: u64 = 64;

/// What wrote a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The job, to its standard output or its terminal.
    Output,
    /// The job, to its standard error.
    Error,
    /// ckptd: a line in brackets.
    Ckptd,
    /// Several of them: pieces that were joined.
    Mixed,
}

/// A piece of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Bytes of the log before it.
    pub start: u64,
    /// Bytes of the log up to its end.
    pub end: u64,
    /// When its first byte came, in milliseconds since 1970 UTC.
    pub at_ms: u64,
    /// How much later its last byte came.
    pub span_ms: u32,
    /// What wrote it.
    pub origin: Origin,
}

impl Piece {
    /// When its last byte came.
    #[must_use]
    pub fn until_ms(&self) -> u64 {
        match self.span_ms {
            // As long as can be told, or longer.
            u32::MAX => u64::MAX,
            span => self.at_ms.saturating_add(span.into()),
        }
    }

    /// The part of it within these places of the log.
    #[must_use]
    pub fn within(self, start: u64, end: u64) -> Option<Self> {
        let part = Self { start: self.start.max(start), end: self.end.min(end), ..self };
        (part.start < part.end).then_some(part)
    }

    /// Both of them, and what lies between. Whatever is not known of that, it came between their times.
    fn joined(self, next: Self) -> Self {
        let at_ms = self.at_ms.min(next.at_ms);
        let span = self.until_ms().max(next.until_ms()) - at_ms;
        let alike = self.origin == next.origin && self.end == next.start;
        Self {
            start: self.start,
            end: next.end,
            at_ms,
            span_ms: u32::try_from(span).unwrap_or(u32::MAX),
            origin: if alike { self.origin } else { Origin::Mixed },
        }
    }

    /// Whether the next piece is no more than this one's continuation.
    fn goes_on_with(&self, next: &Self) -> bool {
        let is_near = next.at_ms >= self.at_ms
            && (next.at_ms == self.at_ms || next.until_ms() - self.at_ms <= WINDOW_MS);
        self.end == next.start && self.origin == next.origin && is_near
    }
}

/// What has changed with a piece more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Added {
    /// Nothing.
    Nothing,
    /// The last piece is longer, or there is one more.
    Last,
    /// Any of them.
    All,
}

/// The pieces of a log, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Times {
    pieces: Vec<Piece>,
}

impl Times {
    /// Those pieces that follow each other and lie within a log of this length.
    #[must_use]
    pub fn of(pieces: impl IntoIterator<Item = Piece>, length: u64) -> Self {
        let mut times = Self::default();
        for piece in pieces {
            if let Some(piece) = piece.within(0, length) {
                times.add(piece);
            }
        }
        times
    }

    /// All of them.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// One more; nothing of one that is not behind the others.
    fn add(&mut self, piece: Piece) -> Added {
        if piece.start >= piece.end || self.pieces.last().is_some_and(|last| piece.start < last.end)
        {
            return Added::Nothing;
        }
        if let Some(last) = self.pieces.last_mut().filter(|last| last.goes_on_with(&piece)) {
            *last = last.joined(piece);
            return Added::Last;
        }
        let is_full = self.pieces.len() >= MOST;
        if is_full {
            self.thin();
        }
        self.pieces.push(piece);
        if is_full { Added::All } else { Added::Last }
    }

    /// Joins neighbours whose time together is short beside their age; where that leaves too many, all two by two.
    fn thin(&mut self) {
        let newest = self.pieces.last().map_or(0, |last| last.at_ms);
        let is_short = |both: &Piece| {
            let age = newest.saturating_sub(both.at_ms);
            u64::from(both.span_ms) <= (age / COARSENESS).max(WINDOW_MS)
        };
        let mut kept: Vec<Piece> = Vec::with_capacity(self.pieces.len());
        for piece in std::mem::take(&mut self.pieces) {
            match kept.last_mut().map(|last| (last.joined(piece), last)) {
                Some((both, last)) if is_short(&both) => *last = both,
                _ => kept.push(piece),
            }
        }
        let join = |pair: &[Piece]| pair.iter().copied().reduce(Piece::joined);
        self.pieces = match kept.len() > MOST / 4 * 3 {
            true => kept.chunks(2).filter_map(join).collect(),
            false => kept,
        };
    }

    /// The log is cut to a length. Whether that changes anything.
    fn cut(&mut self, length: u64) -> bool {
        let is_behind = self.pieces.last().is_some_and(|last| last.end > length);
        if is_behind {
            *self = Self::of(std::mem::take(&mut self.pieces), length);
        }
        is_behind
    }

    /// What is known of the log between two places.
    #[must_use]
    pub fn between(&self, start: u64, end: u64) -> Vec<Piece> {
        let first = self.pieces.partition_point(|piece| piece.end <= start);
        let pieces = self.pieces.iter().skip(first).take_while(|piece| piece.start < end);
        pieces.filter_map(|piece| piece.within(start, end)).collect()
    }

    /// The piece that a byte of the log is in.
    #[must_use]
    pub fn at(&self, place: u64) -> Option<&Piece> {
        let first = self.pieces.partition_point(|piece| piece.end <= place);
        self.pieces.get(first).filter(|piece| piece.start <= place)
    }

    /// The place in the log before which everything is known to be older than that.
    #[must_use]
    pub fn since(&self, at_ms: u64) -> u64 {
        let older = self.pieces.iter().take_while(|piece| piece.until_ms() < at_ms);
        older.last().map_or(0, |last| last.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u64, end: u64, at_ms: u64, origin: Origin) -> Piece {
        Piece { start, end, at_ms, span_ms: 0, origin }
    }

    #[test]
    fn what_comes_at_once_from_one_origin_is_one_piece() {
        let mut times = Times::default();
        times.add(piece(0, 10, 1000, Origin::Output));
        times.add(piece(10, 20, 1050, Origin::Output));
        times.add(piece(20, 30, 1060, Origin::Error));
        times.add(piece(30, 40, 1300, Origin::Error));
        // Of these bytes it is known already.
        times.add(piece(35, 45, 1400, Origin::Error));
        // Between 40 and 50 nothing is known.
        times.add(piece(50, 60, 1310, Origin::Error));
        let known: Vec<_> = times.pieces().iter().map(|p| (p.start, p.end, p.span_ms)).collect();
        assert_eq!(known, [(0, 20, 50), (20, 30, 0), (30, 40, 0), (50, 60, 0)]);
        assert_eq!(times.at(19).map(|piece| piece.at_ms), Some(1000));
        assert_eq!(times.at(45), None);
        assert_eq!(times.at(60), None);
        let between = times.between(15, 35);
        assert_eq!(
            between.iter().map(|p| (p.start, p.end)).collect::<Vec<_>>(),
            [(15, 20), (20, 30), (30, 35)]
        );
        assert_eq!([times.since(1000), times.since(1051), times.since(9999)], [0, 20, 60]);
        assert!(times.cut(35) && !times.cut(35));
        assert_eq!(times.pieces().last().map(|piece| piece.end), Some(35));
    }

    #[test]
    fn a_long_log_has_coarser_times_and_none_that_is_false() {
        let mut times = Times::default();
        let count = 5 * MOST as u64;
        for number in 0..count {
            let origin = if number % 2 == 0 { Origin::Output } else { Origin::Error };
            times.add(piece(number * 10, number * 10 + 10, number * 1000, origin));
            assert!(times.pieces().len() <= MOST);
        }
        for number in 0..count {
            let known = times.at(number * 10).unwrap();
            assert!(known.at_ms <= number * 1000 && known.until_ms() >= number * 1000);
            let origin = if number % 2 == 0 { Origin::Output } else { Origin::Error };
            assert!(known.origin == origin || known.origin == Origin::Mixed);
            let since = times.since(number * 1000);
            assert!(since <= number * 10, "nothing that is newer is left out");
        }
        // The newest are as they were.
        assert_eq!(times.since((count - 100) * 1000), (count - 100) * 10);
    }
}
