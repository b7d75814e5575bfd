//! Pipes of our own, through which the content of others goes.

use std::os::fd::{BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::super::error::{EngineError, Result};

/// Size of a pipe's buffer in bytes.
///
/// # Errors
/// Failed fcntl(2).
pub fn capacity(end: BorrowedFd<'_>) -> Result<i32> {
    fcntl(end, FcntlArg::F_GETPIPE_SZ)
        .map_err(|errno| EngineError::system("fcntl", "F_GETPIPE_SZ", errno))
}

/// One that nobody waits at.
///
/// # Errors
/// Failed pipe2(2).
pub(super) fn new_pipe() -> Result<(OwnedFd, OwnedFd)> {
    nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)
        .map_err(|errno| EngineError::system("pipe2", "a private pipe", errno))
}

/// Writes all of it.
///
/// # Errors
/// [`EngineError::Unfit`] where the pipe is too small; failed writes.
pub(super) fn write_all(end: BorrowedFd<'_>, mut piece: &[u8]) -> Result<()> {
    while !piece.is_empty() {
        match nix::unistd::write(end, piece) {
            Ok(written) => piece = piece.get(written..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                return Err(EngineError::Unfit {
                    what: format!("{} bytes in flight do not fit into a new pipe", piece.len()),
                    way_out: "raise /proc/sys/fs/pipe-user-pages-soft and pipe-max-size".into(),
                });
            }
            Err(errno) => return Err(EngineError::system("write to", "a new pipe", errno)),
        }
    }
    Ok(())
}

/// What there is, as far as the buffer reaches.
///
/// # Errors
/// Failed read(2).
pub(super) fn read(private: &(OwnedFd, OwnedFd), buffer: &mut [u8]) -> Result<usize> {
    nix::unistd::read(&private.0, buffer)
        .map_err(|errno| EngineError::system("read", "a private pipe", errno))
}
