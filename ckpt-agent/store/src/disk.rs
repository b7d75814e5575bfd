//! The file operations that change the store, behind an interface, so that tests can stop the
//! world at each of them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use rustix::process::{Resource, getrlimit};

/// Bytes written before the kernel is asked to begin writing them back.
const WRITE_BACK_EVERY: u64 = 8 << 20;

/// Makes, renames and removes files and folders.
pub trait Disk: Send + Sync {
    /// Makes a folder that only its owner may enter (0700).
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes a file that only its owner may read (0600); an existing one is an error.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Renames within a folder.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes a folder's entries durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// A file that is being written from its start to its end.
pub trait DiskFile: Send {
    /// Appends all of `parts`, in order.
    fn append(&mut self, parts: &[&[u8]]) -> io::Result<()>;
    /// Begins writing back what was appended, without waiting: where several files are made durable one after the
    /// other, the first then waits for all of them at once.
    fn begin_sync(&mut self) {}
    /// Makes length and contents durable (fsync(2)).
    fn sync(&mut self) -> io::Result<()>;
}

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Box::new(RealFile { file, written: 0, handed_over: 0 }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

struct RealFile {
    file: File,
    written: u64,
    /// Bytes from the start whose write-back was asked for.
    handed_over: u64,
}

impl RealFile {
    /// A write beyond RLIMIT_FSIZE raises SIGXFSZ, which ends the process unless it is ignored
    /// (setrlimit(2)); so the limit is asked for before each write.
    fn check_limit(&self, length: u64) -> io::Result<()> {
        let most = getrlimit(Resource::Fsize).current;
        if most.is_some_and(|most| self.written.saturating_add(length) > most) {
            return Err(Errno::EFBIG.into());
        }
        Ok(())
    }

    /// Begins writing back without waiting, so that the last fsync finds little to do.
    /// POSIX_FADV_DONTNEED starts write-back of dirty pages and drops only clean ones
    /// (mm/fadvise.c). It is advice: a file system that does not know it loses nothing.
    fn hand_over(&mut self) {
        let length = self.written - self.handed_over;
        // A length that the call can't name goes without the advice.
        let (Ok(from), Ok(length)) = (self.handed_over.try_into(), length.try_into()) else {
            return;
        };
        let advice = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        if let Err(errno) = posix_fadvise(&self.file, from, length, advice) {
            tracing::trace!(%errno, "early write-back is not available");
        }
        self.handed_over = self.written;
    }
}

impl DiskFile for RealFile {
    fn append(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        self.check_limit(length)?;
        let mut slices: Vec<IoSlice<'_>> =
            parts.iter().filter(|part| !part.is_empty()).map(|part| IoSlice::new(part)).collect();
        let mut rest = slices.as_mut_slice();
        while !rest.is_empty() {
            match self.file.write_vectored(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.written += length;
        if self.written - self.handed_over >= WRITE_BACK_EVERY {
            self.hand_over();
        }
        Ok(())
    }

    fn begin_sync(&mut self) {
        self.hand_over();
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// Opens a regular file for reading. Names come from folders that others may have filled: links
/// are not followed, and a FIFO in the place of a file does not make us wait.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(Errno::EINVAL.into());
    }
    Ok(file)
}
