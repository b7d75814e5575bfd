//! Where things are inside a job's folder, and which names are believed.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::chunk::PackId;
use super::error::StoreError;

/// The commit mark's name.
pub(super) const MARK: &str = "COMMITTED";
/// The commit mark's name until it is whole.
pub(super) const MARK_DRAFT: &str = "COMMITTED.tmp";

/// How long to wait for the lock: a process killed by -9 gives it back when the kernel has torn
/// down its memory.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);

/// A job's folder.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    job: PathBuf,
    /// Where packs are that are not in it: see [`super::Arriving`].
    beneath: Option<PathBuf>,
}

impl Layout {
    pub(super) fn new(job_dir: &Path) -> Self {
        Self { job: job_dir.to_path_buf(), beneath: None }
    }

    pub(super) fn over(folder: &Path, job_dir: &Path) -> Self {
        Self { job: folder.to_path_buf(), beneath: Some(job_dir.to_path_buf()) }
    }

    /// Without what lies over it.
    pub(super) fn lowest(&self) -> Self {
        Self::new(self.beneath.as_ref().unwrap_or(&self.job))
    }

    pub(super) fn job(&self) -> &Path {
        &self.job
    }

    pub(super) fn checkpoints(&self) -> PathBuf {
        self.job.join("checkpoints")
    }

    pub(super) fn checkpoint(&self, number: u64) -> PathBuf {
        self.checkpoints().join(number.to_string())
    }

    pub(super) fn packs(&self) -> PathBuf {
        self.job.join("packs")
    }

    pub(super) fn pack(&self, id: PackId) -> PathBuf {
        let place = self.packs().join(format!("{id}.tar"));
        match &self.beneath {
            Some(job_dir) if fs::symlink_metadata(&place).is_err() => Self::new(job_dir).pack(id),
            _ => place,
        }
    }

    /// The numbers of all folders of checkpoints, whatever their state, in ascending order. Other
    /// names, and links, are not ours and passed over.
    pub(super) fn numbers(&self) -> io::Result<Vec<u64>> {
        let parse = |name: &str| name.parse().ok().filter(|n: &u64| n.to_string() == name);
        let mut numbers = entries(&self.checkpoints(), fs::FileType::is_dir, parse)?;
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// All packs, whoever refers to them.
    pub(super) fn pack_ids(&self) -> io::Result<Vec<PackId>> {
        let parse = |name: &str| name.strip_suffix(".tar").and_then(PackId::parse);
        entries(&self.packs(), fs::FileType::is_file, parse)
    }

    /// Keeps every other writer and collector out of this job until the lock is dropped. The
    /// kernel drops it with the process (flock(2)).
    pub(super) fn lock(&self) -> Result<StoreLock, StoreError> {
        let path = self.checkpoints();
        let deadline = Instant::now() + LOCK_PATIENCE;
        let open = || fs::File::open(&path).map(OwnedFd::from);
        let mut folder = open().map_err(|error| StoreError::io("open", &path, &error))?;
        loop {
            match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(StoreLock { _lock: lock }),
                Err((_, Errno::EWOULDBLOCK)) if Instant::now() >= deadline => {
                    return Err(StoreError::Busy { path });
                }
                Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) => folder = back,
                Err((_, errno)) => return Err(StoreError::io("lock", &path, &errno.into())),
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The right to change a job's store.
#[derive(Debug)]
pub(super) struct StoreLock {
    _lock: Flock<OwnedFd>,
}

fn entries<T>(
    folder: &Path,
    wanted: impl Fn(&fs::FileType) -> bool,
    parse: impl Fn(&str) -> Option<T>,
) -> io::Result<Vec<T>> {
    let listing = match fs::read_dir(folder) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in listing {
        let entry = entry?;
        if wanted(&entry.file_type()?) {
            found.extend(entry.file_name().to_str().and_then(&parse));
        }
    }
    Ok(found)
}

/// Whether `name` may be an index file: letters, digits, `-`, `_` and inner dots, ending in
/// `.json`. So no index is a path, hidden, or the commit mark.
pub(super) fn is_index_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    name.len() <= 100
        && name.len() > ".json".len()
        && name.ends_with(".json")
        && !name.starts_with('.')
        && !name.contains("..")
        && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_names_are_no_paths() {
        for name in ["graph.json", "42.json", "node-1_p.7.json"] {
            assert!(is_index_name(name), "{name}");
        }
        let long = format!("{}.json", "a".repeat(100));
        for name in ["", ".json", "../x.json", "/x.json", "a/b.json", "a..json", "COMMITTED", &long]
        {
            assert!(!is_index_name(name), "{name}");
        }
    }

    #[test]
    fn foreign_names_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        assert_eq!(layout.numbers().unwrap(), Vec::<u64>::new());
        for name in ["2", "10", "007", "+3", "x", "99999999999999999999999"] {
            fs::create_dir_all(layout.checkpoints().join(name)).unwrap();
        }
        std::os::unix::fs::symlink("/tmp", layout.checkpoints().join("4")).unwrap();
        fs::write(layout.checkpoints().join("5"), b"").unwrap();
        assert_eq!(layout.numbers().unwrap(), vec![2, 10]);
    }
}
