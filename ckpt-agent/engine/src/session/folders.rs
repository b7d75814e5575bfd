//! Which folders hold files that belong to a job.

use std::path::{Path, PathBuf};

use protocol::launch::Kept;

use super::temporary;

/// Directories whose files travel with the job while they are open.
pub(super) fn session_directories(
    environment: &[(std::ffi::OsString, std::ffi::OsString)],
    kept: &Kept,
) -> Vec<PathBuf> {
    let mut directories = vec![PathBuf::from("/tmp"), PathBuf::from("/dev/shm")];
    directories.extend(temporary_folder(environment));
    directories.extend(kept.all_folders().cloned());
    directories
}

/// The user's own $TMPDIR.
fn temporary_folder(environment: &[(std::ffi::OsString, std::ffi::OsString)]) -> Option<PathBuf> {
    let own = environment.iter().find(|(name, _)| name == "TMPDIR").map(|(_, value)| value);
    own.map(PathBuf::from).filter(|folder| folder.is_absolute() && folder != Path::new("/"))
}

/// A name for the folder of a job's temporary files: below the user's own $TMPDIR or /tmp. Short, since sockets are made
/// below it, whose paths have 107 bytes at most.
pub(super) fn own_temporary(
    environment: &[(std::ffi::OsString, std::ffi::OsString)],
) -> Option<PathBuf> {
    let mut base = temporary_folder(environment).unwrap_or_else(|| "/tmp".into());
    let is_a_jobs =
        |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(temporary::PREFIX.as_bytes());
    // A job in a job, or a remote shell's: it must not be in what belongs to another.
    while base.file_name().is_some_and(is_a_jobs) {
        base = base.parent()?.to_owned();
    }
    if !base.is_dir() {
        base = "/tmp".into();
    }
    let name = random_name()?;
    Some(base.join(format!("{}{name}", temporary::PREFIX)))
}

/// Eight letters that nobody else has.
fn random_name() -> Option<String> {
    let mut bytes = [0; 4];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").ok()?, &mut bytes).ok()?;
    Some(crate::graph::to_hex(&bytes))
}
