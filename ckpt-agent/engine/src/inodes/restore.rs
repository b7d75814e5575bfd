//! Makes the inodes of an image again, in the job's init.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl, open};
use nix::sys::stat::{FileStat, Mode};

use super::super::error::{EngineError, Result};
use super::super::graph::{CarriedInode, InodeId, Origin};
use super::super::names;
use super::super::objects::{RestoreContext, paths, reopen};
use super::super::sys::abi;
use super::super::sys::file_user::FileUser;
use super::super::sys::memfd;
use super::super::sys::memory_map;
use super::super::sys::stat::{identity, is_same_file, modified_ns, time};
use super::ahead::keeps_true_times;
use super::comparison::Comparison;
use super::rewriting::make_same;
use super::{ANONYMOUS_NAME, extended, huge, segments};

/// include/uapi/linux/fcntl.h, since Linux 6.3.
const F_SEAL_EXEC: i32 = 0x20;

/// Seals that hold from the start: where they were set there was no writable shared mapping, so
/// that none will be made; and with them a shared mapping for reading becomes one that can't
/// be made writable, as it was.
const EARLY_SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;

/// Permission bits that are set again. What is made again belongs to whoever restores, who must not give rights with it: never
/// set-user-ID and set-group-ID.
pub const KEPT_MODE: u32 = 0o1777;

/// Makes every inode that travels in the image, with its content. Permissions and the seals that
/// would be in the way of open(2) and mmap(2) are put on by [`seal_all`].
///
/// # Errors
/// Failed system calls (a file that cannot be written is named), [`EngineError::Damaged`].
pub fn restore_all(context: &mut RestoreContext) -> Result<()> {
    let mut renumbered = Vec::new();
    let mut renamed = Vec::new();
    for (index, inode) in context.graph.inodes.iter().enumerate() {
        let id = InodeId(index as u32);
        if !context.needs_inode(id) {
            continue;
        }
        if segments::number_of(inode).is_some() {
            // Others are made in the IPC namespaces that they are in, once there are these.
            if segments::namespace_of(inode).is_none() {
                segments::make(inode, context)?;
            }
            continue;
        }
        let fd = make(inode, context)?;
        if is_another(&fd, inode) && is_written(id, context) {
            renumbered.push(name(inode));
        }
        renamed.extend(other_name(&fd, inode));
        for link in &inode.links {
            if let Err(error) = make_link(&fd, inode, link) {
                context.warn(format!(
                    "{link}, another name of {}, is not made again ({error})",
                    name(inode)
                ));
            }
        }
        context.add_inode(id, fd)?;
    }
    if let Some((path, now)) = renamed.first() {
        let others = match renamed.len() {
            1 => String::new(),
            more => format!(", and {} more have other names, too", more - 1),
        };
        context.warn(format!("the deleted file {path} is shown as {now} from now on{others}"));
    }
    if let Some(first) = renumbered.first() {
        let others = match renumbered.len() {
            1 => "has another inode number".to_owned(),
            more => format!("and {} more files have other inode numbers", more - 1),
        };
        context.warn(format!(
            "{first} {others} than before: a program that compares them, as databases do, may refuse to write"
        ));
    }
    Ok(())
}

/// Whether a file with a name has got another inode.
fn is_another(fd: &OwnedFd, inode: &CarriedInode) -> bool {
    let known = inode.number.filter(|_| matches!(inode.origin, Origin::Named { .. }));
    known.is_some_and(|known| {
        nix::sys::stat::fstat(fd).is_ok_and(|found| identity(&found).1 != known)
    })
}

/// The path of a deleted file, and what /proc shows of it instead: something else has its name, or its folder can't be
/// written to.
fn other_name<'i>(fd: &OwnedFd, inode: &'i CarriedInode) -> Option<(&'i str, String)> {
    let Origin::Deleted { path, nameless: false } = &inode.origin else { return None };
    let shown = names::text(std::fs::read_link(reopen::magic_link(fd)).ok()?);
    let now = paths::without_mark(&shown);
    (now != path).then(|| (path.as_str(), now.to_owned()))
}

/// Whether a description can be written through.
fn is_written(id: InodeId, context: &RestoreContext) -> bool {
    let files = context.graph.files.iter();
    files
        .filter(|file| reopen::writable(file.flags))
        .any(|file| file.object.carried_inode() == Some(id))
}

/// Puts owners, permissions, times and the remaining seals on the inodes: the last act, when all
/// descriptions are open and all mappings made. As the user for whom they were made: a file of somebody else's is that user's
/// own from now on.
///
/// # Errors
/// Failed fcntl(F_ADD_SEALS): EBUSY where a writable mapping is left that the job did not have.
pub fn seal_all(context: &mut RestoreContext) -> Result<()> {
    let user = context.user.as_ref();
    let _acting = user.map(|user| FileUser::begin(user.uid, user.gid, &user.groups)).transpose()?;
    let graph = context.graph;
    for (index, inode) in graph.inodes.iter().enumerate() {
        let id = InodeId(index as u32);
        if !context.needs_inode(id) {
            continue;
        }
        if segments::number_of(inode).is_some() {
            if segments::namespace_of(inode).is_none() {
                segments::destroy_marked(inode)?;
            }
            continue;
        }
        let fd = context.inode(id)?;
        if inode.read_only && is_unchanged(fd, inode) {
            continue;
        }
        let mut changed = Vec::new();
        if let Some((user, group)) = inode.owner {
            // An ordinary user can't give files away: those of others become that user's own.
            let given = nix::unistd::fchown(fd, Some(user.into()), Some(group.into()));
            let found = nix::sys::stat::fstat(fd);
            if let (Err(_), Ok(found)) = (given, found) {
                if (found.st_uid, found.st_gid) != (user, group) {
                    let (uid, gid) = (found.st_uid, found.st_gid);
                    changed.push(format!(
                        "belongs to user {uid}, group {gid}, not to {user}, {group}"
                    ));
                }
            }
        }
        // While the file is the user's to write; a list goes with the mode.
        if let Some(attributes) = &inode.attributes {
            changed.extend(extended::put(fd, attributes, context)?);
        }
        let mode = Mode::from_bits_truncate((inode.mode & KEPT_MODE) as libc::mode_t);
        if inode.origin != Origin::Anonymous {
            if inode.mode & !KEPT_MODE != 0 {
                changed.push("has lost its set-user-ID and set-group-ID bits".to_owned());
            }
            // A memfd that is sealed against execution has its mode already.
            nix::sys::stat::fchmod(fd, mode)
                .map_err(|errno| EngineError::system("fchmod", name(inode), errno))?;
        }
        if let (Some(ns), true) = (inode.modified_ns, inode.origin != Origin::Anonymous) {
            let accessed = time(inode.accessed_ns.unwrap_or(ns));
            nix::sys::stat::futimens(fd, &accessed, &time(ns))
                .map_err(|errno| EngineError::system("futimens", name(inode), errno))?;
        }
        if let Origin::Memfd { seals, .. } = &inode.origin {
            add_seals(fd, seals & !EARLY_SEALS, inode)?;
        }
        if !changed.is_empty() {
            context.warn(format!("{}, made again, {}", name(inode), changed.join(" and ")));
        }
    }
    Ok(())
}

fn make(inode: &CarriedInode, context: &mut RestoreContext<'_>) -> Result<OwnedFd> {
    match &inode.origin {
        Origin::Memfd { name, seals } => {
            let executable = inode.mode & 0o111 != 0 || seals & F_SEAL_EXEC == 0;
            let fd = in_memory(name, executable, inode, context)?;
            add_seals(fd.as_fd(), seals & EARLY_SEALS, inode)?;
            Ok(fd)
        }
        Origin::Anonymous => in_memory(ANONYMOUS_NAME, true, inode, context),
        Origin::Deleted { path, nameless } if inode.huge.is_some() => {
            let there = deleted(path, *nameless).ok();
            match there.map(|fd| huge::on_mount(fd, inode, context)).transpose()?.flatten() {
                Some(fd) => Ok(fd),
                None => in_memory(file_name(path), true, inode, context),
            }
        }
        Origin::Named { path } if inode.huge.is_some() => named_huge(path, inode, context),
        Origin::Deleted { path, nameless } => {
            let fits = |fd: &OwnedFd| !inode.executed || memory_map::may_hold_code(fd.as_fd());
            let fd = match deleted(path, *nameless).ok().filter(fits) {
                Some(fd) => fd,
                None => memfd(file_name(path), true)?,
            };
            context.copy_blob(inode.content, fd.as_fd())?;
            Ok(fd)
        }
        Origin::Named { path } => named(path, inode, context),
        Origin::Segment { .. } => Err(EngineError::odd("inode", "a segment is no file")),
    }
}

/// A file in memory, with its content.
fn in_memory(
    name: &str,
    executable: bool,
    inode: &CarriedInode,
    context: &mut RestoreContext<'_>,
) -> Result<OwnedFd> {
    if let Some(huge) = huge::make(&c_name(name)?, executable, inode, context)? {
        return Ok(huge);
    }
    if inode.huge.is_some() {
        context.warn(format!(
            "{} has ordinary pages instead of {} MiB of huge ones (hugetlbfs), of which this machine has not enough \
             (vm.nr_hugepages, vm.nr_overcommit_hugepages)",
            self::name(inode),
            inode.size.div_ceil(1 << 20)
        ));
    }
    let fd = memfd(name, executable)?;
    context.copy_blob(inode.content, fd.as_fd())?;
    Ok(fd)
}

/// A file of hugetlbfs under its name; where there is no such file system any more, or not enough pages, the content without
/// the name.
fn named_huge(
    path: &str,
    inode: &CarriedInode,
    context: &mut RestoreContext<'_>,
) -> Result<OwnedFd> {
    if context.rehearsal {
        return in_memory(file_name(path), true, inode, context);
    }
    if let Some(there) = itself(path, inode).filter(|fd| huge::is_on(fd, inode)) {
        nix::unistd::ftruncate(&there, 0)
            .map_err(|errno| EngineError::system("truncate", path, errno))?;
        if let Some(fd) = huge::on_mount(there, inode, context)? {
            return Ok(fd);
        }
    }
    let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_CREAT | OFlag::O_EXCL;
    let make = |name: &str| open(&*names::path(name), flags, Mode::S_IRUSR | Mode::S_IWUSR);
    if let Ok((temporary, fd)) = paths::first_free(&format!("{path}.ckptd-new"), make) {
        let here = nix::fcntl::AT_FDCWD;
        let filled = huge::on_mount(fd, inode, context);
        let named = matches!(filled, Ok(Some(_)))
            && nix::fcntl::renameat(here, &*names::path(&temporary), here, &*names::path(path))
                .is_ok();
        if named {
            if let Some(fd) = filled? {
                return Ok(fd);
            }
        } else {
            let _ = nix::unistd::unlink(&*names::path(&temporary));
            filled?;
        }
    }
    context.warn(format!(
        "{path} has no name any more: no hugetlbfs with enough pages of its size is mounted there, or not for this user"
    ));
    in_memory(file_name(path), true, inode, context)
}

/// Makes a further name of a file, unless it is there: in the place of what has it now, as with first names.
fn make_link(fd: &OwnedFd, inode: &CarriedInode, link: &str) -> Result<()> {
    let Origin::Named { path } = &inode.origin else { return Ok(()) };
    let failed = |errno| EngineError::system("link", link, errno);
    let known = nix::sys::stat::fstat(fd).map_err(failed)?;
    if nix::sys::stat::lstat(&*names::path(link)).is_ok_and(|there| is_same_file(&there, &known)) {
        return Ok(());
    }
    make_parents(link)?;
    let here = nix::fcntl::AT_FDCWD;
    let make = |name: &str| {
        let (path, name) = (names::path(path), names::path(name));
        nix::unistd::linkat(here, &*path, here, &*name, nix::fcntl::AtFlags::empty())
    };
    let (temporary, ()) = paths::first_free(&format!("{link}.ckptd-new"), make).map_err(failed)?;
    nix::fcntl::renameat(here, &*names::path(&temporary), here, &*names::path(link)).map_err(
        |errno| {
            let _ = nix::unistd::unlink(&*names::path(&temporary));
            failed(errno)
        },
    )
}

/// A deleted file where the old one was, with the name that /proc shows of it. It is the user's own, without any right for
/// others, before it has a name for a moment. One that is `nameless` never gets it, and so can be given another.
fn deleted(path: &str, nameless: bool) -> Result<OwnedFd> {
    let failed = |errno| EngineError::system("make the deleted file", path, errno);
    let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let name = names::path(path);
    let folder = name.parent().unwrap_or(Path::new("/"));
    if let Ok(fd) = open(folder, flags | OFlag::O_TMPFILE, mode) {
        return Ok(if nameless { fd } else { called(path, &fd).unwrap_or(fd) });
    }
    let once = flags | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
    let fd = open(&*name, once, mode).map_err(failed)?;
    nix::unistd::unlink(&*name).map_err(failed)?;
    Ok(fd)
}

/// Opens a file that has no name yet by the name that it is to have had.
fn called(path: &str, nameless: &OwnedFd) -> nix::Result<OwnedFd> {
    let (link, path) = (reopen::magic_link(nameless), &*names::path(path));
    let (here, follow) = (nix::fcntl::AT_FDCWD, nix::fcntl::AtFlags::AT_SYMLINK_FOLLOW);
    nix::unistd::linkat(here, link.as_str(), here, path, follow)?;
    let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let opened = open(path, flags, Mode::empty());
    nix::unistd::unlink(path)?;
    let fd = opened?;
    let same = is_same_file(&nix::sys::stat::fstat(&fd)?, &nix::sys::stat::fstat(nameless)?);
    if same { Ok(fd) } else { Err(nix::errno::Errno::ESTALE) }
}

/// The file itself with its old content, where it is still there: programs may know it by its number. Else a new file
/// under the old name: whoever holds another file of that name keeps it, and never sees half of this one.
fn named(path: &str, inode: &CarriedInode, context: &RestoreContext) -> Result<OwnedFd> {
    let failed = |errno| EngineError::system("make the file", path, errno);
    if inode.read_only {
        // A new file in its place would look changed to other jobs that run the same program.
        if let Ok(there) = reopen::open_as_owner(path, libc::O_RDONLY | libc::O_NOFOLLOW) {
            if is_unchanged(there.as_fd(), inode) && has_content(&there, inode, context)? {
                return Ok(there);
            }
        }
    }
    if let Some(there) = itself(path, inode) {
        let there = File::from(there);
        // The file may have been another size when it was read than when it was looked at.
        let length = context.graph.blob(inode.content)?.length;
        make_same(&there, path, (inode.content, length), context)?;
        return Ok(there.into());
    }
    make_parents(path)?;
    let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_CREAT | OFlag::O_EXCL;
    let make = |name: &str| open(&*names::path(name), flags, Mode::S_IRUSR | Mode::S_IWUSR);
    let (temporary, fd) = paths::first_free(&format!("{path}.ckptd-new"), make).map_err(failed)?;
    let filled = context.copy_blob(inode.content, fd.as_fd()).and_then(|()| {
        let here = nix::fcntl::AT_FDCWD;
        nix::fcntl::renameat(here, &*names::path(&temporary), here, &*names::path(path))
            .map_err(failed)
    });
    if let Err(error) = filled {
        let _ = nix::unistd::unlink(&*names::path(&temporary));
        return Err(error);
    }
    Ok(fd)
}

/// The very file that is recorded, if its name leads to it still and it may be written: a program that runs may not.
fn itself(path: &str, inode: &CarriedInode) -> Option<OwnedFd> {
    let (number, path) = (inode.number?, &*names::path(path));
    let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let is_it =
        |stat: &FileStat| stat.st_mode & abi::S_IFMT == abi::S_IFREG && identity(stat).1 == number;
    nix::sys::stat::lstat(path).ok().filter(is_it)?;
    let fd = open(path, flags, Mode::empty())
        .or_else(|_| {
            let own = Mode::S_IRUSR | Mode::S_IWUSR;
            let follow = nix::sys::stat::FchmodatFlags::FollowSymlink;
            nix::sys::stat::fchmodat(nix::fcntl::AT_FDCWD, path, own, follow)?;
            open(path, flags, Mode::empty())
        })
        .ok()?;
    nix::sys::stat::fstat(&fd).ok().filter(is_it)?;
    Some(fd)
}

/// Whether a file has the recorded content. Where each change moves a file's times, [`is_unchanged`] has told.
fn has_content(file: &OwnedFd, inode: &CarriedInode, context: &RestoreContext) -> Result<bool> {
    if keeps_true_times(file.as_fd()) {
        return Ok(true);
    }
    let copy = file
        .try_clone()
        .map_err(|error| EngineError::system("copy a descriptor", name(inode), error))?;
    let mut comparison = Comparison::of(File::from(copy));
    context.for_each_span(inode.content, |offset, bytes| {
        comparison.span(offset, bytes);
        Ok(())
    })?;
    Ok(comparison.ends(inode.size))
}

/// Whether a file has the size and time of the recorded one.
fn is_unchanged(fd: BorrowedFd<'_>, inode: &CarriedInode) -> bool {
    nix::sys::stat::fstat(fd).is_ok_and(|stat| {
        stat.st_size as u64 == inode.size
            && Some(modified_ns(&stat)) == inode.modified_ns
            && stat.st_mode & KEPT_MODE == inode.mode & KEPT_MODE
    })
}

/// Makes the folders above a file of a session directory, for their owner alone.
///
/// # Errors
/// Failed mkdir(2).
pub fn make_parents(path: &str) -> Result<()> {
    let path = names::path(path);
    let Some(parent) = path.parent() else { return Ok(()) };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(parent)
        .map_err(|error| EngineError::system("mkdir", parent.to_string_lossy(), error))
}

fn memfd(name: &str, executable: bool) -> Result<OwnedFd> {
    let text = c_name(name)?;
    memfd::made_executable(executable, |flags| memfd::make(&text, flags))
        .map_err(|errno| EngineError::system("memfd_create", name, errno))
}

fn c_name(name: &str) -> Result<CString> {
    CString::new(names::bytes(name))
        .map_err(|_| EngineError::Damaged(format!("a memfd named {name:?}")))
}

fn add_seals(fd: BorrowedFd<'_>, seals: i32, inode: &CarriedInode) -> Result<()> {
    if seals == 0 {
        return Ok(());
    }
    fcntl(fd, FcntlArg::F_ADD_SEALS(SealFlag::from_bits_retain(seals)))
        .map(drop)
        .map_err(|errno| EngineError::system("seal", name(inode), errno))
}

fn name(inode: &CarriedInode) -> String {
    inode.origin.to_string()
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
