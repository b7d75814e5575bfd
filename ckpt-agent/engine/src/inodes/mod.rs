//! Inodes whose content travels in the image: taken once, however many descriptors and
//! mappings share them, and made again before anything that refers to them.

pub mod ahead;
mod comparison;
pub(super) mod content;
pub mod copying;
mod extended;
mod free_memory;
mod huge;
mod pieces;
mod restore;
mod rewriting;
pub(super) mod room;
pub mod segments;

pub use ahead::content_of;
pub use content::read as read_content;
pub use extended::{put as put_attributes, take as take_attributes};
pub(super) use pieces::in_pieces;
pub use restore::{KEPT_MODE, make_parents, restore_all, seal_all};
pub use rewriting::rewrite;

use std::os::fd::BorrowedFd;

use nix::sys::stat::FileStat;

use super::error::{Refusal, Result};
use super::graph::{CarriedInode, InodeId, Origin};
use super::objects::{BlobData, DumpContext, Probe, reopen};
use super::sys::stat::{accessed_ns, identity, modified_ns};

/// The name that a restore gives to a memfd which stands for shared anonymous memory: the next
/// dump knows it by this name.
pub const ANONYMOUS_NAME: &str = "ckptd-shared-anonymous";

/// Takes the inode behind a descriptor into the image, with its content as it is now: the job
/// must stand still. The descriptor's offset stays as it is, whatever its access mode.
///
/// # Errors
/// A refusal where it cannot be read or does not fit into memory; failed system calls.
pub fn take(
    context: &mut DumpContext,
    fd: BorrowedFd<'_>,
    stat: &FileStat,
    origin: Origin,
) -> Result<InodeId> {
    let key = identity(stat);
    if let Some(known) = context.inode_index.get(&key).copied() {
        if let Some(inode) = context.inodes.get_mut(known.0 as usize) {
            met_again(inode, origin);
        }
        return Ok(known);
    }
    let content = content_of(context, fd, stat)?;
    let shown = origin.to_string();
    let id = add(context, stat, origin, content);
    let attributes = take_attributes(fd, &shown, context);
    if let Some(inode) = context.inodes.get_mut(id.0 as usize) {
        inode.attributes = attributes;
    }
    Ok(id)
}

/// A known inode under another name, or under its first one.
fn met_again(inode: &mut CarriedInode, origin: Origin) {
    // Met through a descriptor alone, it has no further name.
    let Origin::Named { path: other } = origin else { return };
    match &inode.origin {
        Origin::Named { path } if *path == other || inode.links.contains(&other) => {}
        Origin::Named { .. } => inode.links.push(other),
        // It has lost one name only.
        Origin::Deleted { .. } => inode.origin = Origin::Named { path: other },
        _ => {}
    }
}

/// Takes an inode whose content the caller has read, unless it is known already: shared
/// anonymous memory has no descriptor.
pub fn add(
    context: &mut DumpContext,
    stat: &FileStat,
    origin: Origin,
    content: BlobData,
) -> InodeId {
    let key = identity(stat);
    if let Some(known) = context.inode_index.get(&key) {
        return *known;
    }
    let inode = CarriedInode {
        origin,
        size: content.length,
        mode: stat.st_mode & 0o7777,
        owner: Some((stat.st_uid, stat.st_gid)),
        modified_ns: Some(modified_ns(stat)),
        accessed_ns: Some(accessed_ns(stat)),
        number: Some(key.1),
        read_only: false,
        executed: false,
        huge: context.huge_page_on(key.0),
        links: Vec::new(),
        attributes: None,
        content: context.keep_blob(content),
    };
    let id = InodeId(context.inodes.len() as u32);
    context.inodes.push(inode);
    context.inode_index.insert(key, id);
    id
}

/// What kind of inode a descriptor's or a mapping's path shows, for those that have no path to
/// be found by: `link` is the target of /proc/PID/fd/N, of /proc/PID/map_files, or the path in
/// /proc/PID/maps. `seals`: F_GET_SEALS of a memfd, 0 where it is not known.
pub fn pathless_origin(link: &str, seals: i32) -> Origin {
    let path = link.strip_suffix(" (deleted)").unwrap_or(link);
    match path.strip_prefix("/memfd:") {
        Some(ANONYMOUS_NAME) => Origin::Anonymous,
        Some(name) => Origin::Memfd { name: name.to_owned(), seals },
        None if matches!(path, "/dev/zero" | "/anon_hugepage") => Origin::Anonymous,
        None => Origin::Deleted { path: path.to_owned(), nameless: is_nameless(path) },
    }
}

/// Whether the name is the one that a file of O_TMPFILE has in /proc (fs/dcache.c, d_mark_tmpfile), a number. One that
/// O_EXCL has denied a name can't be told from others.
fn is_nameless(path: &str) -> bool {
    let name = path.rsplit('/').next().and_then(|name| name.strip_prefix('#'));
    name.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Whether an inode that travels is made again under this name.
pub fn is_named(context: &DumpContext, inode: InodeId, name: &str) -> bool {
    let known = context.inodes.get(inode.0 as usize);
    known.is_some_and(|known| {
        matches!(&known.origin, Origin::Named { path } if path == name)
            || known.links.iter().any(|link| link == name)
    })
}

/// Whether a file of a session directory has to stay where it is: it belongs to another user than
/// the process (told by the owner of /proc/PID), so that a restart could not replace it (in a
/// folder with the sticky bit, as /tmp is). Holds for mapped files too.
pub fn belongs_to_another(host_pid: i32, owner: u32) -> bool {
    use std::os::unix::fs::MetadataExt;
    // A process that may not be dumped shows root, as a job of root's does: nothing is
    // beyond that one's reach.
    std::fs::metadata(format!("/proc/{host_pid}"))
        .is_ok_and(|process| process.uid() != 0 && process.uid() != owner)
}

/// Takes the inode of a description that has no path of its own any more, or whose path lies
/// in a session directory.
///
/// # Errors
/// As [`take`].
pub fn take_probe(context: &mut DumpContext, probe: &Probe, named: bool) -> Result<InodeId> {
    use std::os::fd::AsFd;
    let copy = probe.copy.as_fd();
    // Such a descriptor gives its holder no right to the content.
    let opened = match reopen::readable(probe.flags) {
        true => None,
        false if context.leased.has(probe.inode().1) => {
            let what = "a lease on a file that is not open for reading";
            return Err(Refusal::new(what, "open it for reading, too").into());
        }
        false => Some(context.open_to_read(copy, &probe.link)?),
    };
    let origin = if named {
        Origin::Named { path: probe.link.clone() }
    } else {
        // EINVAL where the file system has no seals; O_PATH descriptors tell none.
        let seals = nix::fcntl::fcntl(copy, nix::fcntl::FcntlArg::F_GET_SEALS).unwrap_or(0);
        pathless_origin(&probe.link, seals)
    };
    take(context, opened.as_ref().map_or(copy, AsFd::as_fd), &probe.stat, origin)
}
