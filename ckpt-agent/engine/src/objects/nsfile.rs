//! Descriptors of namespaces (namespaces(7)): kept as the files below /proc of a process that is in them.

use std::os::unix::fs::MetadataExt;

use nix::sys::statfs::{FsType, fstatfs};

use super::super::error::{Refusal, Result};
use super::super::graph::Pid;
use super::{DumpContext, Probe};

/// Magic number of nsfs (include/uapi/linux/magic.h).
const NSFS: u32 = 0x6e73_6673;
/// Files below /proc/PID/ns: which kinds there are. Those of children come last: most often they are the process's own.
const FILES: [&str; 10] = [
    "cgroup",
    "ipc",
    "mnt",
    "net",
    "pid",
    "time",
    "user",
    "uts",
    "pid_for_children",
    "time_for_children",
];

/// Whether a descriptor is of a namespace.
pub(super) fn is_one(probe: &Probe) -> bool {
    fstatfs(&probe.copy).is_ok_and(|found| found.filesystem_type() == FsType(NSFS as _))
}

/// Whether a file below the folder of a process is a namespace, which is opened by following its link.
pub(super) fn is_file(name: &str) -> bool {
    name.strip_prefix("ns/").is_some_and(|name| FILES.contains(&name))
}

/// The file of a process of the job that leads to the same namespace: the holder's own, if it does.
///
/// # Errors
/// A refusal where none does.
pub(super) fn name_of(probe: &Probe, context: &DumpContext) -> Result<(Pid, String)> {
    let inode = probe.inode();
    let leads = |pid: i32, file: &str| {
        let found = std::fs::metadata(format!("/proc/{pid}/ns/{file}"));
        found.is_ok_and(|found| (found.dev(), found.ino()) == inode)
    };
    let holder = context.pids.get_key_value(&probe.host_pid);
    for (host_pid, pid) in holder.into_iter().chain(&context.pids) {
        if let Some(file) = FILES.iter().find(|file| leads(*host_pid, file)) {
            return Ok((*pid, format!("ns/{file}")));
        }
    }
    let what = format!("a namespace in which no process of the job is ({})", probe.link);
    Err(Refusal::new(what, "close it before a checkpoint").into())
}
