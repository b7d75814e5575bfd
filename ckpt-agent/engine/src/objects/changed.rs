//! Options that are changed for a while.

use std::os::fd::BorrowedFd;

use super::super::error::{EngineError, Result};
use super::super::sys::sockopt;

/// An option of a socket of the job's that is another for a while.
pub(super) struct Changed<'a> {
    socket: BorrowedFd<'a>,
    name: i32,
    before: i32,
}

impl<'a> Changed<'a> {
    /// Sets it.
    ///
    /// # Errors
    /// A kernel without it.
    pub(super) fn begin(socket: BorrowedFd<'a>, name: i32, value: i32) -> Result<Self> {
        let failed = |call| move |error| EngineError::system(call, "a socket", error);
        let before =
            sockopt::get_int(socket, libc::SOL_SOCKET, name).map_err(failed("getsockopt"))?;
        let option = Self { socket, name, before };
        sockopt::set_int(socket, libc::SOL_SOCKET, name, value).map_err(failed("setsockopt"))?;
        Ok(option)
    }

    /// What it was.
    pub(super) fn before(&self) -> i32 {
        self.before
    }
}

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        // What the same socket has just told.
        let _ = sockopt::set_int(self.socket, libc::SOL_SOCKET, self.name, self.before);
    }
}
