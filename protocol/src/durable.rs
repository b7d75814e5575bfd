//! Small files that are there whole or not at all, whenever the machine stops.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where a file's new content lies until it is whole.
#[must_use]
pub fn draft_of(path: &Path) -> PathBuf {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    draft.into()
}

/// Puts a content in the place of a file's, durably. Its owner alone can read it.
///
/// # Errors
/// What the kernel refuses; then the file is as it was.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let draft = draft_of(path);
    // A leftover may have other permissions.
    remove_if_there(&draft)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    path.parent().map_or(Ok(()), |folder| sync_folder(&File::open(folder)?))
}

/// Removes a file, unless there is none.
///
/// # Errors
/// As unlink(2), but ENOENT.
pub fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the names in a folder durable, as far as its file system can: some have nothing to do for that, and say so (EINVAL,
/// fsync(2)).
///
/// # Errors
/// As fsync(2).
pub fn sync_folder(folder: &File) -> io::Result<()> {
    match folder.sync_all() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_leftover_is_in_nobodys_way_and_lends_no_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("members.json");
        let draft = draft_of(&path);
        assert_eq!(draft, folder.path().join("members.json.new"));
        fs::write(&draft, "half of it, and more than there will be").unwrap();
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o644)).unwrap();
        for content in ["first", "second"] {
            replace(&path, content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert!(!draft.exists());
    }
}
