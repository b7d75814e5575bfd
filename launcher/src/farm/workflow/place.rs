//! Where a file of a workflow's lies. Its path leads through folders alone: a link on the way could lead anywhere, and two paths
//! to one file.

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The folder of a file, and its name there. `None`: there is no such folder.
fn folder_of<'f>(working: &Path, file: &'f str) -> io::Result<Option<(OwnedFd, &'f str)>> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let (folders, name) =
        file.rsplit_once('/').map_or((None, file), |(rest, name)| (Some(rest), name));
    // The user has chosen that one, whatever links lead there.
    let mut folder = open(working, flags, Mode::empty())?;
    for part in folders.into_iter().flat_map(|folders| folders.split('/')) {
        folder = match openat(&folder, part, flags | OFlag::O_NOFOLLOW, Mode::empty()) {
            Ok(next) => next,
            Err(Errno::ENOENT) => return Ok(None),
            Err(Errno::ENOTDIR | Errno::ELOOP) => {
                return Err(io::Error::other(format!("'{part}' on its way is no folder")));
            }
            Err(errno) => return Err(errno.into()),
        };
    }
    Ok(Some((folder, name)))
}

/// Whether it is there.
pub fn is_there(working: &Path, file: &str) -> bool {
    matches!(folder_of(working, file), Ok(Some((folder, name)))
        if fstatat(&folder, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok())
}

/// Removes it, if it is there and no folder.
///
/// # Errors
/// Why not.
pub fn remove(working: &Path, file: &str) -> io::Result<()> {
    let Some((folder, name)) = folder_of(working, file)? else { return Ok(()) };
    match unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT | Errno::EISDIR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The first link on the way to a file, itself aside.
pub fn link_on_the_way(working: &Path, file: &str) -> Option<String> {
    let ends = file.match_indices('/').map(|(end, _)| &file[..end]);
    let is_link =
        |path: &&str| working.join(path).symlink_metadata().is_ok_and(|found| found.is_symlink());
    ends.into_iter().find(is_link).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_is_removed_behind_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (working, elsewhere) = (dir.path().join("w"), dir.path().join("e"));
        fs::create_dir_all(working.join("d/e")).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("x"), "").unwrap();
        fs::write(working.join("d/e/x"), "").unwrap();
        symlink(&elsewhere, working.join("l")).unwrap();
        symlink(elsewhere.join("x"), working.join("x")).unwrap();
        let refused = remove(&working, "l/x").unwrap_err().to_string();
        assert_eq!(refused, "'l' on its way is no folder");
        assert!(!is_there(&working, "l/x"));
        assert_eq!(link_on_the_way(&working, "l/x"), Some("l".to_owned()));
        assert_eq!(link_on_the_way(&working, "x"), None);
        // The link itself.
        for file in ["x", "d/e/x", "d/e", "none", "none/x"] {
            assert_eq!(is_there(&working, file), !file.starts_with("none"), "{file}");
            remove(&working, file).unwrap();
        }
        assert!(elsewhere.join("x").exists() && working.join("d/e").exists());
        assert!(!is_there(&working, "x") && !is_there(&working, "d/e/x"));
        // The working directory may be found by a link.
        let linked = dir.path().join("linked");
        symlink(&working, &linked).unwrap();
        assert!(is_there(&linked, "d/e"));
    }
}
