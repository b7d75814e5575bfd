//! Files outside of the session directories that are written in place: their content travels, and goes back with the job.
//!
//! What is only appended to needs no content: its length says all.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};

use nix::errno::Errno;
use nix::sys::statfs::fstatfs;
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Result};
use super::super::graph::{BlobId, Origin};
use super::super::inodes;
use super::super::names;
use super::super::sys::stat::{accessed_ns, identity, time};
use super::by_path::ByPath;
use super::{DumpContext, Probe, RestoreContext, paths, reopen};

/// What the kernel shows as files and nobody can put back.
const KERNEL: [&str; 3] = ["/proc/", "/sys/", "/dev/"];
/// File systems that machines share (statfs(2)): NFS, SMB, CIFS, SMB2, Lustre, GPFS, BeeGFS, Ceph, AFS, 9P, FUSE, GFS2, OCFS2.
const SHARED: [u64; 13] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0x00c3_6400,
    0x5346_414f,
    0x0102_1997,
    0x6573_5546,
    0x0116_1970,
    0x7461_636f,
];
/// What SQLite keeps beside a database, and would play back into one that is older.
const BESIDE: [&str; 3] = ["-journal", "-wal", "-shm"];
/// The content of a file that is written in place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InPlace {
    /// Its bytes.
    pub blob: BlobId,
    /// Permission bits.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// When it was last read, ns since 1970; none: taken for the time of its modification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accessed_ns: Option<i64>,
    /// Endings of names beside it that there were: see [`BESIDE`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
}

impl InPlace {
    /// Of a description through which the file at `path` can be written elsewhere than at its end.
    ///
    /// # Errors
    /// Failed system calls. What does not fit is named in a line.
    pub fn take(probe: &Probe, path: &str, context: &mut DumpContext) -> Result<Option<Self>> {
        if !reopen::writable(probe.flags) || probe.flags & libc::O_APPEND != 0 {
            return Ok(None);
        }
        let shared = is_on_shared(&probe.copy);
        let key = identity(&probe.stat);
        let blob = match context.in_place.get(&key) {
            Some(known) => *known,
            None => {
                let size = probe.stat.st_size.max(0) as u64;
                let blob = match admit(path, size, shared, context) {
                    true => read(probe, context)?,
                    false => None,
                };
                context.in_place.insert(key, blob);
                blob
            }
        };
        Ok(blob.map(|blob| Self {
            blob,
            mode: probe.stat.st_mode & 0o777,
            owner: (probe.stat.st_uid, probe.stat.st_gid),
            accessed_ns: Some(accessed_ns(&probe.stat)),
            beside: BESIDE
                .iter()
                .filter(|ending| names::path(&format!("{path}{ending}")).exists())
                .map(|ending| (*ending).to_owned())
                .collect(),
        }))
    }
}

/// Whether a file lies on a file system that machines share.
pub fn is_on_shared(file: impl AsFd) -> bool {
    // The type is a signed word on some machines.
    let kind = fstatfs(file).map(|found| found.filesystem_type().0 as u64 & 0xffff_ffff);
    kind.is_ok_and(|kind| SHARED.contains(&kind))
}

/// Whether the content of a file outside of the session directories goes into the image. `shared`: it lies on a file
/// system that machines share. What does not go is named.
pub fn admit(path: &str, size: u64, shared: bool, context: &mut DumpContext) -> bool {
    if KERNEL.iter().any(|folder| path.starts_with(folder)) {
        return false;
    }
    let why = if shared && context.cluster {
        // Each machine may see another state of it, and each would put its own back.
        "it lies on a file system that machines share".to_owned()
    } else if !context.has_room_for(size) {
        format!("all files together have over {} bytes (--files-limit)", context.files_limit)
    } else {
        return true;
    };
    context.warn(not_back(path, &why));
    false
}

fn not_back(path: &str, why: &str) -> String {
    format!("the content of {path} is not in the image and does not go back with the job: {why}")
}

fn read(probe: &Probe, context: &mut DumpContext) -> Result<Option<BlobId>> {
    // By a description for writing alone nothing can be read.
    let opened = match reopen::readable(probe.flags) {
        true => None,
        // Whoever opens the file breaks the job's own lease.
        false if context.leased.has(probe.inode().1) => None,
        false => context.open_to_read(&probe.copy, &probe.link).ok(),
    };
    let acting = context.act_as_user()?;
    let by = opened.as_ref().unwrap_or(&probe.copy).as_fd();
    let content = inodes::content_of(context, by, &probe.stat);
    drop(acting);
    match content {
        Ok(content) => Ok(Some(context.keep_blob(content))),
        // It stays where it is, as files by their paths do.
        Err(EngineError::Refused(refusal)) => {
            context.warn(not_back(&probe.link, &refusal.what));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Puts back the content of these files, where they have one. A file that is missing is made again.
///
/// # Errors
/// [`EngineError::Unfit`] where one cannot be written; failed system calls.
pub fn put_back<'f>(
    files: impl Iterator<Item = &'f ByPath>,
    context: &mut RestoreContext,
) -> Result<()> {
    let mut wanted = BTreeMap::new();
    let mut known = Vec::new();
    for file in files {
        known.push(file.path.as_str());
        if let Some(content) = &file.in_place {
            wanted.insert(file.path.as_str(), (file, content));
        }
    }
    let mut changed = Vec::new();
    for (path, (file, content)) in &wanted {
        if context.rehearsal {
            // The restart puts it back; the job still has it.
            context.put_back.insert((*path).to_owned());
            continue;
        }
        let same = |(other, (_, known)): (&&str, &(&ByPath, &InPlace))| {
            (known.blob == content.blob && other != path).then(|| (*other).to_owned())
        };
        link_if_missing(path, wanted.iter().filter_map(same))?;
        if put_back_one(file, content, context)? {
            changed.push(*path);
        }
        for ending in BESIDE {
            let beside = format!("{path}{ending}");
            let was_there = content.beside.iter().any(|known| known == ending);
            if !was_there && !known.contains(&beside.as_str()) {
                put_aside(&beside, context)?;
            }
        }
        context.put_back.insert((*path).to_owned());
    }
    if let Some(first) = changed.first() {
        let what = match changed.len() {
            1 => "was put back to its".to_owned(),
            more => format!("and {} more files were put back to their", more - 1),
        };
        context.warn(format!("{first} {what} content of the checkpoint"));
    }
    Ok(())
}

/// A name of a file that has others, which lead to it still.
fn link_if_missing(path: &str, mut others: impl Iterator<Item = String>) -> Result<()> {
    if std::fs::symlink_metadata(names::path(path)).is_ok() {
        return Ok(());
    }
    inodes::make_parents(path)?;
    // Where that is not possible, it becomes a file of its own, as one without other names does.
    others.any(|other| std::fs::hard_link(names::path(&other), names::path(path)).is_ok());
    Ok(())
}

/// What was made since the checkpoint, and belongs to a later state of the file that it is named after.
fn put_aside(path: &str, context: &mut RestoreContext) -> Result<()> {
    let made = context
        .graph
        .inodes
        .iter()
        .any(|inode| matches!(&inode.origin, Origin::Named { path: known } if known == path));
    if made || std::fs::symlink_metadata(names::path(path)).is_err() {
        return Ok(());
    }
    let failed = |errno| EngineError::system("put aside", path, errno);
    let base = format!("{path}.ckptd-since");
    let (to, ()) = paths::first_free(&base, |to| {
        if names::path(to).exists() {
            return Err(Errno::EEXIST);
        }
        let here = nix::fcntl::AT_FDCWD;
        nix::fcntl::renameat(here, &*names::path(path), here, &*names::path(to))
    })
    .map_err(failed)?;
    context.warn(format!("{path} was not there at the checkpoint: it is {to} now"));
    Ok(())
}

/// Whether there was anything to change.
fn put_back_one(file: &ByPath, content: &InPlace, context: &mut RestoreContext) -> Result<bool> {
    let path = &file.path;
    let unfit = |error: io::Error| EngineError::Unfit {
        what: format!("{path} cannot be written ({error})"),
        way_out: "give back the permission that the job had".to_owned(),
    };
    let failed = |error: io::Error| EngineError::system("write", path, error);
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let (opened, new) = match reopen::open_as_owner(path, libc::O_RDWR | libc::O_NONBLOCK) {
        Ok(opened) => (File::from(opened), false),
        Err(Errno::ENOENT) => {
            inodes::make_parents(path)?;
            (options.create_new(true).mode(0o600).open(names::path(path)).map_err(unfit)?, true)
        }
        Err(errno) => return Err(unfit(errno.into())),
    };
    let found = opened.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(unfit(ErrorKind::InvalidInput.into()));
    }
    let length = context.graph.blob(content.blob)?.length;
    let changed =
        inodes::rewrite(&opened, path, (content.blob, length.min(found.size())), context)?;
    if found.size() > length && !changed {
        // It has only grown: what has come since is kept.
        file.cut(found.size(), context)?;
    } else if found.size() != length {
        opened.set_len(length).map_err(failed)?;
    }
    if new {
        // An ordinary user can't give files away, and need not: they are his own.
        let _ = std::os::unix::fs::fchown(&opened, Some(content.owner.0), Some(content.owner.1));
        let mode = std::fs::Permissions::from_mode(content.mode & 0o777);
        opened.set_permissions(mode).map_err(failed)?;
    }
    // Only its owner may.
    let accessed = time(content.accessed_ns.unwrap_or(file.modified_ns));
    let _ = nix::sys::stat::futimens(&opened, &accessed, &time(file.modified_ns));
    Ok(changed || new)
}
