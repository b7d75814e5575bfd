//! Stand-ins among the processes of an instance: neither stopped nor dumped, but made again.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::super::arch::{Architecture, Current};
use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::{Pid, ProcessNode, RelayKind};
use super::super::objects::HeldRelay;
use super::super::proc::{Members, inner_number, pending_signals, read_text};
use super::super::split::standin::NAME;
use super::super::sys::pidfd::PidFd;
use super::super::sys::sockopt;
use super::super::sys::stat::major;

/// A remote shell among an instance's processes, and what the agent knows it by: a number alone may have become
/// another process's, once the shell has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shell {
    /// Its number in the job.
    pub pid: Pid,
    /// Device and inode of its streams, as far as the agent holds them.
    pub streams: Vec<(i32, (u64, u64))>,
}

/// The shells that the agent's relays tell of.
pub fn shells(relays: &[HeldRelay]) -> Vec<Shell> {
    let mut shells: BTreeMap<Pid, Shell> = BTreeMap::new();
    for held in relays {
        if let RelayKind::Descriptor { pid, fd } = held.end.kind {
            let shell = shells.entry(pid).or_insert_with(|| Shell { pid, streams: Vec::new() });
            shell.streams.push((fd, held.inode));
        }
    }
    shells.into_values().collect()
}

/// Stand-ins among a job's processes, as this machine numbers them, and which of the remote shells are among them, as the job numbers
/// them. They are executions of the init's own program under their name; there are no others from the restore on, but
/// remote shells.
///
/// # Errors
/// Where /proc cannot be read.
pub fn find(members: &Members, shells: &[Shell]) -> Result<(BTreeSet<i32>, Vec<Pid>)> {
    let mut there = Vec::new();
    // Nothing of ckptd's is in a tree that it has not started.
    let Members::Below(init) = members else { return Ok((BTreeSet::new(), there)) };
    let Some(program) = program(*init) else { return Ok((BTreeSet::new(), there)) };
    let mut found = BTreeSet::new();
    for pid in members.list()? {
        if let Some(number) = is_one_of(pid, shells)? {
            found.insert(pid);
            there.push(number);
            continue;
        }
        let comm = read_text(&format!("/proc/{pid}/comm"))?;
        let named = comm.is_some_and(|comm| comm.trim_end() == NAME);
        if named && self::program(pid) == Some(program) {
            found.insert(pid);
        }
    }
    Ok((found, there))
}

fn is_one_of(host_pid: i32, shells: &[Shell]) -> Result<Option<Pid>> {
    if shells.is_empty() {
        return Ok(None);
    }
    let status = read_text(&format!("/proc/{host_pid}/status"))?.unwrap_or_default();
    let number = inner_number(&status).unwrap_or(host_pid);
    let shell = shells.iter().find(|shell| shell.pid == number);
    Ok(shell.filter(|shell| has_streams(host_pid, &shell.streams)).map(|shell| shell.pid))
}

/// Whether a process has these streams, and at least one of them is nobody else's.
fn has_streams(host_pid: i32, streams: &[(i32, (u64, u64))]) -> bool {
    let mut told = false;
    for (fd, inode) in streams {
        let Ok(found) = std::fs::metadata(format!("/proc/{host_pid}/fd/{fd}")) else {
            return false;
        };
        if (found.dev(), found.ino()) != *inode {
            return false;
        }
        told |= !is_memory_device(&found);
    }
    told
}

/// /dev/null and its like are everybody's (major number 1: Documentation/admin-guide/devices.txt).
fn is_memory_device(found: &std::fs::Metadata) -> bool {
    found.file_type().is_char_device() && major(found.rdev()) == 1
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
    if pending_signals(&status).is_some_and(|set| set != 0) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_shell_is_known_by_its_streams_and_not_by_its_number_alone() {
        let own = std::process::id() as i32;
        let of = |fd: i32| {
            let found = std::fs::metadata(format!("/proc/self/fd/{fd}")).unwrap();
            (found.dev(), found.ino())
        };
        let (read, write) = nix::unistd::pipe().unwrap();
        let fd = read.as_raw_fd();
        let right = Shell { pid: own, streams: vec![(fd, of(fd))] };
        let number = |shells: &[Shell]| is_one_of(own, shells).unwrap();
        // As numbered in the innermost namespace, which is this one.
        assert_eq!(number(std::slice::from_ref(&right)), Some(own));
        let (dev, ino) = of(fd);
        let reused = Shell { streams: vec![(fd, (dev, ino + 1))], ..right.clone() };
        assert_eq!(number(&[reused]), None);
        let null = std::fs::File::open("/dev/null").unwrap();
        let everybodys = null.as_raw_fd();
        let streams = vec![(everybodys, of(everybodys))];
        assert_eq!(number(&[Shell { pid: own, streams }]), None);
        drop((read, write));
        assert_eq!(number(&[right]), None);
    }
}
