//! Pages that an earlier image has, which need not be read again.

use std::collections::HashMap;

use ckpt_store::{Checkpoint, ChunkRef};

use super::super::graph::{ProcessImage, StoredWindow};
use super::super::tracking::{Ranges, Unwritten};
use super::write::process_file;

/// What is known of a process's memory.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    unwritten: Ranges,
    windows: HashMap<u64, StoredWindow>,
}

/// What a window of an earlier image has of pages that were not written since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// All of them were zeros, which are not stored.
    Zeros,
    /// These pages, in this chunk.
    Stored(u64, ChunkRef),
}

impl Earlier {
    /// Of the image to which the new one refers. Where it can't be read, or nothing is known since then, nothing is kept.
    pub(super) fn of(base: Option<&Checkpoint>, pid: i32, unwritten: &Unwritten) -> Self {
        let Some(base) = base else { return Self::default() };
        let known = unwritten.get(&base.mark().checkpoint).filter(|since| !since.is_empty());
        let Some(since) = known else { return Self::default() };
        match base.read_json::<ProcessImage>(&process_file(pid)) {
            Ok(image) => {
                let windows = image.pages.into_iter().map(|window| (window.address, window));
                Self { unwritten: since.clone(), windows: windows.collect() }
            }
            Err(damage) => {
                tracing::warn!(%damage, "all memory of process {pid} is read");
                Self::default()
            }
        }
    }

    /// What the earlier image has of these pages of a window, and of no others. `over_file`: those where a file would show
    /// through if they were not stored. `None`: they must be read.
    pub(super) fn window(
        &self,
        address: u64,
        pages: u64,
        over_file: u64,
        page: u64,
    ) -> Option<Kept> {
        if self.unwritten.is_empty() || pages & !self.unwritten.pages_from(address, page) != 0 {
            return None;
        }
        let stored = self.windows.get(&address);
        let has = stored.map_or(0, |window| window.pages);
        if has & !pages != 0 || over_file & !has != 0 {
            return None;
        }
        Some(stored.map_or(Kept::Zeros, |window| Kept::Stored(window.pages, window.chunk)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ckpt_store::{ChunkHash, Encoding, PackId};

    const PAGE: u64 = 0x1000;

    fn earlier(unwritten: &[(u64, u64)], windows: &[(u64, u64)]) -> Earlier {
        let unwritten = unwritten.iter().map(|(start, end)| (start * PAGE, end * PAGE)).collect();
        let windows = windows.iter().map(|(address, pages)| {
            let address = address * PAGE;
            (address, StoredWindow { address, pages: *pages, chunk: chunk() })
        });
        Earlier { unwritten: Ranges::of(unwritten), windows: windows.collect() }
    }

    fn chunk() -> ChunkRef {
        ChunkRef {
            hash: ChunkHash::of(b"x"),
            pack: PackId::parse("0000000000ab").unwrap(),
            offset: 4096,
            stored: 10,
            length: 20,
            encoding: Encoding::Zstd,
        }
    }

    #[test]
    fn what_was_not_written_is_as_it_was() {
        let earlier = earlier(&[(64, 70), (128, 192)], &[(64, 0b101)]);
        let window = |at: u64, pages, over| earlier.window(at * PAGE, pages, over, PAGE);
        assert_eq!(window(64, 0b111, 0), Some(Kept::Stored(0b101, chunk())));
        // Zeros over a file that were not, then.
        assert_eq!(window(64, 0b111, 0b10), None);
        assert_eq!(window(64, 0b111, 0b100), Some(Kept::Stored(0b101, chunk())));
        // One of them is no page of the process's own any more.
        assert_eq!(window(64, 0b11, 0), None);
        // One was written.
        assert_eq!(window(64, 0b100_0101, 0), None);
        assert_eq!(window(128, u64::MAX, 0), Some(Kept::Zeros));
        assert_eq!(window(128, u64::MAX, 1), None);
        assert_eq!(window(192, 1, 0), None);
        assert_eq!(Earlier::default().window(0, 0, 0, PAGE), None);
    }
}
