//! Fills a pseudoterminal up to its last byte, whatever the sizes in which it was filled first
//! (drivers/tty/tty_buffer.c).
//!
//! Bytes behind those that the reader's own buffer takes stay in a list of buffers. A buffer of n
//! bytes holds 2n; a piece that does not fit into the last one starts a new one and wastes what is
//! left. New buffers are made until 8 KiB are exceeded; those of 256 bytes are kept once made,
//! and are used beyond that limit.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::super::super::error::{EngineError, Result};
use super::super::super::sys::sockopt;

/// What a reader's own buffer takes (drivers/tty/n_tty.c, N_TTY_BUF_SIZE less one).
pub(super) const FRONT: usize = 4095;
/// A quarter of what a small buffer holds: such pieces fill it without a remainder.
const SMALL: usize = 128;
/// The largest piece that the kernel does not divide (TTY_BUFFER_PAGE with pages of 4 KiB).
const LARGE: usize = 1792;
/// After this long without a byte taken no large buffer is to be had any more.
const NO_LARGE: Duration = Duration::from_millis(20);
/// After this long without a byte taken the pair is full.
const FULL: Duration = Duration::from_millis(200);
/// Between two looks.
const PAUSE: Duration = Duration::from_micros(50);
/// More than all buffers of a pair hold.
const MOST_BYTES: usize = 1 << 20;

/// Sizes of the pieces behind [`FRONT`] for which large buffers are made: 8 KiB, and the largest
/// one beyond them.
const LARGE_PIECES: [usize; 12] =
    [LARGE, LARGE, LARGE, LARGE, LARGE, LARGE, LARGE, LARGE, 1024, 1024, LARGE, LARGE];

/// Writes into a pair that nobody reads. `from` is its other side, in raw or line mode.
///
/// # Errors
/// [`EngineError::TooLong`] where not all of it is taken; failed writes.
pub(super) fn write(to: BorrowedFd<'_>, from: BorrowedFd<'_>, bytes: &[u8]) -> Result<()> {
    let (front, behind) = bytes.split_at(bytes.len().min(FRONT));
    let mut writer = Writer { to, bytes: front, since: Instant::now() };
    // The last small piece ends where the reader's own buffer is full: none stays half read.
    while !writer.bytes.is_empty() {
        writer.piece(SMALL, FULL)?;
    }
    if behind.is_empty() {
        return Ok(());
    }
    wait_until_moved(from)?;
    writer.bytes = behind;
    writer.since = Instant::now();
    for size in LARGE_PIECES {
        let mut left = size;
        while left > 0 && !writer.bytes.is_empty() {
            match writer.piece(left, NO_LARGE) {
                Ok(count) => left -= count.min(left),
                Err(EngineError::TooLong { .. }) => break,
                Err(error) => return Err(error),
            }
        }
    }
    while !writer.bytes.is_empty() {
        writer.piece(SMALL, FULL)?;
    }
    Ok(())
}

/// Makes the kernel make as many small buffers as it can, which it keeps from then on.
///
/// # Errors
/// Failed writes.
pub(super) fn stock(to: BorrowedFd<'_>) -> Result<()> {
    let zeros = [0u8; SMALL];
    for _ in 0..MOST_BYTES / SMALL {
        let mut writer = Writer { to, bytes: &zeros, since: Instant::now() };
        match writer.piece(SMALL, NO_LARGE) {
            Ok(_) => {}
            Err(EngineError::TooLong { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Err(EngineError::odd("a terminal that nobody reads", "no end of its room"))
}

/// The kernel fills the reader's buffer in the background. In line mode the count tells whole lines
/// only, and the wait ends with its limit.
fn wait_until_moved(from: BorrowedFd<'_>) -> Result<()> {
    let began = Instant::now();
    loop {
        let count = sockopt::readable(from)
            .map_err(|error| EngineError::system("ioctl FIONREAD", "a pseudoterminal", error))?;
        if count >= FRONT || began.elapsed() > NO_LARGE {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}

struct Writer<'a> {
    to: BorrowedFd<'a>,
    bytes: &'a [u8],
    /// When a byte was taken last.
    since: Instant,
}

impl Writer<'_> {
    /// Writes at most `size` bytes at once; how many were taken.
    fn piece(&mut self, size: usize, patience: Duration) -> Result<usize> {
        let piece = self.bytes.get(..self.bytes.len().min(size)).unwrap_or_default();
        loop {
            match nix::unistd::write(self.to, piece) {
                Ok(count) => {
                    self.bytes = self.bytes.get(count..).unwrap_or_default();
                    self.since = Instant::now();
                    return Ok(count);
                }
                Err(Errno::EAGAIN) if self.since.elapsed() < patience => {
                    std::thread::sleep(PAUSE);
                }
                Err(Errno::EAGAIN) => {
                    return Err(EngineError::TooLong {
                        what: format!("descriptor {} of a terminal", self.to.as_raw_fd()),
                        limit_ms: patience.as_millis() as u64,
                    });
                }
                Err(Errno::EINTR) => {}
                Err(errno) => {
                    return Err(EngineError::system("write", "a pseudoterminal", errno));
                }
            }
        }
    }
}
