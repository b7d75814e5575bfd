//! What an import may take: what the archive announces, as long as the disk has it.

use std::io;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;

use super::super::mark::CommitMark;
use super::{About, ArchiveError, MAX_INDEXES, MAX_MEMBERS, MAX_PACKS, members};

/// Tells how many bytes an import may still write where a folder is. It is asked again while the import writes: others write,
/// too.
pub type Free<'a> = &'a dyn Fn(&Path) -> io::Result<u64>;

/// Bytes written between two questions.
const ASK_EVERY: u64 = 64 << 20;
/// What the shortest file takes.
const BLOCK: u64 = 4096;
/// The part of a disk that is left free: this fraction of it.
const RESERVE: u64 = 50;
/// The most that is left free, in bytes.
const MOST_RESERVE: u64 = 1 << 30;
/// Bytes of index files beyond which references may have to wait on the disk.
const LONG_INDEXES: u64 = 16 << 20;

/// Bytes that an import may write where a folder is: what is free there, but for a fiftieth of the disk, 1 GiB at most.
///
/// # Errors
/// Where it can't be told.
pub fn free(folder: &Path) -> io::Result<u64> {
    let space = statvfs(folder)?;
    // On 32-bit machines these are shorter.
    #[allow(clippy::useless_conversion)]
    let bytes = |blocks| u64::from(blocks).saturating_mul(u64::from(space.fragment_size()));
    let reserve = (bytes(space.blocks()) / RESERVE).min(MOST_RESERVE);
    Ok(bytes(space.blocks_available()).saturating_sub(reserve))
}

/// What an archive may still take.
pub(super) struct Room<'a> {
    folder: PathBuf,
    free: Free<'a>,
    at_first: u64,
    needed: u64,
    /// Bytes written since it was asked what is free.
    written: u64,
    indexes: u64,
    packs: usize,
    members: usize,
}

impl<'a> Room<'a> {
    pub(super) fn of(about: &About, free: Free<'a>, folder: &Path) -> Result<Self, ArchiveError> {
        let at_first = free(folder).map_err(ArchiveError::Space)?;
        let mut room = Self {
            folder: folder.to_owned(),
            free,
            at_first,
            needed: 0,
            written: 0,
            indexes: 0,
            packs: 0,
            members: 0,
        };
        room.take(about.log.as_ref().map_or(0, |log| log.length))?;
        Ok(room)
    }

    /// A file of so many bytes is to come.
    pub(super) fn take_file(&mut self, bytes: u64) -> Result<(), ArchiveError> {
        self.members = self.members.saturating_add(1);
        if self.members > MAX_MEMBERS {
            return Err(ArchiveError::Members);
        }
        self.take(bytes.max(BLOCK))
    }

    fn take(&mut self, bytes: u64) -> Result<(), ArchiveError> {
        self.needed = self.needed.saturating_add(bytes);
        match self.needed > self.at_first {
            true => Err(self.refusal(self.at_first)),
            false => Ok(()),
        }
    }

    fn refusal(&self, free: u64) -> ArchiveError {
        ArchiveError::Room { needed: self.needed, free, folder: self.folder.clone() }
    }

    /// The files of an image are to come.
    pub(super) fn take_image(&mut self, mark: &CommitMark, name: &str) -> Result<(), ArchiveError> {
        let indexes = mark.files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.length));
        self.indexes = self.indexes.saturating_add(indexes);
        self.packs = self.packs.saturating_add(mark.packs.len());
        if self.packs > MAX_PACKS || self.indexes > MAX_INDEXES {
            let reason = "names more files than any checkpoint has".to_owned();
            return Err(ArchiveError::Member { name: members::mark(name), reason });
        }
        let files = mark.files.iter().map(|file| file.length);
        for length in files.chain(mark.packs.iter().map(|pack| pack.length)) {
            self.take_file(length)?;
        }
        if indexes > LONG_INDEXES {
            // In two orders, each reference a little shorter than in the index.
            self.take(indexes.saturating_add(indexes / 5))?;
        }
        Ok(())
    }

    /// So many bytes have been written.
    pub(super) fn wrote(&mut self, bytes: usize) -> Result<(), ArchiveError> {
        self.written += bytes as u64;
        if self.written < ASK_EVERY {
            return Ok(());
        }
        self.written = 0;
        match (self.free)(&self.folder).map_err(ArchiveError::Space)? {
            0 => Err(self.refusal(0)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::chunk::PackId;
    use super::super::super::hash::ChunkHash;
    use super::super::super::mark::{IndexFile, PackFile, Totals};
    use super::*;
    use std::cell::Cell;

    fn about(log: u64) -> About {
        let log =
            super::super::LogPart { length: log, hash: ChunkHash::of(b""), times: Vec::new() };
        let job = serde_json::Value::Null;
        let instances = Vec::new();
        About { format: 1, checkpoint: 3, log: Some(log), job, key: None, instances }
    }

    fn mark(files: usize, length: u64) -> CommitMark {
        let file = |n| IndexFile { name: format!("{n}.json"), length, hash: ChunkHash::of(b"") };
        CommitMark {
            checkpoint: 3,
            time_ms: 0,
            files: (0..files).map(file).collect(),
            packs: vec![PackFile { id: PackId::random(), length: 5000 }],
            totals: Totals::default(),
            sealed: false,
            meta: serde_json::Value::Null,
        }
    }

    #[test]
    fn what_is_announced_must_be_free_and_files_without_a_byte_count() {
        let free: Free<'_> = &|_| Ok(1 << 20);
        let folder = Path::new("/nowhere");
        assert!(matches!(Room::of(&about(2 << 20), free, folder), Err(ArchiveError::Room { .. })));
        let mut room = Room::of(&about(1000), free, folder).unwrap();
        room.take_image(&mark(100, 0), "x").unwrap();
        assert_eq!(room.needed, 1000 + 100 * BLOCK + 5000);
        let error = room.take_image(&mark(200, 0), "x").unwrap_err();
        assert!(matches!(error, ArchiveError::Room { free: 0x10_0000, .. }), "{error}");
    }

    #[test]
    fn the_members_of_all_images_together_are_limited() {
        let free: Free<'_> = &|_| Ok(u64::MAX);
        let mut room = Room::of(&about(0), free, Path::new("/nowhere")).unwrap();
        let one = mark(100_000, 0);
        let error = (0..20).find_map(|_| room.take_image(&one, "x").err()).unwrap();
        assert!(matches!(error, ArchiveError::Members), "{error}");
        assert!(room.members <= MAX_MEMBERS + 1);
    }

    #[test]
    fn a_disk_that_others_fill_ends_it() {
        let left = Cell::new(1 << 30);
        let free = |_: &Path| Ok(left.get());
        let mut room = Room::of(&about(0), &free, Path::new("/nowhere")).unwrap();
        for _ in 0..100 {
            room.wrote(1 << 20).unwrap();
        }
        left.set(0);
        let written = (0..1000).find(|_| room.wrote(1 << 20).is_err()).unwrap();
        assert!(written <= ASK_EVERY >> 20, "{written}");
    }
}
