//! Where the file of a socket is that was bound to a relative path: its process may have gone elsewhere since (chdir(2)).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::super::super::names;
use super::super::Probe;
use super::super::other_name::MOST_NAMES;
use super::{DumpContext, Name};

/// Gives a descriptor of the file that a Unix socket is bound to (SIOCPROTOPRIVATE, include/uapi/linux/un.h).
const SIOCUNIXFILE: i32 = 0x89e0;

/// The folder from which the name leads to the file of this inode, as the process sees it.
pub(super) fn of(name: &Name, inode: u32, probe: &Probe, context: &DumpContext) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(&name.bytes));
    let leads = |folder: &Path| {
        let below = folder.strip_prefix("/").ok()?;
        let root = PathBuf::from(format!("/proc/{}/root", probe.host_pid));
        let there = std::fs::symlink_metadata(root.join(below).join(path)).ok()?;
        (there.file_type().is_socket() && there.ino() as u32 == inode).then(|| folder.to_owned())
    };
    let told = told(probe).and_then(|file| without(&file, path));
    let known = || candidates(probe, context).into_iter().find_map(|folder| leads(&folder));
    told.and_then(|folder| leads(&folder)).or_else(known)
}

/// Where the file of this inode is that was renamed, as the process sees it: as the kernel tells, else in the folder in
/// which it was bound.
pub(super) fn moved(bound: &Path, inode: u32, probe: &Probe) -> Option<(String, Metadata)> {
    let root = PathBuf::from(format!("/proc/{}/root", probe.host_pid));
    let is_own = |path: &Path| {
        let meta = std::fs::symlink_metadata(path).ok()?;
        let path = Path::new("/").join(path.strip_prefix(&root).ok()?);
        let same = meta.file_type().is_socket() && meta.ino() as u32 == inode;
        same.then(|| (names::text(&path), meta))
    };
    let told = told(probe).and_then(|file| is_own(&root.join(file.strip_prefix("/").ok()?)));
    let beside = || {
        let folder = bound.parent()?;
        let mut names = std::fs::read_dir(folder).ok()?.take(MOST_NAMES).flatten();
        names.find_map(|entry| {
            (entry.ino() as u32 == inode).then(|| is_own(&folder.join(entry.file_name())))?
        })
    };
    told.or_else(beside)
}

/// The file's path: the kernel tells it to whoever has CAP_NET_ADMIN over the socket's network (unix_open_file()).
fn told(probe: &Probe) -> Option<PathBuf> {
    // SAFETY: the request takes no argument and answers with a new descriptor.
    let fd = unsafe { libc::ioctl(probe.copy.as_raw_fd(), SIOCUNIXFILE as _) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the kernel just made this descriptor for us alone.
    let file = unsafe { File::from_raw_fd(fd) };
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

/// `/a/b/c` without `b/c`. A name that goes up (`..`) leads nowhere so.
fn without(file: &Path, name: &Path) -> Option<PathBuf> {
    let folder = file.ancestors().nth(name.components().count())?;
    (folder.join(name) == file).then(|| folder.to_owned())
}

/// Where the job's processes are, what they have open, and what their words and variables name.
fn candidates(probe: &Probe, context: &DumpContext) -> BTreeSet<PathBuf> {
    let mut found: BTreeSet<PathBuf> = context.session_directories.iter().cloned().collect();
    for pid in context.pids.keys() {
        found.extend(std::fs::read_link(format!("/proc/{pid}/cwd")));
    }
    let of_process = |file: &str| std::fs::read(format!("/proc/{}/{file}", probe.host_pid));
    for list in ["cmdline", "environ"].map(|file| of_process(file).unwrap_or_default()) {
        for word in list.split(|byte| *byte == 0) {
            let value = word.splitn(2, |byte| *byte == b'=').last().unwrap_or(word);
            let path = Path::new(OsStr::from_bytes(value));
            if path.is_absolute() {
                found.extend(path.ancestors().take(3).map(Path::to_owned));
            }
        }
    }
    found
}
