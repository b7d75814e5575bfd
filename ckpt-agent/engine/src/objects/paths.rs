//! Names of files: which file a recorded path is, and names that are free.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::super::error::{Refusal, Result};
use super::Probe;
use super::other_name::DELETED;

/// Limit of names tried before a folder counts as full.
const ATTEMPTS: u32 = 10_000;

/// Whether the link of a description leads to its inode, as its process would look it up.
pub fn leads_to_it(probe: &Probe) -> bool {
    let seen = |path: &str| {
        std::fs::symlink_metadata(path)
            .is_ok_and(|found| (found.dev(), found.ino()) == probe.inode())
    };
    // The process may have a mount namespace of its own; the link of one with a root
    // directory of its own is told from ours.
    probe.link.starts_with('/')
        && (seen(&format!("{}{}", probe.root, probe.link)) || seen(&probe.link))
}

/// Refuses what has a name that cannot be looked at, so that nobody knows whether it leads there: taken for deleted, it would
/// be a file of its own after a restart.
///
/// # Errors
/// The refusal.
pub fn refuse_hidden(probe: &Probe) -> Result<()> {
    let hidden = |path: &str| {
        std::fs::symlink_metadata(path)
            .is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    let is_hidden = probe.stat.st_nlink > 0
        && !probe.link.ends_with(DELETED)
        && hidden(&format!("{}{}", probe.root, probe.link));
    match is_hidden {
        true => Err(Refusal::new(
            format!("{} is open, but its folder may not be searched", probe.link),
            "give the job's user the right to search the folder",
        )
        .into()),
        false => Ok(()),
    }
}

/// The path that a deleted file had.
pub fn without_mark(link: &str) -> &str {
    link.strip_suffix(DELETED).unwrap_or(link)
}

/// Whether a network file system has only hidden a deleted file (NFS), so that its name ends
/// with the process.
pub fn is_silly_rename(link: &str) -> bool {
    Path::new(link).file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".nfs"))
}

/// The first of `path` and `path` with a number behind it for which `make` does not find that
/// it exists already, with what `make` made of it.
///
/// # Errors
/// Of `make`, but for EEXIST.
pub fn first_free<T>(
    path: &str,
    mut make: impl FnMut(&str) -> nix::Result<T>,
) -> nix::Result<(String, T)> {
    let mut name = path.to_owned();
    for number in 1..=ATTEMPTS {
        match make(&name) {
            Err(nix::errno::Errno::EEXIST) => name = format!("{path}-{number}"),
            other => return other.map(|made| (name, made)),
        }
    }
    Err(nix::errno::Errno::EEXIST)
}
