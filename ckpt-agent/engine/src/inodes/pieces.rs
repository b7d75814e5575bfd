//! Large contents are copied piece by piece, by several threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::error::Result;
use super::super::objects::Extent;
use super::copying::Bytes;
use super::room::PIECE;

/// Copies what lies in these ranges (start, end), which ascend: `copy` is asked for pieces of them, by as many threads at
/// a time.
///
/// # Errors
/// The first of `copy`'s.
pub fn in_pieces(
    ranges: &[(u64, u64)],
    threads: usize,
    copy: impl Fn(u64, u64) -> Result<Bytes> + Sync,
) -> Result<Vec<Extent>> {
    let pieces = cut(ranges);
    let extent = |start, end| Ok(Extent { offset: start, bytes: copy(start, end)? });
    let workers = threads.min(pieces.len());
    if workers <= 1 {
        return pieces.iter().map(|&(start, end)| extent(start, end)).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut extents = Vec::new();
        while let Some(&(start, end)) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            extents.push(extent(start, end)?);
        }
        Ok(extents)
    };
    let mut parts: Vec<Result<Vec<Extent>>> = Vec::with_capacity(workers);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
        parts.push(work());
        for other in others {
            parts.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
    let mut extents = Vec::with_capacity(pieces.len());
    for part in parts {
        extents.extend(part?);
    }
    extents.sort_by_key(|extent| extent.offset);
    Ok(extents)
}

fn cut(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut pieces = Vec::new();
    for &(mut start, end) in ranges {
        while start < end {
            let stop = end.min(start.saturating_add(PIECE as u64));
            pieces.push((start, stop));
            start = stop;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::super::super::error::EngineError;
    use super::*;

    #[test]
    fn all_is_copied_once_in_order() {
        let piece = PIECE as u64;
        let ranges = [(3, 3), (5, 6), (piece, 3 * piece + 1), (9 * piece, 10 * piece)];
        let copy =
            |start: u64, end: u64| Ok(Bytes::from(vec![start as u8; (end - start) as usize]));
        let one = in_pieces(&ranges, 1, copy).unwrap();
        let found: Vec<_> =
            one.iter().map(|extent| (extent.offset, extent.bytes.len() as u64)).collect();
        let expected =
            [(5, 1), (piece, piece), (2 * piece, piece), (3 * piece, 1), (9 * piece, piece)];
        assert_eq!(found, expected);
        for threads in [2, 3, 40] {
            assert_eq!(in_pieces(&ranges, threads, copy).unwrap(), one);
        }
        let fails = |start: u64, _| match start == 2 * piece {
            true => Err(EngineError::odd("a piece", "gone")),
            false => Ok(Bytes::from(Vec::new())),
        };
        in_pieces(&ranges, 2, fails).unwrap_err();
    }
}
