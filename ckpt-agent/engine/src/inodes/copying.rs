//! Where copies lie that are made while the job stands, until they are written: in memory, or on disk if memory would
//! become short for the job.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use nix::sys::statvfs::statvfs;

use super::super::error::{EngineError, Result};
use super::super::proc::Members;
use super::free_memory::{available_memory, too_large};
use super::room::{Room, least_shared};

/// Of the free memory copies take three quarters at most, where they can lie on disk.
const KEPT_FREE: u64 = 4;
/// Bytes of a disk that copies leave to others.
const DISK_KEPT_FREE: u64 = 64 * 1024 * 1024;

/// How the copies of one checkpoint are made.
#[derive(Debug, Clone, Default)]
pub struct Copying {
    /// Bytes copied: whoever waits sees that it goes on.
    pub done: Arc<AtomicU64>,
    /// A folder of this process's own for what does not fit into memory. `None`: it is refused.
    pub folder: Option<PathBuf>,
    /// Bytes that had to go to disk.
    on_disk: Arc<AtomicU64>,
    /// Memory for them that is there already.
    room: Room,
    /// How much memory was asked for.
    asked: Arc<AtomicU64>,
    /// As much as one before this has asked for; 0: that is not known.
    expected: u64,
    /// The job runs meanwhile, and has processors of its own to use.
    one_by_one: bool,
}

impl Copying {
    /// Into that folder what memory has no room for.
    pub fn with(folder: PathBuf) -> Self {
        Self { folder: Some(folder), ..Self::default() }
    }

    /// As much as another one did, presumably.
    #[must_use]
    pub fn after(self, other: &Self) -> Self {
        Self { expected: other.asked.load(Ordering::Relaxed), ..self }
    }

    /// The same, with everything in memory, while the job runs: by one thread.
    pub fn ahead(&self) -> Self {
        Self { folder: None, one_by_one: true, asked: Arc::default(), ..self.clone() }
    }

    /// Makes room for what will presumably be copied while the job stands. It runs still.
    pub fn make_room(&mut self, members: &Members) {
        let expected = match self.expected {
            0 => least_shared(members),
            known => known,
        };
        self.room = Room::for_bytes(expected);
    }

    /// Gives back what is left of that room.
    pub fn clear_room(&self) {
        self.room.clear();
    }

    /// Memory for so many bytes: zeros, to be overwritten.
    ///
    /// # Errors
    /// A refusal where there is none.
    pub fn memory(&self, length: usize) -> Result<Vec<u8>> {
        self.asked.fetch_add(length as u64, Ordering::Relaxed);
        self.room.take(length)
    }

    /// By how many threads.
    pub fn threads(&self) -> usize {
        match self.one_by_one {
            true => 1,
            false => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    /// Counts so many bytes as copied.
    pub fn count(&self, bytes: usize) {
        self.done.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes that have gone to disk.
    pub fn on_disk(&self) -> u64 {
        self.on_disk.load(Ordering::Relaxed)
    }

    /// Where a copy of so many bytes is to lie.
    ///
    /// # Errors
    /// A refusal if it fits nowhere; failures to make a file.
    pub fn place(&self, wanted: u64) -> Result<Place> {
        let available = match goes_to_disk() && self.folder.is_some() {
            true => 0,
            false => available_memory().map_or(u64::MAX, |free| free + self.room.bytes()),
        };
        self.place_in(wanted, available)
    }

    fn place_in(&self, wanted: u64, available: u64) -> Result<Place> {
        if wanted == 0 || wanted <= available - available / KEPT_FREE {
            return Ok(Place::Memory);
        }
        let folder = self.folder.as_ref().filter(|folder| has_room(folder, wanted));
        let Some(folder) = folder else {
            return if wanted <= available { Ok(Place::Memory) } else { Err(too_large(wanted)) };
        };
        let file = nameless(folder).map_err(|error| {
            EngineError::system("make a file in", folder.display().to_string(), error)
        })?;
        let spill = Spill { file: Arc::new(file), end: AtomicU64::new(0) };
        self.on_disk.fetch_add(wanted, Ordering::Relaxed);
        Ok(Place::Disk(spill))
    }
}

/// Where a copy lies.
#[derive(Debug)]
pub enum Place {
    /// In this process's memory.
    Memory,
    /// In a file without a name.
    Disk(Spill),
}

/// A file without a name that grows.
#[derive(Debug)]
pub struct Spill {
    file: Arc<File>,
    end: AtomicU64,
}

impl Place {
    /// Keeps these bytes there. Several threads may do so.
    ///
    /// # Errors
    /// Failed writes, as of a full disk.
    pub fn keep(&self, bytes: Vec<u8>) -> Result<Bytes> {
        let Self::Disk(spill) = self else { return Ok(Bytes::Memory(bytes)) };
        let length = bytes.len();
        let at = spill.end.fetch_add(length as u64, Ordering::Relaxed);
        spill.file.write_all_at(&bytes, at).map_err(|error| {
            EngineError::system("copy to disk", "what does not fit into memory", error)
        })?;
        Ok(Bytes::OnDisk { file: spill.file.clone(), at, length })
    }
}

/// Bytes for the image.
#[derive(Debug, Clone)]
pub enum Bytes {
    /// In memory.
    Memory(Vec<u8>),
    /// In a file without a name.
    OnDisk {
        /// The file.
        file: Arc<File>,
        /// Where they begin in it.
        at: u64,
        /// How many they are.
        length: usize,
    },
}

impl Bytes {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::OnDisk { length, .. } => *length,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts up to `most` of them, from `offset` on, in the place of what the buffer holds.
    ///
    /// # Errors
    /// Failed reads.
    pub fn copy_to(&self, offset: usize, most: usize, buffer: &mut Vec<u8>) -> Result<()> {
        let end = self.len().min(offset.saturating_add(most));
        buffer.clear();
        match self {
            Self::Memory(bytes) => {
                buffer.extend_from_slice(bytes.get(offset..end).unwrap_or_default());
                Ok(())
            }
            Self::OnDisk { file, at, .. } => {
                buffer.resize(end.saturating_sub(offset), 0);
                file.read_exact_at(buffer, at.saturating_add(offset as u64)).map_err(|error| {
                    EngineError::system("read back", "what did not fit into memory", error)
                })
            }
        }
    }

    /// All of them, in memory.
    ///
    /// # Errors
    /// Failed reads.
    pub fn into_memory(self) -> Result<Vec<u8>> {
        match self {
            Self::Memory(bytes) => Ok(bytes),
            on_disk @ Self::OnDisk { .. } => {
                let mut bytes = Vec::new();
                on_disk.copy_to(0, usize::MAX, &mut bytes)?;
                Ok(bytes)
            }
        }
    }
}

/// Bytes on disk are equal where they are the same ones.
impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Memory(own), Self::Memory(other)) => own == other,
            (
                Self::OnDisk { file, at, length },
                Self::OnDisk { file: other, at: other_at, length: other_length },
            ) => Arc::ptr_eq(file, other) && at == other_at && length == other_length,
            _ => false,
        }
    }
}

impl Eq for Bytes {}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Memory(bytes)
    }
}

/// `CKPTD_COPIES=disk`: as if this machine had no memory for copies. For tests.
fn goes_to_disk() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("CKPTD_COPIES").is_some_and(|value| value == "disk"))
}

fn has_room(folder: &Path, wanted: u64) -> bool {
    statvfs(folder).is_ok_and(|found| {
        #[allow(clippy::useless_conversion, reason = "32 bits on some machines")]
        let (blocks, size) =
            (u64::from(found.blocks_available()), u64::from(found.fragment_size()));
        blocks.saturating_mul(size) >= wanted.saturating_add(DISK_KEPT_FREE)
    })
}

/// A file that goes away with its last descriptor.
fn nameless(folder: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    match options.clone().custom_flags(libc::O_TMPFILE).open(folder) {
        // Not every file system has it.
        Err(error) if error.kind() != ErrorKind::PermissionDenied => {
            let path = folder.join(format!(".copy-{}", std::process::id()));
            let _ = std::fs::remove_file(&path);
            let file = options.create_new(true).open(&path)?;
            std::fs::remove_file(&path)?;
            Ok(file)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: u64 = 1 << 30;

    #[test]
    fn what_fits_lies_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let copying = Copying::with(folder.path().to_owned());
        assert!(matches!(copying.place_in(3, 4).unwrap(), Place::Memory));
        assert_eq!(copying.on_disk(), 0);
    }

    #[test]
    fn what_does_not_lies_on_disk_and_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let copying = Copying::with(folder.path().to_owned());
        let place = copying.place_in(10, 12).unwrap();
        let kept: Vec<Bytes> =
            [&b"first"[..], b"other"].map(|bytes| place.keep(bytes.to_vec()).unwrap()).to_vec();
        drop(place);
        assert!(kept.iter().all(|bytes| matches!(bytes, Bytes::OnDisk { .. })));
        let mut buffer = b"before".to_vec();
        kept[1].copy_to(1, 3, &mut buffer).unwrap();
        assert_eq!(buffer, b"the");
        kept[1].copy_to(3, 10, &mut buffer).unwrap();
        assert_eq!(buffer, b"er");
        assert_eq!(kept[0].clone().into_memory().unwrap(), b"first");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no name is left");
    }

    #[test]
    fn what_fits_nowhere_is_refused() {
        let refused = Copying::default().place_in(MANY, MANY - 1).unwrap_err();
        assert!(matches!(refused, EngineError::Refused(_)), "{refused}");
        assert!(matches!(Copying::default().place_in(MANY, MANY).unwrap(), Place::Memory));
        let folder = tempfile::tempdir().unwrap();
        let copying = Copying::with(folder.path().to_owned());
        copying.place_in(u64::MAX / 2, MANY).unwrap_err();
    }
}
