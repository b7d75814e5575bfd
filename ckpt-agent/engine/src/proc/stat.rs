//! /proc/PID/stat and status as the `procfs` crate reads them, of processes of any name: that may be no UTF-8.

use procfs::process::{Stat, Status};
use procfs::{FromBufRead, FromRead};

use super::super::error::{EngineError, Result};
use super::read_text;

fn procfs_failed(pid: i32) -> impl Fn(procfs::ProcError) -> EngineError {
    move |error| match error {
        procfs::ProcError::NotFound(_) => EngineError::Gone(pid),
        procfs::ProcError::Io(source, _) => {
            EngineError::system("read", format!("/proc/{pid}"), source)
        }
        other => EngineError::odd(format!("/proc/{pid}"), other.to_string()),
    }
}

fn text(pid: i32, name: &str) -> Result<String> {
    read_text(&format!("/proc/{pid}/{name}"))?.ok_or(EngineError::Gone(pid))
}

/// /proc/PID/stat of a process or thread.
///
/// # Errors
/// [`EngineError::Gone`]; text that is not understood.
pub fn stat_of(pid: i32) -> Result<Stat> {
    Stat::from_read(text(pid, "stat")?.as_bytes()).map_err(procfs_failed(pid))
}

/// /proc/PID/status of a process or thread.
///
/// # Errors
/// As [`stat_of`].
pub fn status_of(pid: i32) -> Result<Status> {
    Status::from_buf_read(text(pid, "status")?.as_bytes()).map_err(procfs_failed(pid))
}

/// The number of a process or thread in the innermost PID namespace that it is in; the machine's, where the kernel has none.
pub fn innermost_number(status: &Status) -> i32 {
    status.nspid.as_ref().and_then(|all| all.last().copied()).unwrap_or(status.pid)
}
