//! Joining the namespaces of a running process.

use std::fs::File;

use nix::sched::{CloneFlags, setns};

use super::{InsideError, call};

/// The namespaces of a node, in the order in which they are joined: the user namespace gives the
/// right to join the others, and the mount namespace hides /proc of the outside.
pub const NODE: &[(&str, CloneFlags)] = &[
    ("user", CloneFlags::CLONE_NEWUSER),
    ("net", CloneFlags::CLONE_NEWNET),
    ("uts", CloneFlags::CLONE_NEWUTS),
    ("ipc", CloneFlags::CLONE_NEWIPC),
    ("pid", CloneFlags::CLONE_NEWPID),
    ("mnt", CloneFlags::CLONE_NEWNS),
];

/// The namespaces of the hub.
pub const HUB: &[(&str, CloneFlags)] =
    &[("user", CloneFlags::CLONE_NEWUSER), ("net", CloneFlags::CLONE_NEWNET)];

/// Joins namespaces of process `pid`. A PID namespace takes effect for children only.
///
/// # Errors
/// When the process is gone, or the kernel refuses.
pub fn join(pid: i32, wanted: &[(&str, CloneFlags)]) -> Result<(), InsideError> {
    let mut opened = Vec::new();
    for (name, flag) in wanted {
        let path = format!("/proc/{pid}/ns/{name}");
        let theirs = call(format!("read {path}"), std::fs::read_link(&path))?;
        let own = std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
        // Joining the own user namespace again is an error (setns(2)).
        if own.as_ref() != Some(&theirs) {
            opened.push((call(format!("open {path}"), File::open(&path))?, *flag, path));
        }
    }
    for (file, flag, path) in opened {
        call(format!("join {path}"), setns(file, flag))?;
    }
    Ok(())
}
