//! How much room a file system has.

use nix::sys::statvfs::statvfs;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Below this a disk counts as full, in bytes: hardly any checkpoint fits.
const FULL: u64 = 256 << 20;
/// Below this it may count as nearly full, in bytes.
const LITTLE: u64 = 20 << 30;

/// Room on a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// What is free for this user.
    pub free: u64,
    /// All that it has.
    pub size: u64,
}

impl Room {
    /// Of the file system that a folder is on; None where the kernel does not tell. It may take as long as the disk, or the
    /// server that it is on, takes to answer.
    #[must_use]
    pub fn of(folder: &Path) -> Option<Self> {
        let found = statvfs(folder).ok()?;
        if found.blocks() == 0 {
            // It does not tell, as ramfs and some in user space.
            return None;
        }
        #[allow(clippy::useless_conversion, reason = "these have 32 bits for some machines")]
        let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size().into());
        #[allow(clippy::useless_conversion, reason = "these have 32 bits for some machines")]
        let (free, all) = (u64::from(found.blocks_available()), u64::from(found.blocks()));
        Some(Self { free: bytes(free), size: bytes(all) })
    }

    /// Whether hardly anything fits any more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.free < FULL
    }

    /// Whether it still counts as full, or does now: one that `was` full has room again only when a good deal is free.
    #[must_use]
    pub fn stays_full(&self, was: bool) -> bool {
        self.free < if was { 2 * FULL } else { FULL }
    }

    /// Whether it will be full before long: less than a twentieth is free, and little of it.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.is_full() || (self.free < LITTLE && self.free < self.size / 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_short_before_it_is_full() {
        let room = |free: u64, size: u64| Room { free: free << 20, size: size << 20 };
        assert!(room(100, 1 << 20).is_full() && room(100, 1 << 20).is_short());
        assert!(!room(1000, 100_000).is_full() && room(1000, 100_000).is_short());
        assert!(!room(10_000, 100_000).is_short());
        assert!(room(300, 1 << 20).stays_full(true) && !room(300, 1 << 20).stays_full(false));
        assert!(!room(600, 1 << 20).stays_full(true));
        // A twentieth of much is enough.
        assert!(!room(30 << 10, 1 << 20).is_short());
        let folder = tempfile::tempdir().unwrap();
        let found = Room::of(folder.path()).unwrap();
        assert!(found.free <= found.size && found.size > 0);
        assert_eq!(Room::of(&folder.path().join("none")), None);
    }
}
