//! Opens files that an image will probably have.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};

use super::super::super::folders::{DEEPEST, MOST_ENTRIES, open_folder};
use super::super::super::names;
use super::super::super::objects::reopen;
use super::super::super::sys::abi;
use super::super::super::sys::stat::identity;

/// One of them.
pub(super) struct Opened {
    pub(super) fd: OwnedFd,
    /// As it was before anything of it is read.
    pub(super) stat: FileStat,
}

/// The file of a path of /proc/PID/fd.
pub(super) fn at(path: &str, may_be_read: &impl Fn(&FileStat) -> bool) -> Option<Opened> {
    let path = names::path(path);
    let stat = fstatat(AT_FDCWD, &*path, AtFlags::empty()).ok()?;
    open(AT_FDCWD, &*path, OFlag::empty(), &stat, may_be_read)
}

/// All files below a folder, each handed to `take` until that says that it is enough. Whether all were.
pub(super) fn below(
    folder: &Path,
    may_be_read: &impl Fn(&FileStat) -> bool,
    take: &mut impl FnMut(Opened) -> bool,
) -> bool {
    let Ok(Some(folder)) = open_folder(AT_FDCWD, folder) else { return true };
    let Ok(stat) = fstat(&folder) else { return true };
    let mut walk = Walk { device: identity(&stat).0, left: MOST_ENTRIES, may_be_read, take };
    walk.folder(&folder, 0)
}

struct Walk<'a, M, T> {
    device: u64,
    /// Names that may still be looked at.
    left: usize,
    may_be_read: &'a M,
    take: &'a mut T,
}

impl<M: Fn(&FileStat) -> bool, T: FnMut(Opened) -> bool> Walk<'_, M, T> {
    fn folder(&mut self, folder: &OwnedFd, depth: usize) -> bool {
        // What can't be read, or goes away meanwhile, is dealt with while the job stands.
        let Ok(entries) = std::fs::read_dir(reopen::magic_link(folder)) else { return true };
        for entry in entries.filter_map(Result::ok) {
            let Some(left) = self.left.checked_sub(1) else { return false };
            self.left = left;
            if !self.entry(folder, &entry.file_name(), depth) {
                return false;
            }
        }
        true
    }

    fn entry(&mut self, at: &OwnedFd, name: &std::ffi::OsStr, depth: usize) -> bool {
        let Ok(stat) = fstatat(at, name, AtFlags::AT_SYMLINK_NOFOLLOW) else { return true };
        if identity(&stat).0 != self.device {
            return true;
        }
        match stat.st_mode & abi::S_IFMT {
            abi::S_IFDIR if depth < DEEPEST => match open_folder(at, name) {
                Ok(Some(inner)) => self.folder(&inner, depth + 1),
                _ => true,
            },
            abi::S_IFREG => {
                let opened = open(at, name, OFlag::O_NOFOLLOW, &stat, self.may_be_read);
                opened.is_none_or(&mut *self.take)
            }
            _ => true,
        }
    }
}

fn open<P: ?Sized + nix::NixPath>(
    at: impl AsFd,
    name: &P,
    flags: OFlag,
    stat: &FileStat,
    may_be_read: &impl Fn(&FileStat) -> bool,
) -> Option<Opened> {
    let is_file = stat.st_mode & abi::S_IFMT == abi::S_IFREG;
    if !is_file || stat.st_size <= 0 || !may_be_read(stat) {
        return None;
    }
    let flags = flags | OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let fd = openat(at, name, flags, Mode::empty()).ok()?;
    let same = fstat(&fd).is_ok_and(|found| identity(&found) == identity(stat));
    same.then_some(Opened { fd, stat: *stat })
}
