//! Memory for copies that are made while the job stands, touched before it does: the first touch of fresh memory takes
//! longer than the copying.

use std::alloc::{Layout, alloc_zeroed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::error::Result;
use super::super::proc::{Members, read_text};
use super::super::sys::page::advise_huge;
use super::free_memory::{available_here, too_large};

/// Bytes that are copied by one task, into one piece of memory.
pub const PIECE: usize = 4 * 1024 * 1024;
/// What is smaller than one such part of a piece gets memory of its own size, so that none is mostly empty.
const SMALL: usize = 2;
/// Room takes half of the free memory at most.
const KEPT_FREE: u64 = 2;
/// Others of a cluster may stand already while it is made, and threads that are looked at may end.
const LONGEST: Duration = Duration::from_secs(1);

/// Pieces of memory that are there already.
#[derive(Debug, Clone, Default)]
pub struct Room(Arc<Mutex<Vec<Vec<u8>>>>);

impl Room {
    /// For so many bytes, as far as memory is free. That takes a tenth of a second for each GiB.
    pub fn for_bytes(bytes: u64) -> Self {
        let free = available_here().map_or(u64::MAX, |free| free / KEPT_FREE);
        let count = bytes.min(free).div_ceil(PIECE as u64);
        let until = Instant::now() + LONGEST;
        let mut pieces = Vec::new();
        for _ in 0..count {
            let Ok(mut piece) = zeros(PIECE) else { break };
            piece.fill(0);
            pieces.push(piece);
            if Instant::now() > until {
                break;
            }
        }
        Self(Arc::new(Mutex::new(pieces)))
    }

    /// Memory for so many bytes: zeros, to be overwritten.
    ///
    /// # Errors
    /// A refusal where there is none.
    pub fn take(&self, length: usize) -> Result<Vec<u8>> {
        if length <= PIECE && length > PIECE / SMALL {
            let piece = self.lock().pop();
            if let Some(mut piece) = piece {
                piece.truncate(length);
                return Ok(piece);
            }
        }
        zeros(length)
    }

    /// How much is left.
    pub fn bytes(&self) -> u64 {
        self.lock().len() as u64 * PIECE as u64
    }

    /// Gives back what was not taken.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Zeros that nothing has touched: the kernel makes them as they are overwritten.
fn zeros(length: usize) -> Result<Vec<u8>> {
    let refused = || too_large(length as u64);
    let layout = Layout::array::<u8>(length).map_err(|_| refused())?;
    if length == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the layout has a size. What comes back, unless it is null, is one allocation of `length` initialised bytes, which
    // the vector owns from here on, with the length and the capacity that it was made with.
    let mut bytes = unsafe {
        let start = alloc_zeroed(layout);
        if start.is_null() {
            return Err(refused());
        }
        Vec::from_raw_parts(start, length, length)
    };
    if length >= PIECE {
        advise_huge(&mut bytes);
    }
    Ok(bytes)
}

/// How much shared memory a job has at least, if nothing is known of it from an earlier checkpoint: what the process
/// that has most of it has.
pub fn least_shared(members: &Members) -> u64 {
    let all = members.list().unwrap_or_default();
    let of = |pid: i32| read_text(&format!("/proc/{pid}/status")).ok().flatten();
    all.into_iter().filter_map(of).map(|status| shared_of(&status)).max().unwrap_or(0)
}

/// Of /proc/PID/status.
fn shared_of(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("RssShmem:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_taken_once_and_have_the_length_that_is_asked_for() {
        let room = Room::for_bytes(PIECE as u64 + 1);
        let count = || room.lock().len();
        assert_eq!((count(), room.bytes()), (2, 2 * PIECE as u64));
        assert_eq!(room.take(PIECE).unwrap(), vec![0; PIECE]);
        assert_eq!((room.take(PIECE / 2 + 1).unwrap().len(), count()), (PIECE / 2 + 1, 0));
        assert_eq!(room.take(PIECE - 1).unwrap().len(), PIECE - 1, "where none is left");
        let room = Room::for_bytes(1);
        assert_eq!(room.take(PIECE / SMALL).unwrap().len(), PIECE / SMALL);
        assert_eq!(room.take(PIECE + 1).unwrap().len(), PIECE + 1);
        assert_eq!(room.lock().len(), 1, "too small or too large for a piece");
        room.clear();
        assert_eq!(room.bytes(), 0);
        room.take(usize::MAX / 2).unwrap_err();
    }

    #[test]
    fn shared_memory_is_told_in_kib() {
        assert_eq!(shared_of("RssFile:\t 4 kB\nRssShmem:\t    12 kB\n"), 12 << 10);
        assert_eq!(shared_of("Name:\tx\n"), 0);
    }
}
