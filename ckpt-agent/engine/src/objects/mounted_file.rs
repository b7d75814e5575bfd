//! Files and folders that are open in a file system in memory (tmpfs) which processes have mounted among mounts of their own.
//! What is in it is in the image with the mount, so they are opened once the mount is there: by the path that their processes
//! know, as [`super::super::restore`] opens all files among such mounts.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, fstat};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::unistd::{Whence, lseek64};
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Refusal, Result};
use super::super::names;
use super::super::sys::abi::{self, S_IFDIR, S_IFREG};
use super::super::sys::stat::identity;
use super::directory::refuse_watched;
use super::{DumpContext, Fate, ObjectKind, Probe, RestoreContext, Saved, reopen};

/// A file, a folder, or with O_PATH anything that may be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedFile {
    /// File offset in bytes.
    #[serde(default)]
    pub offset: u64,
}

impl MountedFile {
    /// Puts the offset back, where there is one.
    ///
    /// # Errors
    /// One that it does not take.
    pub fn seek(&self, fd: &OwnedFd, flags: i32) -> Result<()> {
        if flags & libc::O_PATH != 0 {
            return Ok(());
        }
        let offset = i64::try_from(self.offset).unwrap_or(i64::MAX);
        let sought = lseek64(fd, offset, Whence::SeekSet);
        sought.map(drop).map_err(|errno| EngineError::system("lseek", "a file in memory", errno))
    }
}

/// Opens a path below a root directory, which leads through no links: the kernel shows none in the paths of what is open. What
/// it leads to is a file or a folder in memory, or known by its path alone.
///
/// # Errors
/// As openat2(2); ENXIO for anything else.
pub fn open_within(root: &str, path: &str, flags: i32) -> nix::Result<OwnedFd> {
    let root = open(root, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let name = names::path(path);
    let found = openat2(&root, name.as_os_str(), how)?;
    let kind = fstat(&found)?.st_mode & abi::S_IFMT;
    let is_in_memory = fstatfs(&found).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC);
    match (flags & libc::O_PATH != 0, kind) {
        _ if !is_in_memory => Err(Errno::ENXIO),
        (true, _) => Ok(found),
        (false, S_IFREG | S_IFDIR) => reopen::reopen(&found, flags),
        (false, _) => Err(Errno::ENXIO),
    }
}

impl ObjectKind for MountedFile {
    fn recognise(probe: &Probe) -> bool {
        probe.is_in_memory
    }

    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        let is_path_only = probe.flags & libc::O_PATH != 0;
        let kind = probe.file_type();
        if !is_path_only && !matches!(kind, S_IFREG | S_IFDIR) {
            return Err(probe.unknown().into());
        }
        let offset = probe.info.position()?;
        let passing = |what: &str| -> Result<Self> {
            let what = format!("{}, in a tmpfs of its own, {what}", probe.link);
            Err(Refusal::passing(what, "close it while checkpoints are taken").into())
        };
        if kind == S_IFDIR && offset != 0 {
            // What comes next after this number is the file system's own.
            return passing("whose list is being read");
        }
        if context.leased.has(probe.stat.st_ino) {
            return passing("has a lease on it (F_SETLEASE)");
        }
        if kind == S_IFDIR {
            refuse_watched(probe)?;
        }
        // As a restart does, in which nobody has it open already.
        let _acting = context.act_as_user()?;
        let opened = open_within(&probe.root, &probe.link, probe.flags);
        match opened.and_then(|opened| nix::sys::stat::fstat(&opened)) {
            Ok(found) if identity(&found) == probe.inode() => Ok(Self { offset }),
            _ => passing("which its modes forbid to open again"),
        }
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        all.iter().try_for_each(|saved| context.await_process(saved.id))
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}
