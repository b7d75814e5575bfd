//! When there is no room for an instance's images on this machine, so that they go to a partner: while its disk has less room
//! than the last one took, and after the disk or a quota has refused one.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ckpt_store::{Disk, DiskFile, RealDisk};
use nix::errno::Errno;
use protocol::room::Room;

/// So much more must be free, in bytes, before a disk is used again that had no room.
const MORE: u64 = 256 << 20;
/// After so long it is tried again in any case: of quotas the free room tells nothing.
const AGAIN: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Shortage {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that the last image took, here or elsewhere.
    needed: u64,
    /// Whether so much had no room when it was last asked.
    is_small: bool,
    refused: Option<Refused>,
    /// Whether that it lasts was told.
    is_told: bool,
}

#[derive(Debug, Clone, Copy)]
struct Refused {
    at: Instant,
    /// The least that was free without that image; none: nobody has looked since.
    free: Option<u64>,
}

impl Shortage {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is complete before the lock is given back.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the next image is to go elsewhere. `room`: of the disk here; none: it does not tell.
    #[must_use]
    pub fn lasts(&self, room: Option<Room>, now: Instant) -> bool {
        let mut state = self.state();
        let needed = match state.is_small {
            true => state.needed.saturating_mul(2).saturating_add(MORE),
            false => state.needed.saturating_add(state.needed / 4),
        };
        let free = room.map_or(u64::MAX, |room| room.free);
        state.is_small = free < needed;
        state.refused.take_if(|refused| {
            // What was found first may be of before another program filled the disk.
            let before = refused.free.map_or(free, |before| before.min(free));
            refused.free = Some(before);
            let has_more = free > before.saturating_add(before / 2).saturating_add(MORE);
            has_more || now.saturating_duration_since(refused.at) >= AGAIN
        });
        let lasts = state.is_small || state.refused.is_some();
        state.is_told &= lasts;
        lasts
    }

    /// An image has taken so many bytes, here or elsewhere.
    pub fn wrote(&self, bytes: u64) {
        self.state().needed = bytes;
    }

    /// Whether that it lasts is to be told: once, until it is over.
    #[must_use]
    pub fn is_news(&self) -> bool {
        !std::mem::replace(&mut self.state().is_told, true)
    }

    /// Looks at what the kernel has said: it may be that there is no room.
    pub fn note(&self, error: &io::Error) {
        let errno = error.raw_os_error().map(Errno::from_raw);
        if matches!(errno, Some(Errno::ENOSPC | Errno::EDQUOT)) {
            self.state().refused = Some(Refused { at: Instant::now(), free: None });
        }
    }

    /// The machine's own disk; a refusal for lack of room is noted.
    #[must_use]
    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(Watched(self.clone()))
    }

    fn look<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| self.note(error))
    }
}

struct Watched(Shortage);

impl Disk for Watched {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.0.look(RealDisk.make_dir(path))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = self.0.look(RealDisk.create(path))?;
        Ok(Box::new(WatchedFile { file, shortage: self.0.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.look(RealDisk.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.look(RealDisk.sync_dir(path))
    }
}

struct WatchedFile {
    file: Box<dyn DiskFile>,
    shortage: Shortage,
}

impl DiskFile for WatchedFile {
    fn append(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.shortage.look(self.file.append(parts))
    }

    fn begin_sync(&mut self) {
        self.file.begin_sync();
    }

    fn sync(&mut self) -> io::Result<()> {
        // Some file systems find room only now.
        self.shortage.look(self.file.sync())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1 << 30;

    fn room(free: u64) -> Option<Room> {
        Some(Room { free, size: 1000 * GB })
    }

    #[test]
    fn a_disk_that_is_too_small_is_used_again_once_a_good_deal_is_free() {
        let (shortage, now) = (Shortage::default(), Instant::now());
        // What is not known yet is tried.
        assert!(!shortage.lasts(room(0), now));
        shortage.wrote(GB);
        assert!(!shortage.lasts(room(2 * GB), now) && !shortage.lasts(None, now));
        assert!(shortage.lasts(room(GB), now));
        assert!(shortage.is_news() && !shortage.is_news());
        assert!(shortage.lasts(room(2 * GB), now) && !shortage.is_news());
        assert!(!shortage.lasts(room(3 * GB), now));
        // Little room is enough for little.
        shortage.wrote(GB / 100);
        assert!(!shortage.lasts(room(GB / 10), now));
        assert!(shortage.lasts(room(0), now) && shortage.is_news());
    }

    #[test]
    fn a_disk_that_has_refused_an_image_is_left_alone_until_it_has_more_room_or_for_a_while() {
        let shortage = Shortage::default();
        let now = Instant::now();
        assert!(!shortage.lasts(room(5 * GB), now));
        shortage.note(&Errno::EACCES.into());
        assert!(!shortage.lasts(room(5 * GB), now));
        shortage.note(&Errno::EDQUOT.into());
        assert!(shortage.lasts(room(5 * GB), now) && shortage.lasts(room(6 * GB), now));
        assert!(!shortage.lasts(room(8 * GB), now) && !shortage.lasts(room(5 * GB), now));
        // One that another program has filled meanwhile, and emptied.
        shortage.note(&Errno::ENOSPC.into());
        assert!(shortage.lasts(room(5 * GB), now) && shortage.lasts(room(0), now));
        assert!(!shortage.lasts(room(5 * GB), now));
        shortage.note(&Errno::ENOSPC.into());
        let at = Instant::now();
        assert!(shortage.lasts(room(5 * GB), at + AGAIN / 2));
        assert!(!shortage.lasts(room(5 * GB), at + AGAIN));
    }

    #[test]
    fn the_watched_disk_notes_that_there_is_no_room_and_nothing_else() {
        let shortage = Shortage::default();
        let _ = shortage.lasts(room(5 * GB), Instant::now());
        let folder = tempfile::tempdir().unwrap();
        let disk = shortage.disk();
        disk.make_dir(&folder.path().join("a")).unwrap();
        assert!(disk.make_dir(&folder.path().join("a")).is_err());
        assert!(!shortage.lasts(room(5 * GB), Instant::now()));
        // A device on which nothing fits.
        let file = shortage.look(std::fs::write("/dev/full", b"x"));
        assert_eq!(file.unwrap_err().raw_os_error(), Some(Errno::ENOSPC as i32));
        assert!(shortage.lasts(room(5 * GB), Instant::now()));
    }
}
