//! A store in a folder that all runs see: `NAME.ckptd`, its lock, and beside it for a while what is to replace it.

use crate::failure::Failure;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use protocol::durable::{remove_if_there, sync_folder};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// How archives end.
pub(super) const ENDING: &str = "ckptd";
/// So many bytes are written before a job begins.
const PROBED: usize = 1 << 16;
/// What tempfile puts behind the beginning of a draft's name.
const RANDOM: usize = 6;

/// Where one job is kept.
#[derive(Debug)]
pub(super) struct Folder {
    dir: PathBuf,
    name: String,
    /// Held as long as the job runs: two of one name would overwrite each other's.
    _lock: Option<Flock<File>>,
}

/// A folder of what is not whole yet; it goes with this.
pub(super) struct Draft(tempfile::TempDir);

impl Draft {
    /// The archive in it.
    pub(super) fn archive(&self) -> PathBuf {
        self.0.path().join("archive")
    }
}

impl Folder {
    /// Of a job of that name. Drafts that a run before has left are removed.
    ///
    /// # Errors
    /// Where the folder can't be written to, or another job of that name runs.
    pub(super) fn of(dir: &Path, name: &str) -> Result<Self, Failure> {
        let what = format!("keep jobs in {}", dir.display());
        // Told before the job begins, not when its machines are about to go.
        let lock = dir.join(format!("{name}.{ENDING}.lock"));
        let file = File::options().create(true).truncate(false).write(true).open(lock);
        let file = file.map_err(|error| match dir.try_exists() {
            Ok(false) => Failure::of(&what, absent(dir)),
            _ => Failure::of(&what, error),
        })?;
        let lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Some(lock),
            Err((_, Errno::EWOULDBLOCK)) => {
                return Err(Failure::of(what, format!("another job that is called {name} runs")));
            }
            // Not every shared file system has locks.
            Err(_) => None,
        };
        let is_alone = lock.is_some();
        let folder = Self { dir: dir.to_owned(), name: name.to_owned(), _lock: lock };
        if is_alone {
            folder.sweep().map_err(|error| Failure::of(&what, error))?;
        }
        match folder.probe() {
            Ok(()) => {}
            // The run may end well, and make room by that.
            Err(error) if folder.has_archive().is_ok_and(|is_there| is_there) => {
                eprintln!("ckptd: warning: {what} is not possible now: {error}");
            }
            Err(error) => return Err(Failure::of(what, error)),
        }
        Ok(folder)
    }

    /// Whether anything at all can be written: a lock's file can be made on a disk that is full. Over a network only what is
    /// synced is known to be there.
    fn probe(&self) -> io::Result<()> {
        let draft = self.draft()?;
        let mut file = File::create(draft.archive())?;
        file.write_all(&[0; PROBED])?;
        file.sync_all()
    }

    /// The archive.
    pub(super) fn archive(&self) -> PathBuf {
        self.dir.join(format!("{}.{ENDING}", self.name))
    }

    /// Whether there is an archive. In a folder that others can write to, too, it may be theirs.
    ///
    /// # Errors
    /// Where it can't be told, or it is none of this user's own.
    pub(super) fn has_archive(&self) -> io::Result<bool> {
        let found = match self.archive().symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            found => found?,
        };
        if found.is_file() && found.uid() == nix::unistd::Uid::effective().as_raw() {
            return Ok(true);
        }
        Err(io::Error::other("it is there, but no file of this user's own"))
    }

    fn draft_start(&self) -> String {
        format!(".{}.{ENDING}.draft-", self.name)
    }

    /// A place for what is to replace the archive.
    pub(super) fn draft(&self) -> io::Result<Draft> {
        tempfile::Builder::new()
            .prefix(&self.draft_start())
            .rand_bytes(RANDOM)
            // Whatever the umask is: nobody else puts anything there.
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(&self.dir)
            .map(Draft)
    }

    /// Removes drafts: those of runs that were killed.
    fn sweep(&self) -> io::Result<()> {
        let start = self.draft_start();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let rest = name.to_str().and_then(|name| name.strip_prefix(&start));
            let is_draft = rest.is_some_and(|rest| {
                rest.len() == RANDOM && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
            });
            if is_draft && entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// A draft that is whole and durable replaces the archive.
    pub(super) fn replace(&self, draft: Draft) -> io::Result<()> {
        fs::rename(draft.archive(), self.archive())?;
        File::open(&self.dir).and_then(|folder| sync_folder(&folder))
    }

    /// Removes the archive.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove_if_there(&self.archive())
    }
}

/// What is said of a folder that is not there. It is not made here: behind a slip of the pen no run would find what is kept.
fn absent(dir: &Path) -> String {
    format!("there is no such folder: 'mkdir -p {}' makes it", dir.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_told_with_the_way_out() {
        let base = tempfile::tempdir().unwrap();
        let kept = base.path().join("a/kept");
        let error = Folder::of(&kept, "a").unwrap_err().to_string();
        assert!(error.ends_with(&format!("'mkdir -p {}' makes it", kept.display())), "{error}");
        assert!(!kept.exists());
        // What is there, but can't be written to, is another matter.
        let error = Folder::of(Path::new("/proc"), "a").unwrap_err().to_string();
        assert!(error.starts_with("failed to keep jobs in /proc: "), "{error}");
        assert!(!error.contains("mkdir"), "{error}");
    }

    #[test]
    fn what_a_killed_run_has_left_goes_and_nothing_else() {
        let base = tempfile::tempdir().unwrap();
        let names = || {
            let entries = fs::read_dir(base.path()).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        };
        let folder = Folder::of(base.path(), "a").unwrap();
        let draft = folder.draft().unwrap();
        fs::write(draft.archive(), "whole").unwrap();
        folder.replace(draft).unwrap();
        assert_eq!(names(), ["a.ckptd", "a.ckptd.lock"]);
        let left = folder.draft().unwrap();
        let _ = left.0.keep();
        assert!(Folder::of(base.path(), "a").is_err(), "it is locked");
        drop(folder);
        let others = [".a.ckptd.draft-x", ".a.ckptd.draft-abcdef.more", ".b.ckptd.draft-abcdef"];
        for other in others {
            fs::create_dir(base.path().join(other)).unwrap();
        }
        fs::write(base.path().join(".a.ckptd.draft-012345"), "a file").unwrap();
        let folder = Folder::of(base.path(), "a").unwrap();
        assert_eq!(names().len(), 2 + others.len() + 1, "{:?}", names());
        assert_eq!(fs::read_to_string(folder.archive()).unwrap(), "whole");
        assert!(folder.has_archive().unwrap());
        let planted = Folder::of(base.path(), "c").unwrap();
        assert!(!planted.has_archive().unwrap());
        std::os::unix::fs::symlink(folder.archive(), planted.archive()).unwrap();
        planted.has_archive().unwrap_err();
        folder.remove().unwrap();
        folder.remove().unwrap();
    }
}
