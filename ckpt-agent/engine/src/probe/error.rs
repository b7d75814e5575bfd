//! What a probe found instead of what the engine needs.

use std::io;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::super::error::EngineError;

/// Why something does not work here. It comes from the child that tried it, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum ProbeError {
    /// The kernel's answer, an errno.
    #[error("{}", Errno::from_raw(*.0).desc())]
    Refused(i32),
    /// What Android's sandbox for apps does where it does not answer.
    #[error("forbidden: a sandbox kills whoever calls it (SIGSYS)")]
    Forbidden,
    /// The call, or the file, does not exist.
    #[error("the kernel has none")]
    Absent,
    /// The same, if a filter tells the truth.
    #[error("the kernel has none, or a filter says so")]
    AbsentOrFiltered,
    /// clone3(2) is absent or forbidden.
    #[error("clone3 may not be called")]
    NoClone3,
    /// It works, and does something else.
    #[error("got {found} for {wanted}")]
    OtherNumber {
        /// The number that a process has.
        found: i32,
        /// The number that was asked for.
        wanted: i32,
    },
    /// Every number that was asked for is taken.
    #[error("no number is free")]
    NoNumber,
    /// kcmp(2) tells one open file as two.
    #[error("one open file is told as two")]
    ToldAsTwo,
    /// Another process's memory reads differently from what it is.
    #[error("other bytes")]
    OtherBytes,
    /// There is nothing in /proc/PID/map_files.
    #[error("nothing is mapped")]
    NothingMapped,
    /// The child that was looked at is gone.
    #[error("the child has ended")]
    Gone,
    /// No answer came from the child that tried it.
    #[error("the probe was killed or hung")]
    Hung,
    /// There is no pipe to the child.
    #[error("no pipe: {}", Errno::from_raw(*.0).desc())]
    NoPipe(i32),
    /// There is no child.
    #[error("no process: {}", Errno::from_raw(*.0).desc())]
    NoProcess(i32),
    /// What it would be tried in could not be made.
    #[error("not tried")]
    NotTried,
    /// The same, of namespaces.
    #[error("not tried: no namespaces")]
    NoNamespaces,
    /// What the engine's own code says, which does the same for a job.
    #[error("{0}")]
    Engine(String),
}

impl From<Errno> for ProbeError {
    fn from(errno: Errno) -> Self {
        Self::Refused(errno as i32)
    }
}

impl From<io::Error> for ProbeError {
    fn from(error: io::Error) -> Self {
        Self::Refused(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<EngineError> for ProbeError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error.to_string())
    }
}
