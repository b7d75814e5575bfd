//! A file that one process at a time has locked, in a folder that may be removed.

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Takes a lock, of a file that is made if need be; None: another process has it, or has just removed the folder with it.
pub fn take(path: &Path) -> io::Result<Option<Flock<File>>> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    hold(options.open(path)?, path)
}

/// Takes the lock of that path, which is this file; None as above.
pub fn hold(file: File, path: &Path) -> io::Result<Option<Flock<File>>> {
    hold_as(file, path, FlockArg::LockExclusiveNonblock)
}

/// Whether a process has taken the lock of that path, or has just removed it. Of many that ask, none takes another one for that.
pub fn is_taken(path: &Path) -> io::Result<bool> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    Ok(hold_as(file, path, FlockArg::LockSharedNonblock)?.is_none())
}

fn hold_as(file: File, path: &Path, how: FlockArg) -> io::Result<Option<Flock<File>>> {
    let own = file.metadata()?;
    let file = match Flock::lock(file, how) {
        Ok(file) => file,
        Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
        Err((_, errno)) => return Err(errno.into()),
    };
    // A lock of a file that is not there any more keeps nobody out.
    let is_there = |found: fs::Metadata| (found.dev(), found.ino()) == (own.dev(), own.ino());
    Ok(fs::metadata(path).is_ok_and(is_there).then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_is_not_taken_for_who_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert!(is_taken(&path).is_err());
        let lock = take(&path).unwrap().unwrap();
        assert!(is_taken(&path).unwrap());
        drop(lock);
        assert!(!is_taken(&path).unwrap());
        // Another one asks at this moment.
        let asks = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let _asks = hold_as(asks, &path, FlockArg::LockSharedNonblock).unwrap().unwrap();
        assert!(!is_taken(&path).unwrap());
        assert!(take(&path).unwrap().is_none());
    }
}
