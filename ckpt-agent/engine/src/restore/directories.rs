//! Working directory, root directory and file mode creation mask (CLONE_FS) of a thread that has some of its own, or of a process
//! that no helper was: by calls in it.

use std::os::fd::{AsRawFd, OwnedFd};

use super::super::error::{EngineError, Result};
use super::super::graph::{Directories, Pid, ProcessImage};
use super::super::names;
use super::super::objects::{RestoreContext, give_mode, removed_directory, reopen};
use super::super::sys::file_user::FileUser;
use super::super::trace::Remote;

/// Those of a process, but for the root directory, which it gets later.
pub(super) fn of_process(image: &ProcessImage) -> Directories {
    Directories {
        working_directory: image.working_directory.clone(),
        removed_directory: image.removed_directory,
        removed_inode: image.removed_inode,
        root_directory: None,
        umask: image.umask,
    }
}

/// Has a thread, which has its own, or a process enter them. `among_others`: its paths begin at mounts of its own.
///
/// # Errors
/// A directory that is not there, or closed to the user; damage.
pub(super) fn enter(
    remote: &mut Remote<'_>,
    wanted: &Directories,
    among_others: bool,
    context: &RestoreContext<'_>,
) -> Result<()> {
    remote.raw(libc::SYS_umask, &[u64::from(wanted.umask & 0o777)])?;
    let path = &wanted.working_directory;
    match opened(wanted, among_others, context)? {
        Some(folder) => {
            // Of this process, which leads there whatever has become of the path.
            let link = format!("/proc/{}/fd/{}", std::process::id(), folder.as_raw_fd());
            change(remote, "chdir", libc::SYS_chdir, link.as_bytes(), path)?;
        }
        None => change(remote, "chdir", libc::SYS_chdir, &names::bytes(path), path)?,
    }
    match &wanted.root_directory {
        Some(root) => change_root(remote, root),
        None => Ok(()),
    }
}

/// Opens a directory that paths do not lead to, or that must be open to the user for whom this process acts: an image can name
/// any directory, and root must not bring a user into one that is closed to them.
fn opened(
    wanted: &Directories,
    among_others: bool,
    context: &RestoreContext<'_>,
) -> Result<Option<OwnedFd>> {
    let path = &wanted.working_directory;
    let user = context.user.as_ref();
    let acting = user.map(|user| FileUser::begin(user.uid, user.gid, &user.groups));
    let _acting = acting.transpose()?;
    if let Some(mode) = wanted.removed_directory {
        let key = wanted.removed_inode.map(|inode| (path.clone(), inode));
        if let Some(made) = key.and_then(|key| context.removed.get(&key)) {
            let copy = made.folder.try_clone();
            return copy
                .map(Some)
                .map_err(|error| EngineError::system("dup", "a removed directory", error));
        }
        let folder = removed_directory(path)?;
        give_mode(&folder, mode).map_err(|errno| EngineError::system("fchmodat", path, errno))?;
        return Ok(Some(folder));
    }
    if user.is_none() || among_others {
        return Ok(None);
    }
    // The last part asks for the right to search the directory itself, as chdir(2) does.
    let within = format!("{}/.", path.trim_end_matches('/'));
    let folder = reopen::open(&within, libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC);
    folder.map(Some).map_err(|errno| unfit(path, "directory", &errno))
}

/// Gives a process, or a thread that has its own, its root directory, which takes a right that it may give up afterwards.
///
/// # Errors
/// A directory that is not there; damage.
pub(super) fn change_root(remote: &mut Remote<'_>, path: &str) -> Result<()> {
    change(remote, "chroot", libc::SYS_chroot, &names::bytes(path), path)
}

fn change(
    remote: &mut Remote<'_>,
    name: &'static str,
    call: impl Into<i64>,
    bytes: &[u8],
    path: &str,
) -> Result<()> {
    let what = if name == "chroot" { "root directory" } else { "directory" };
    if bytes.len() >= libc::PATH_MAX as usize || bytes.contains(&0) {
        return Err(EngineError::Damaged(format!("a {what} that no path leads to")));
    }
    let at = remote.scratch_data()?;
    remote.memory().write(at, &[bytes, &[0]].concat())?;
    let tid: Pid = remote.thread().tid();
    remote
        .call(name, call, &[at])
        .map(drop)
        .map_err(|error| unfit(path, &format!("{what} (of thread {tid})"), &error))
}

fn unfit(path: &str, what: &str, error: &dyn std::fmt::Display) -> EngineError {
    EngineError::Unfit {
        what: format!("the {what} {path} cannot be entered: {error}"),
        way_out: "put the directory in place, and restart it as the user who ran it".into(),
    }
}
