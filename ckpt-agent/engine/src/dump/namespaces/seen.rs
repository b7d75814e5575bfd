//! Whether what processes have open is found again at a restart where mounts of the job's own are: files are opened by
//! their paths in the job's own mount namespace, before there is any other.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use nix::sys::socket::{UnixAddr, getsockname};

use super::super::super::error::{EngineError, Result};
use super::super::super::objects::FdInfo;
use super::super::super::proc::{descriptor_numbers, read_maps, root_directory};
use super::super::super::sys::pidfd::PidFd;
use super::refuse;

/// What a link of /proc says of a file that has no name any more.
const DELETED: &str = " (deleted)";

/// A job with mounts of its own.
#[derive(Debug)]
pub(super) struct Seen<'s> {
    /// The job's init.
    pub init: i32,
    /// Mounts that are as in the job's own namespace.
    pub unchanged: &'s BTreeSet<i32>,
}

impl Seen<'_> {
    /// Refuses a process that has open what a restart would not find. `inside`: it is in a namespace with mounts of its own.
    pub(super) fn check(&self, pid: i32, inside: bool) -> Result<()> {
        for fd in descriptor_numbers(pid)? {
            self.descriptor(pid, fd)?;
        }
        if !inside {
            return Ok(());
        }
        if root_directory(pid)?.is_some() {
            return Err(refuse("has a root directory among mounts of its own".to_owned()));
        }
        let link = link(&format!("/proc/{pid}/cwd"))?;
        let at = stat(&format!("/proc/{pid}/cwd"));
        if !is_one(at.as_ref(), stat(&format!("/proc/{pid}/root{link}")).as_ref()) {
            let what = format!("works in {link}, which its mounts do not show any more");
            return Err(refuse(what));
        }
        self.memory(pid)
    }

    /// Executables and mapped files.
    fn memory(&self, pid: i32) -> Result<()> {
        let executable = format!("/proc/{pid}/exe");
        let path = link(&executable)?;
        if !path.ends_with(DELETED) && !self.is_in_job(&path, stat(&executable).as_ref()) {
            return Err(refuse(elsewhere(&path, "runs")));
        }
        let mut known = BTreeSet::new();
        for mapping in read_maps(pid)? {
            let (path, deleted) = mapping.path();
            if deleted || !path.starts_with('/') || mapping.inode == 0 {
                continue;
            }
            if !known.insert((path.to_owned(), mapping.inode)) {
                continue;
            }
            let seen = stat(&format!("/proc/{pid}/root{path}"));
            let seen = seen.filter(|seen| seen.ino() == mapping.inode);
            if !self.is_in_job(path, seen.as_ref()) {
                return Err(refuse(elsewhere(path, "has mapped")));
            }
        }
        Ok(())
    }

    pub(super) fn descriptor(&self, pid: i32, fd: i32) -> Result<()> {
        let path = format!("/proc/{pid}/fd/{fd}");
        let (Ok(link), Some(found)) = (link(&path), stat(&path)) else { return Ok(()) };
        if found.file_type().is_socket() {
            return self.socket(pid, fd);
        }
        if !link.starts_with('/') || link.ends_with(DELETED) {
            return Ok(());
        }
        if !self.is_in_job(&link, Some(&found)) {
            return Err(refuse(elsewhere(&link, "has open")));
        }
        // Whoever has a folder open reaches all that lies around it.
        let info = FdInfo::read(&format!("/proc/{pid}/fdinfo/{fd}"))?;
        let mount = info.get("mnt_id").and_then(|id| id.parse().ok()).unwrap_or(-1);
        let is_place = found.is_dir() || info.number("flags", 8)? & libc::O_PATH as u64 != 0;
        match is_place && !self.unchanged.contains(&mount) {
            true => Err(refuse(format!("has open the folder {link} of mounts of its own"))),
            false => Ok(()),
        }
    }

    /// Others must find a socket by the same path.
    fn socket(&self, pid: i32, fd: i32) -> Result<()> {
        let copy = PidFd::open(pid)?.descriptor(fd)?;
        let Ok(name) = getsockname::<UnixAddr>(copy.as_raw_fd()) else { return Ok(()) };
        let Some(path) = name.path() else { return Ok(()) };
        let shown = path.display().to_string();
        let seen = std::fs::symlink_metadata(format!("/proc/{pid}/root{shown}")).ok();
        match shown.starts_with('/') && self.is_in_job(&shown, seen.as_ref()) {
            true => Ok(()),
            false => Err(refuse(elsewhere(&shown, "has bound a socket to"))),
        }
    }

    /// Whether a path leads to a file in the job's own mount namespace.
    fn is_in_job(&self, path: &str, file: Option<&Metadata>) -> bool {
        let there = std::fs::symlink_metadata(format!("/proc/{}/root{path}", self.init)).ok();
        is_one(file, there.as_ref())
    }
}

fn elsewhere(path: &str, does: &str) -> String {
    format!("{does} {path}, which the job's own mounts do not show, in a job with other mounts")
}

fn is_one(one: Option<&Metadata>, other: Option<&Metadata>) -> bool {
    let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    one.map(identity).is_some_and(|one| other.map(identity) == Some(one))
}

fn stat(path: &str) -> Option<Metadata> {
    std::fs::metadata(path).ok()
}

fn link(path: &str) -> Result<String> {
    let link =
        std::fs::read_link(path).map_err(|error| EngineError::system("readlink", path, error))?;
    Ok(link.to_string_lossy().into_owned())
}
