//! The hub: a network namespace with the bridge that a cluster's nodes hang on.

use std::io::Read;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};

use super::{InsideError, call, program, tell};

/// The bridge's name, in a namespace of its own.
pub const BRIDGE: &str = "bridge";

/// Makes the hub, and keeps it until standard input ends; then removes `folder`.
///
/// # Errors
/// When the kernel refuses a namespace or the bridge.
pub fn run(folder: &Path) -> Result<(), InsideError> {
    let user = geteuid();
    if user.is_root() {
        call("make a network namespace", unshare(CloneFlags::CLONE_NEWNET))?;
    } else {
        let group = getegid();
        let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET;
        call("make a user namespace", unshare(flags))?;
        write("/proc/self/setgroups", "deny")?;
        write("/proc/self/uid_map", &format!("0 {user} 1"))?;
        write("/proc/self/gid_map", &format!("0 {group} 1"))?;
    }
    program(&["ip", "link", "set", "lo", "up"])?;
    program(&["ip", "link", "add", BRIDGE, "type", "bridge"])?;
    program(&["ip", "link", "set", BRIDGE, "up"])?;
    tell("ready")?;
    let mut nothing = Vec::new();
    // An error ends the wait as the end does.
    let _ = std::io::stdin().read_to_end(&mut nothing);
    if nothing != super::super::KEEP.as_bytes() {
        remove(folder);
    }
    Ok(())
}

/// Removes the cluster's files; its processes, which are ending too, may still be writing some.
fn remove(folder: &Path) {
    for _ in 0..100 {
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            _ => return,
        }
    }
    eprintln!("clusternode: failed to remove {}", folder.display());
}

fn write(path: &str, text: &str) -> Result<(), InsideError> {
    call(format!("write {path}"), std::fs::write(path, text))
}
