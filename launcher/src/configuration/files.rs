//! The files of a configuration, and whether they may be believed.

use super::ConfigurationError;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The machine's.
const MACHINE: &str = "/etc/ckptd.toml";
/// Larger ones nobody has written.
const LARGEST: u64 = 1 << 20;
/// The group and all others may write.
const WRITABLE: u32 = 0o022;

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileState {
    /// It was read.
    Read,
    /// There is none.
    Absent,
    /// This user may not look for it there.
    Hidden,
    /// Another user's, in a home folder that is not this user's, as under sudo: not read.
    OfAnother,
}

impl FileState {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Absent => "not there",
            Self::Hidden => "not read: this user may not look into that folder",
            Self::OfAnother => "not read: it belongs to another user",
        }
    }
}

/// Where files are looked for, in the order in which later ones hold.
pub fn candidates() -> Vec<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = set("HOME").map(|home| Path::new(&home).join(".config"));
    // The specification of base directories has relative paths ignored.
    let own = set("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or(home);
    std::iter::once(PathBuf::from(MACHINE)).chain(own.map(|own| own.join("ckptd.toml"))).collect()
}

/// The content of a file.
///
/// # Errors
/// Files that can't be read, are none, or that others could have written.
pub fn read(path: &Path) -> Result<(FileState, String), ConfigurationError> {
    let unreadable = |error| ConfigurationError::Unreadable { path: path.to_owned(), error };
    let no_file = |reason| ConfigurationError::NoFile { path: path.to_owned(), reason };
    // Whoever may write into the folder could have put a FIFO there, which would be waited for.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok((FileState::Absent, String::new())),
        Err(error) if path != Path::new(MACHINE) && is_hidden(&error) => {
            return Ok((FileState::Hidden, String::new()));
        }
        Err(error) => return Err(unreadable(error)),
    };
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(no_file("it is no file"));
    }
    let own = nix::unistd::geteuid().as_raw();
    let is_trusted = |uid: u32| uid == 0 || uid == own;
    // A link in another's folder may lead to a file of this user's that says what the other wants.
    let folder = path.parent().and_then(|folder| std::fs::metadata(folder).ok());
    if !is_trusted(metadata.uid()) || !folder.is_some_and(|folder| is_trusted(folder.uid())) {
        return Ok((FileState::OfAnother, String::new()));
    }
    if metadata.mode() & WRITABLE != 0 {
        let reason = "others than its owner may write to it";
        return Err(ConfigurationError::Foreign { path: path.to_owned(), reason });
    }
    if metadata.len() > LARGEST {
        return Err(no_file("it is larger than 1 MiB"));
    }
    let text = bounded(file).map_err(unreadable)?;
    Ok((FileState::Read, text))
}

/// A home folder that this user can't look into: root's, of a file system that does not know root, or a service's.
fn is_hidden(error: &std::io::Error) -> bool {
    let known = [libc::EACCES, libc::ELOOP, libc::ESTALE];
    error.raw_os_error().is_some_and(|errno| known.contains(&errno))
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

fn bounded(file: File) -> std::io::Result<String> {
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_that_others_may_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ckptd.toml");
        assert_eq!(read(&path).unwrap().0, FileState::Absent);
        write(&path, "[run]\n").unwrap();
        set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read(&path).unwrap(), (FileState::Read, "[run]\n".to_owned()));
        for mode in [0o664, 0o646] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(matches!(read(&path), Err(ConfigurationError::Foreign { .. })));
        }
    }

    #[test]
    fn only_files_of_a_bearable_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ckptd.toml");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(read(&path), Err(ConfigurationError::NoFile { .. })));
        let path = folder.path().join("large.toml");
        write(&path, " ").unwrap();
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(LARGEST + 1).unwrap();
        assert!(matches!(read(&path), Err(ConfigurationError::NoFile { .. })));
    }
}
