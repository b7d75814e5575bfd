//! Stand-ins among the processes of an instance: neither stopped nor dumped, but made again.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use super::super::arch::{Architecture, Current};
use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::{Pid, ProcessNode};
use super::super::proc::{descendants, read_text};
use super::super::split::standin::NAME;
use super::super::sys::pidfd::PidFd;
use super::super::sys::sockopt;

/// Stand-ins below an init, as this machine numbers them. They are executions of the init's own
/// program under their name; there are no others from the restore on, but remote shells, whose numbers in
/// the job are told.
///
/// # Errors
/// Where /proc cannot be read.
pub fn find(init: i32, remote_shells: &[Pid]) -> Result<BTreeSet<i32>> {
    let Some(program) = program(init) else { return Ok(BTreeSet::new()) };
    let mut found = BTreeSet::new();
    for pid in descendants(init)? {
        if !remote_shells.is_empty() && is_one_of(pid, remote_shells)? {
            found.insert(pid);
            continue;
        }
        let comm = read_text(&format!("/proc/{pid}/comm"))?;
        let named = comm.is_some_and(|comm| comm.trim_end() == NAME);
        if named && self::program(pid) == Some(program) {
            found.insert(pid);
        }
    }
    Ok(found)
}

fn is_one_of(host_pid: i32, numbers: &[Pid]) -> Result<bool> {
    let status = read_text(&format!("/proc/{host_pid}/status"))?.unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let number = line.and_then(|line| line.split_ascii_whitespace().next_back()?.parse().ok());
    Ok(number.is_some_and(|number| numbers.contains(&number)))
}

fn program(pid: i32) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Refuses a stand-in that has something to do: a signal or an end that it has not passed on yet.
///
/// # Errors
/// A refusal that passes.
pub fn check_idle(host_pid: i32, node: &ProcessNode) -> Result<()> {
    if is_idle(host_pid)? {
        return Ok(());
    }
    Err(busy(node))
}

/// The refusal of a stand-in that has something to do.
pub fn busy(node: &ProcessNode) -> EngineError {
    EngineError::RefusedProcess {
        pid: node.pid,
        comm: node.comm.clone(),
        refusal: Refusal::passing(
            "is about to pass on a signal or an end of a process",
            "try again",
        ),
    }
}

fn is_idle(host_pid: i32) -> Result<bool> {
    let Some(call) = read_text(&format!("/proc/{host_pid}/syscall"))? else { return Ok(false) };
    let number = call.split_ascii_whitespace().next().and_then(|word| word.parse::<i64>().ok());
    if !number.is_some_and(waits) {
        return Ok(false);
    }
    let status = read_text(&format!("/proc/{host_pid}/status"))?.unwrap_or_default();
    let pending = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")))
        .any(|mask| mask.trim().bytes().any(|digit| digit != b'0'));
    if pending {
        return Ok(false);
    }
    let process = PidFd::open(host_pid)?;
    let path = format!("/proc/{host_pid}/fd");
    let entries =
        std::fs::read_dir(&path).map_err(|error| EngineError::system("read", &path, error))?;
    for entry in entries.flatten() {
        let socket = std::fs::read_link(entry.path())
            .is_ok_and(|link| link.to_string_lossy().starts_with("socket:"));
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let (true, Some(number)) = (socket, number) else { continue };
        let link = process.descriptor(number)?;
        let unread = sockopt::readable(&link)
            .map_err(|error| EngineError::system("ioctl FIONREAD", "a link", error))?;
        if unread > 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a system call is the one in which a stand-in waits.
fn waits(call: i64) -> bool {
    Current::NUMBERS.is_poll(call)
}
