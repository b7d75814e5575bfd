//! Reads whole folders into an image.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};

use super::super::error::{EngineError, Result};
use super::super::graph::{EntryKind, ExtendedAttribute, FolderEntry, WholeFolder};
use super::super::inodes;
use super::super::names;
use super::super::objects::{DumpContext, reopen};
use super::super::sys::abi;
use super::super::sys::stat::{changed_ns, identity, modified_ns};
use super::{DEEPEST, MOST_ENTRIES};

/// Reads these folders with all that is in them; the job must stand still. `owners`: the users of its processes. What
/// can't travel is left where it is, and a line says so.
///
/// # Errors
/// Failed system calls; a folder that has too many names.
pub fn take_all<'a>(
    folders: impl Iterator<Item = &'a Path>,
    owners: &[u32],
    context: &mut DumpContext,
) -> Result<Vec<WholeFolder>> {
    // A name may lead to what the job's user cannot read.
    let _acting = context.act_as_user()?;
    let mut taken = Vec::new();
    for path in folders {
        let shown = &*names::text(path);
        let Some(folder) = open_folder(AT_FDCWD, path)? else { continue };
        let stat = stat_of(folder.as_fd(), shown)?;
        let theirs = |user: u32| owners.contains(&0) || owners.contains(&user);
        if !theirs(stat.st_uid) {
            context.warn(format!(
                "{shown} belongs to user {}, who has no part in the job: it does not go back with it",
                stat.st_uid
            ));
            continue;
        }
        let mut walk = Walk {
            root: shown,
            device: identity(&stat).0,
            theirs: &theirs,
            context: &mut *context,
            seen: HashMap::new(),
            entries: Vec::new(),
            left: Vec::new(),
        };
        walk.folder(folder, "", 0)?;
        let Walk { entries, left, .. } = walk;
        if let Some((first, why)) = left.first() {
            let others = match left.len() {
                1 => String::new(),
                more => format!(", nor do {} others", more - 1),
            };
            context.warn(format!(
                "{first} is not in the image and does not go back with the job{others}: {why}"
            ));
        }
        taken.push(WholeFolder { path: shown.to_owned(), mode: stat.st_mode & 0o7777, entries });
    }
    Ok(taken)
}

/// `None`: there is none.
///
/// # Errors
/// Failed system calls.
pub fn open_folder<P: ?Sized + nix::NixPath>(at: impl AsFd, path: &P) -> Result<Option<OwnedFd>> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    match openat(at, path, flags, Mode::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(None),
        Err(errno) => Err(EngineError::system("open", "a folder of the job", errno)),
    }
}

fn stat_of(fd: BorrowedFd<'_>, shown: &str) -> Result<FileStat> {
    fstat(fd).map_err(|errno| EngineError::system("fstat", shown, errno))
}

struct Walk<'a> {
    root: &'a str,
    device: u64,
    theirs: &'a dyn Fn(u32) -> bool,
    context: &'a mut DumpContext,
    /// First names of files that have several.
    seen: HashMap<(u64, u64), String>,
    entries: Vec<FolderEntry>,
    /// What does not travel, and why.
    left: Vec<(String, String)>,
}

impl Walk<'_> {
    fn folder(&mut self, folder: OwnedFd, prefix: &str, depth: usize) -> Result<()> {
        let failed = |error| EngineError::system("read", format!("{}/{prefix}", self.root), error);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(reopen::magic_link(&folder)).map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name());
        }
        names.sort_unstable();
        for name in names {
            if self.entries.len() >= MOST_ENTRIES {
                return Err(EngineError::odd(self.root, format!("over {MOST_ENTRIES} names")));
            }
            let path = format!("{prefix}{}", names::text(&name));
            self.entry(folder.as_fd(), Path::new(&name), path, depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, at: BorrowedFd<'_>, name: &Path, path: String, depth: usize) -> Result<()> {
        let stat = match fstatat(at, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Somebody outside of the job has just removed it.
            Err(Errno::ENOENT) => return Ok(()),
            Err(errno) => return Err(EngineError::system("stat", path, errno)),
        };
        let mut attributes = Vec::new();
        let (kind, inner) = self.kind(at, name, &path, depth, &stat, &mut attributes)?;
        let below = format!("{path}/");
        self.entries.push(FolderEntry {
            name: path,
            mode: stat.st_mode & 0o7777,
            owner: (stat.st_uid, stat.st_gid),
            modified_ns: modified_ns(&stat),
            attributes,
            kind,
        });
        inner.map_or(Ok(()), |inner| self.folder(inner, &below, depth + 1))
    }

    /// What a name is, and the folder behind it.
    fn kind(
        &mut self,
        at: BorrowedFd<'_>,
        name: &Path,
        path: &str,
        depth: usize,
        stat: &FileStat,
        attributes: &mut Vec<ExtendedAttribute>,
    ) -> Result<(EntryKind, Option<OwnedFd>)> {
        let why = if identity(stat).0 != self.device {
            Some("it is another file system".to_owned())
        } else if !(self.theirs)(stat.st_uid) {
            Some(format!("it belongs to user {}, who has no part in the job", stat.st_uid))
        } else if depth >= DEEPEST {
            Some("it lies too deep".to_owned())
        } else {
            None
        };
        if let Some(why) = why {
            return Ok((self.leave(path, why), None));
        }
        Ok(match stat.st_mode & abi::S_IFMT {
            abi::S_IFDIR => match open_folder(at, name) {
                Ok(Some(inner)) => {
                    *attributes = self.attributes(inner.as_fd(), path);
                    (EntryKind::Folder, Some(inner))
                }
                Ok(None) => (EntryKind::Left, None),
                Err(error) => (self.leave(path, error.to_string()), None),
            },
            abi::S_IFREG => (self.file(at, name, path, stat, attributes)?, None),
            abi::S_IFLNK => match readlinkat(at, name) {
                Ok(target) => (EntryKind::Link { target: names::text(target) }, None),
                Err(errno) => (self.leave(path, errno.to_string()), None),
            },
            abi::S_IFIFO => (EntryKind::Fifo, None),
            abi::S_IFSOCK => (EntryKind::Socket, None),
            _ => (self.leave(path, "it is a device".to_owned()), None),
        })
    }

    fn attributes(&mut self, fd: BorrowedFd<'_>, path: &str) -> Vec<ExtendedAttribute> {
        let shown = format!("{}/{path}", self.root);
        inodes::take_attributes(fd, &shown, self.context).unwrap_or_default()
    }

    fn leave(&mut self, path: &str, why: String) -> EntryKind {
        self.left.push((format!("{}/{path}", self.root), why));
        EntryKind::Left
    }

    fn file(
        &mut self,
        at: BorrowedFd<'_>,
        name: &Path,
        path: &str,
        stat: &FileStat,
        attributes: &mut Vec<ExtendedAttribute>,
    ) -> Result<EntryKind> {
        let key = identity(stat);
        if let Some(first) = self.seen.get(&key) {
            return Ok(EntryKind::Again { name: first.clone() });
        }
        self.seen.insert(key, path.to_owned());
        if let Some(inode) = self.context.inode_index.get(&key) {
            let held = *inode;
            return Ok(
                match inodes::is_named(self.context, held, &format!("{}/{path}", self.root)) {
                    true => EntryKind::Held { inode: held },
                    false => self.leave(path, "it is open under another name".to_owned()),
                },
            );
        }
        if self.context.leased.has(key.1) {
            return Ok(self.leave(path, "somebody has a lease on it".to_owned()));
        }
        let size = stat.st_size.max(0) as u64;
        if !self.context.has_room_for(size) {
            let limit = self.context.files_limit;
            return Ok(self.leave(
                path,
                format!("all files together have over {limit} bytes (--files-limit)"),
            ));
        }
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let opened = openat(at, name, flags, Mode::empty());
        let same = |fd: &OwnedFd| fstat(fd).is_ok_and(|found| identity(&found) == key);
        let Some(fd) = opened.ok().filter(same) else {
            return Ok(self.leave(path, "it cannot be read".to_owned()));
        };
        let content = match inodes::content_of(self.context, fd.as_fd(), stat) {
            Ok(content) => content,
            Err(EngineError::Refused(refusal)) => return Ok(self.leave(path, refusal.what)),
            Err(error) => return Err(error),
        };
        *attributes = self.attributes(fd.as_fd(), path);
        Ok(EntryKind::File {
            content: self.context.keep_blob(content),
            size,
            number: key.1,
            changed_ns: changed_ns(stat),
        })
    }
}
