//! The folder that is copied.

pub use protocol::cluster::replica::LOG;
use protocol::cluster::replica::{JOBS, Prefix, SmallFile};
use protocol::log_times::{self, Piece};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The largest small file, in bytes.
const MAX_SMALL: u64 = 1024 * 1024;

/// A coordinator's folder, or a copy of one.
#[derive(Debug, Clone)]
pub struct Source {
    folder: PathBuf,
}

impl Source {
    /// That folder.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Where the log is.
    pub fn log(&self) -> PathBuf {
        self.folder.join(LOG)
    }

    /// Where a job's output is.
    pub fn job_log(&self, job: &str) -> PathBuf {
        self.folder.join(JOBS).join(job).join("log")
    }

    /// When a job's output between these places was written, as far as that is known.
    pub fn job_times(&self, job: &str, start: u64, end: u64) -> Vec<Piece> {
        log_times::behind(&self.job_log(job).with_file_name(log_times::NAME), start, end)
    }

    /// A small file.
    ///
    /// # Errors
    /// Where it can't be read.
    pub fn small(&self, file: SmallFile) -> io::Result<Vec<u8>> {
        let path = self.folder.join(file.name());
        if fs::metadata(&path)?.len() > MAX_SMALL {
            return Err(io::Error::other(format!("{} is too large to copy", path.display())));
        }
        fs::read(&path)
    }
}

/// A piece of a file, at most `most` bytes of those before `end`.
///
/// # Errors
/// Where it can't be read, or is shorter.
pub fn piece(path: &Path, offset: u64, end: u64, most: usize) -> io::Result<Vec<u8>> {
    let length = usize::try_from(end.saturating_sub(offset)).unwrap_or(most).min(most);
    let mut bytes = vec![0; length];
    File::open(path)?.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Whether a file begins with what that prefix says.
pub fn begins_with(path: &Path, prefix: &Prefix) -> bool {
    let found = File::open(path).and_then(|file| Prefix::of_file(&file, prefix.length));
    found.is_ok_and(|found| found == *prefix)
}
