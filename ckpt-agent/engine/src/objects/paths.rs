//! Names of files: which file a recorded path is, and names that are free.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::super::error::{EngineError, Refusal, Result};
use super::super::names;
use super::other_name::DELETED;
use super::{DumpContext, Probe, reopen};

/// Limit of names tried before a folder counts as full.
const ATTEMPTS: u32 = 10_000;

/// Whether the link of a description leads to its inode, as its process would look it up.
pub fn leads_to_it(probe: &Probe) -> bool {
    let seen = |path: &str| {
        std::fs::symlink_metadata(names::path(path))
            .is_ok_and(|found| (found.dev(), found.ino()) == probe.inode())
    };
    // The process may have a mount namespace of its own; the link of one with a root
    // directory of its own is told from ours.
    probe.link.starts_with('/')
        && (seen(&format!("{}{}", probe.root, probe.link)) || seen(&probe.link))
}

/// As [`leads_to_it`], also where only the job's user may search the folder: whoever acts for all users has no rights over some file
/// systems (NFS, FUSE).
///
/// # Errors
/// The refusal of what is written and has a name at which neither may look, so that nobody knows whether it leads there: taken for
/// deleted, it would be a file of its own after a restart.
pub fn leads_to_it_for_user(probe: &Probe, context: &DumpContext) -> Result<bool> {
    match found_for_user(probe, context)? {
        Looked::Hidden if reopen::writable(probe.flags) => Err(hidden(&probe.link)),
        looked => Ok(looked == Looked::Leads),
    }
}

/// As [`leads_to_it_for_user`], of what is a place that others meet at, such as a FIFO: also what is not written.
///
/// # Errors
/// The refusal of what has a name at which nobody may look.
pub fn leads_to_place_for_user(probe: &Probe, context: &DumpContext) -> Result<bool> {
    match found_for_user(probe, context)? {
        Looked::Hidden => Err(hidden(&probe.link)),
        looked => Ok(looked == Looked::Leads),
    }
}

/// What a look at a name has told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    Leads,
    LeadsElsewhere,
    /// Neither this process nor the job's user may search its folder.
    Hidden,
}

fn found_for_user(probe: &Probe, context: &DumpContext) -> Result<Looked> {
    if leads_to_it(probe) {
        return Ok(Looked::Leads);
    }
    let path = format!("{}{}", probe.root, probe.link);
    if probe.stat.st_nlink == 0 || probe.link.ends_with(DELETED) || !is_hidden(&path) {
        return Ok(Looked::LeadsElsewhere);
    }
    if context.user.is_some() {
        let _acting = context.act_as_user()?;
        if leads_to_it(probe) {
            return Ok(Looked::Leads);
        }
        if !is_hidden(&path) {
            return Ok(Looked::LeadsElsewhere);
        }
    }
    Ok(Looked::Hidden)
}

/// Whether nobody tells this process what is there.
pub fn is_hidden(path: &str) -> bool {
    std::fs::symlink_metadata(names::path(path))
        .is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// The refusal of what nobody knows to be there still.
pub fn hidden(path: &str) -> EngineError {
    Refusal::new(
        format!("{path} is open, but its folder may not be searched"),
        "give the job's user the right to search the folder",
    )
    .into()
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

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions, create_dir, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::super::super::job_init::UserOrder;
    use super::super::super::sys::restrained::{OVER_FILES, Restrained};
    use super::super::testing::probe;
    use super::*;

    /// A user that is nobody's.
    const OTHER: u32 = 65_534;

    #[test]
    fn what_the_user_alone_may_look_at_is_found() {
        let top = std::env::temp_dir().join(format!("paths-{}", std::process::id()));
        create_dir(&top).unwrap();
        let path = top.join("file");
        let written = probe(File::create(&path).unwrap());
        let read = probe(File::open(&path).unwrap());
        let mut context = DumpContext::default();
        let found = |probe: &Probe, context: &DumpContext| {
            let _without_rights = Restrained::begin(OVER_FILES).unwrap();
            leads_to_it_for_user(probe, context)
        };
        let place = |probe: &Probe, context: &DumpContext| {
            let _without_rights = Restrained::begin(OVER_FILES).unwrap();
            leads_to_place_for_user(probe, context)
        };
        set_permissions(&top, Permissions::from_mode(0o000)).unwrap();
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&top, Some(OTHER), Some(OTHER)).unwrap();
            context.user = Some(UserOrder { uid: OTHER, gid: OTHER, groups: Vec::new() });
        }
        let refused = found(&written, &context).unwrap_err().to_string();
        assert!(refused.contains("may not be searched"), "{refused}");
        assert!(!found(&read, &context).unwrap());
        assert!(place(&read, &context).is_err());
        set_permissions(&top, Permissions::from_mode(0o700)).unwrap();
        assert!(found(&written, &context).unwrap());
        assert!(found(&read, &context).unwrap());
        assert!(place(&read, &context).unwrap());
        std::fs::remove_file(&path).unwrap();
        let gone = probe(&written.copy);
        assert!(!found(&gone, &context).unwrap());
        std::fs::remove_dir(&top).unwrap();
    }
}
