//! The file systems of a node.

use std::path::Path;

use nix::mount::{MsFlags, mount};

use super::{InsideError, call};

/// What a node sees of its own and of the cluster's files.
pub struct Files<'a> {
    /// The node's disk on the outside; survives the node's death.
    pub disk: &'a Path,
    /// What all nodes see: programs.
    pub shared: &'a Path,
    /// The cluster's /etc/hosts.
    pub hosts: &'a Path,
}

/// Where a node's disk is, on the node.
pub const DISK: &str = "/mnt";
/// Folders of the disk: HOME, the work directory, and where the shared programs are mounted.
pub const FOLDERS: [&str; 3] = ["home", "work", "shared"];
/// File systems that are empty whenever a node starts.
const FRESH: [&str; 3] = ["/dev/shm", "/run", "/tmp"];

/// Arranges the file systems of a mount namespace that was just made, all but /proc.
///
/// # Errors
/// When the kernel refuses a mount.
pub fn arrange(files: &Files<'_>) -> Result<(), InsideError> {
    let none = None::<&str>;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    call("make mounts private", mount(none, "/", none, private, none))?;
    for folder in FOLDERS {
        let path = files.disk.join(folder);
        call(format!("make {}", path.display()), std::fs::create_dir_all(&path))?;
    }
    bind(files.shared, &files.disk.join("shared"))?;
    bind(files.disk, Path::new(DISK))?;
    bind(files.hosts, Path::new("/etc/hosts"))?;
    // Last, because they hide what was mounted from below them.
    for path in FRESH {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let mode = if path == "/run" { "mode=755" } else { "mode=1777" };
        let what = format!("mount {path}");
        call(what, mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some(mode)))?;
    }
    terminals()
}

/// Terminals of its own: their numbers are those of a machine.
fn terminals() -> Result<(), InsideError> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let options = Some("newinstance,ptmxmode=0666,mode=0620");
    call("mount /dev/pts", mount(Some("devpts"), "/dev/pts", Some("devpts"), flags, options))?;
    // A link where the machine has one, else a device: the path in the mount is always there.
    match std::fs::read_link("/dev/ptmx") {
        Ok(_) => Ok(()),
        Err(_) => bind(Path::new("/dev/pts/ptmx"), Path::new("/dev/ptmx")),
    }
}

fn bind(source: &Path, target: &Path) -> Result<(), InsideError> {
    let what = format!("mount {} on {}", source.display(), target.display());
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    call(what, mount(Some(source), target, None::<&str>, flags, None::<&str>))
}

/// Mounts the /proc of the caller's PID namespace.
///
/// # Errors
/// When the kernel refuses.
pub fn proc() -> Result<(), InsideError> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    call("mount /proc", mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>))
}
