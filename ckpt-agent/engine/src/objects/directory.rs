//! Directories that are open for reading.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::sys::stat::{FchmodatFlags, Mode};
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::ExtendedAttribute;
use super::super::inodes;
use super::super::names;
use super::super::sys::abi;
use super::super::sys::stat::{accessed_ns, modified_ns, time};
use super::context::Removed;
use super::other_name::DELETED;
use super::{DumpContext, Fate, ObjectKind, Probe, RestoreContext, Saved, paths, reopen};

/// An open directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// Its path; the one that it had, where it is deleted.
    pub path: String,
    /// Where reading goes on: the file system's own cookie.
    pub position: u64,
    /// Permission bits.
    pub mode: u32,
    /// Removed while it was open.
    #[serde(default)]
    pub deleted: bool,
    /// Number of the inode of one that is deleted: several descriptions and working directories may be of the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// Of one that is deleted: when it was last read and modified, ns since 1970. None: as it is made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times_ns: Option<(i64, i64)>,
    /// The extended attributes of one that is deleted, where they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Vec<ExtendedAttribute>>,
    /// In a directory whose files travel: made again where it is missing.
    #[serde(default)]
    pub session: bool,
}

/// No call tells what a directory is watched for (fcntl(2), F_NOTIFY). But only that gives one an owner
/// (fs/notify/dnotify/dnotify.c, fcntl_dirnotify).
pub(super) fn refuse_watched(probe: &Probe) -> Result<()> {
    if probe.flags & libc::O_PATH != 0 {
        return Ok(());
    }
    // SAFETY: F_GETOWN touches no memory.
    let owner = unsafe { libc::fcntl(probe.copy.as_raw_fd(), libc::F_GETOWN) };
    if owner == 0 {
        return Ok(());
    }
    let what = "a directory that is watched (F_NOTIFY)";
    Err(Refusal::new(what, "watch it by inotify(7), or close it while checkpoints are taken")
        .into())
}

/// A directory that is not deleted, and to which its path does not lead: what shows it is a mount in no place (open_tree(2),
/// fsmount(2)), or another one covers it.
fn refuse_hidden(probe: &Probe, missed: bool) -> Result<()> {
    if !missed || probe.link.ends_with(DELETED) || probe.stat.st_nlink == 0 {
        return Ok(());
    }
    let what = format!("the directory {}, to which its path does not lead", probe.link);
    Err(Refusal::new(what, "close it while checkpoints are taken, or mount it at its path").into())
}

impl Directory {
    /// Reads a description, which may be O_PATH.
    ///
    /// # Errors
    /// What /proc does not tell.
    pub fn of(probe: &Probe, context: &DumpContext) -> Result<Self> {
        refuse_watched(probe)?;
        let deleted = !paths::leads_to_place_for_user(probe, context)?;
        refuse_hidden(probe, deleted)?;
        let path = if deleted { paths::without_mark(&probe.link) } else { &probe.link };
        Ok(Self {
            path: path.to_owned(),
            position: probe.info.position()?,
            mode: probe.stat.st_mode & 0o7777,
            deleted,
            inode: deleted.then_some(probe.inode().1),
            times_ns: deleted.then(|| (accessed_ns(&probe.stat), modified_ns(&probe.stat))),
            attributes: None,
            session: context.is_session_file(path),
        })
    }

    /// Opens it, or makes it first.
    ///
    /// # Errors
    /// [`EngineError::Unfit`] where it is missing; failed system calls.
    pub fn open(&self, flags: i32, context: &RestoreContext) -> Result<OwnedFd> {
        let made = self.removed().and_then(|key| context.removed.get(&key));
        // Some file systems, such as NFS, open no directory again that is removed.
        match made.and_then(|made| reopen::reopen(&made.folder, flags).ok()) {
            Some(fd) => Ok(fd),
            None => self.make(flags),
        }
    }

    /// Which of the removed directories it is.
    pub(super) fn removed(&self) -> Option<Removed> {
        self.inode.filter(|_| self.deleted).map(|inode| (self.path.clone(), inode))
    }

    /// Puts attributes and times back on one that is made again.
    ///
    /// # Errors
    /// [`EngineError::Damaged`].
    pub(super) fn complete(&self, made: &OwnedFd, context: &mut RestoreContext) -> Result<()> {
        // Without the right to read it nobody can.
        let Ok(folder) = reopen::reopen(made, libc::O_RDONLY | libc::O_DIRECTORY) else {
            return Ok(());
        };
        if let Some(attributes) = &self.attributes {
            if let Some(lost) = inodes::put_attributes(&folder, attributes, context)? {
                context.warn(format!("the deleted directory {}, made again, {lost}", self.path));
            }
        }
        if let Some((accessed, modified)) = self.times_ns {
            let _ = nix::sys::stat::futimens(&folder, &time(accessed), &time(modified));
        }
        Ok(())
    }

    /// One that is deleted is its maker's alone until it is open.
    fn make(&self, flags: i32) -> Result<OwnedFd> {
        let failed = |errno| EngineError::system("open the directory", &self.path, errno);
        if self.deleted {
            let make = |path: &str| nix::unistd::mkdir(&*names::path(path), Mode::S_IRWXU);
            let (path, ()) = paths::first_free(&self.path, make)
                .or_else(|_| paths::first_free("/tmp/ckptd-directory", make))
                .map_err(failed)?;
            let fd = reopen::open(&path, flags);
            // Where it is removed it may not take a mode any more.
            let moded = fd.as_ref().map_or(Ok(()), |fd| give_mode(fd, self.mode));
            let removed = std::fs::remove_dir(names::path(&path));
            let fd = fd.map_err(failed)?;
            moded.map_err(|errno| EngineError::system("fchmodat", &self.path, errno))?;
            removed.map_err(|error| EngineError::system("rmdir", path, error))?;
            return Ok(fd);
        }
        if self.session && std::fs::symlink_metadata(names::path(&self.path)).is_err() {
            inodes::make_parents(&self.path)?;
            let mode = Mode::from_bits_truncate(self.mode as libc::mode_t);
            nix::unistd::mkdir(&*names::path(&self.path), mode).map_err(failed)?;
        }
        let fd = reopen::open(&self.path, flags).map_err(|errno| EngineError::Unfit {
            what: format!("the directory {} cannot be opened ({})", self.path, errno.desc()),
            way_out: "make it again as it was".to_owned(),
        })?;
        let found = nix::sys::stat::fstat(&fd).map_err(failed)?;
        if found.st_mode & abi::S_IFMT != abi::S_IFDIR {
            return Err(EngineError::Unfit {
                what: format!("{} is no directory any more", self.path),
                way_out: "make it again as it was".to_owned(),
            });
        }
        Ok(fd)
    }
}

/// Permission bits of a directory that come back; set-user-ID means nothing there.
const KEPT: u32 = 0o3777;

/// Its mode, on which the umask of whoever restores has no bearing.
///
/// # Errors
/// Failed fchmodat(2).
pub fn give_mode(folder: &OwnedFd, mode: u32) -> nix::Result<()> {
    let mode = Mode::from_bits_truncate((mode & KEPT) as libc::mode_t);
    let link = reopen::magic_link(folder);
    nix::sys::stat::fchmodat(
        nix::fcntl::AT_FDCWD,
        link.as_str(),
        mode,
        FchmodatFlags::FollowSymlink,
    )
}

/// A directory that is removed already, as that of this path was: for a process to stay in, and for descriptions. It is its
/// maker's alone.
///
/// # Errors
/// Failed system calls.
pub fn removed(path: &str) -> Result<OwnedFd> {
    let directory = Directory {
        path: path.to_owned(),
        position: 0,
        mode: 0o700,
        deleted: true,
        inode: None,
        times_ns: None,
        attributes: None,
        session: false,
    };
    directory.make(libc::O_PATH)
}

impl ObjectKind for Directory {
    fn recognise(probe: &Probe) -> bool {
        probe.file_type() == abi::S_IFDIR && probe.link.starts_with('/')
    }

    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        let mut found = Self::of(probe, context)?;
        if found.deleted {
            found.attributes = inodes::take_attributes(&probe.copy, &probe.link, context);
        }
        Ok(found)
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        for saved in all {
            let fd = saved.object.open(saved.file.flags, context)?;
            // A cookie of another file system may not be taken: reading starts afresh then.
            if reopen::seek(fd.as_fd(), saved.object.position).is_err() {
                context.warn(format!("{} is read from its start again", saved.object.path));
            }
            context.park(saved.id, fd)?;
        }
        Ok(())
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Again
    }
}
