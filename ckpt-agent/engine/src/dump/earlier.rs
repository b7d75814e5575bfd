//! Pages that an earlier image has, which need not be read again.

use std::collections::HashMap;

use ckpt_store::{Checkpoint, ChunkReader};

use super::super::error::Result;
use super::super::graph::{ProcessImage, StoredWindow};
use super::super::tracking::{Ranges, Unwritten, Wish};
use super::into_store::process_file;

/// Of so many chunks a window is made up at most: a restart reads all of them.
const MOST_PARTS: usize = 3;

/// What is known of a process's memory.
#[derive(Default)]
pub(super) struct Earlier {
    unwritten: Ranges,
    windows: HashMap<u64, Vec<StoredWindow>>,
    /// Where all is compared.
    reader: Option<ChunkReader>,
}

/// What an earlier image has of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    /// Pages that are as they were there. What is neither here nor to be read was zeros, which are not stored.
    pub(super) stored: Vec<StoredWindow>,
    /// Pages that must be read.
    pub(super) read: u64,
}

impl Kept {
    /// Has small parts read again together with what must be: chunks of pages that change over and over would pile up
    /// otherwise. A part stays as long as it is larger than what comes on top of it, and not more than three chunks make up
    /// a window: where one page in a hundred is written between two checkpoints, anywhere, 4.5 pages are stored for each in
    /// the long run.
    fn fold(mut self) -> Self {
        self.stored.sort_by_key(|part| std::cmp::Reverse(part.pages.count_ones()));
        while self.read != 0 {
            let Some(smallest) = self.stored.last() else { break };
            let is_small = smallest.pages.count_ones() <= self.read.count_ones();
            if !is_small && self.stored.len() < MOST_PARTS {
                break;
            }
            self.read |= smallest.pages;
            self.stored.pop();
        }
        self
    }
}

impl Earlier {
    /// Of the image to which the new one refers. Where it can't be read, or nothing is known since then, nothing is kept.
    pub(super) fn of(
        base: Option<&Checkpoint>,
        pid: i32,
        unwritten: &Unwritten,
        page: u64,
    ) -> Self {
        let Some(base) = base else { return Self::default() };
        let known = unwritten.get(&base.mark().checkpoint).filter(|since| !since.is_empty());
        let Some(since) = known else { return Self::default() };
        let compares = Wish::of_environment() == Wish::Verify;
        let reader = if compares { base.reader().map(Some) } else { Ok(None) };
        let image = base.read_json::<ProcessImage>(&process_file(pid));
        match image.and_then(|image| Ok((image, reader?))) {
            // One that was changed behind our back tells nothing.
            Ok((image, _)) if !StoredWindow::are_sound(&image.pages, page) => Self::default(),
            Ok((image, reader)) => {
                let mut windows: HashMap<u64, Vec<StoredWindow>> = HashMap::new();
                for window in image.pages {
                    windows.entry(window.address).or_default().push(window);
                }
                Self { unwritten: since.clone(), windows, reader }
            }
            Err(damage) => {
                tracing::warn!(%damage, "all memory of process {pid} is read");
                Self::default()
            }
        }
    }

    /// What the earlier image has of these pages of a window. `over_file`: those where a file would show through if they
    /// were not stored.
    pub(super) fn window(&self, address: u64, pages: u64, over_file: u64, page: u64) -> Kept {
        if self.unwritten.is_empty() {
            return Kept { stored: Vec::new(), read: pages };
        }
        let unwritten = pages & self.unwritten.pages_from(address, page);
        let parts = self.windows.get(&address).map_or(&[][..], Vec::as_slice);
        let has = parts.iter().fold(0, |has, part| has | part.pages);
        let stored = parts.iter().map(|part| part.only(unwritten));
        let stored = stored.filter(|part| part.pages != 0).collect();
        Kept { stored, read: pages & !(unwritten & (has | !over_file)) }.fold()
    }

    /// What the earlier image has of these pages.
    ///
    /// # Errors
    /// Damage.
    pub(super) fn content(&self, part: &StoredWindow, page: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if let Some(reader) = &self.reader {
            reader.read(&part.chunk, &mut bytes)?;
        }
        part.taken(bytes, page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 0x1000;

    fn earlier(unwritten: &[(u64, u64)], windows: &[(u64, u64)]) -> Earlier {
        let unwritten = unwritten.iter().map(|(start, end)| (start * PAGE, end * PAGE)).collect();
        let mut all: HashMap<u64, Vec<StoredWindow>> = HashMap::new();
        for (address, pages) in windows {
            all.entry(address * PAGE).or_default().push(part(*address, *pages, *pages));
        }
        Earlier { unwritten: Ranges::of(unwritten), windows: all, reader: None }
    }

    fn part(address: u64, pages: u64, has: u64) -> StoredWindow {
        StoredWindow::for_test(address * PAGE, pages, has, PAGE as u32)
    }

    fn kept(stored: &[StoredWindow], read: u64) -> Kept {
        Kept { stored: stored.to_vec(), read }
    }

    #[test]
    fn what_was_not_written_is_as_it_was() {
        let earlier = earlier(&[(64, 70), (128, 192)], &[(64, 0b101)]);
        let window = |at: u64, pages, over| earlier.window(at * PAGE, pages, over, PAGE);
        assert_eq!(window(64, 0b111, 0), kept(&[part(64, 0b101, 0b101)], 0));
        assert_eq!(window(64, 0b111, 0b100), kept(&[part(64, 0b101, 0b101)], 0));
        // One of them is no page of the process's own any more.
        assert_eq!(window(64, 0b11, 0), kept(&[part(64, 0b1, 0b101)], 0));
        // Zeros over a file, of which nothing tells that they were so then; one that was written.
        assert_eq!(window(64, 0b111, 0b10), kept(&[part(64, 0b101, 0b101)], 0b10));
        assert_eq!(window(64, 0b100_0101, 0), kept(&[part(64, 0b101, 0b101)], 0b100_0000));
        // So much was written that the rest is little.
        assert_eq!(window(64, 0b1100_0101, 0), kept(&[], 0b1100_0101));
        assert_eq!(window(128, u64::MAX, 0), kept(&[], 0));
        assert_eq!(window(128, u64::MAX, 1), kept(&[], 1));
        assert_eq!(window(192, 1, 0), kept(&[], 1));
        assert_eq!(Earlier::default().window(0, 0b11, 0, PAGE), kept(&[], 0b11));
    }

    #[test]
    fn one_page_of_many_is_read_alone() {
        let earlier = earlier(&[(0, 7), (8, 64)], &[(0, u64::MAX)]);
        let rest = !(1 << 7);
        assert_eq!(earlier.window(0, u64::MAX, 0, PAGE), kept(&[part(0, rest, u64::MAX)], 1 << 7));
    }

    #[test]
    fn parts_are_few_and_each_larger_than_what_is_above_it() {
        for count in 1..=3 {
            let mut parts: Vec<u64> = vec![u64::MAX << 24, 0xff << 8, 0b11];
            parts.truncate(count);
            let windows: Vec<(u64, u64)> = parts.iter().map(|pages| (0, *pages)).collect();
            for read in [1 << 20, 0b1111 << 16, 0xff << 16] {
                let pages: u64 = parts.iter().fold(read, |all, part| all | part);
                let unwritten = (0..64).filter(|page| pages & !read & 1 << page != 0);
                let unwritten: Vec<(u64, u64)> = unwritten.map(|page| (page, page + 1)).collect();
                let found = earlier(&unwritten, &windows).window(0, pages, 0, PAGE);
                assert!(found.stored.len() < MOST_PARTS, "{found:?}");
                assert!(found.read & read == read);
                for part in &found.stored {
                    assert_eq!(part.pages & found.read, 0);
                    assert!(part.pages.count_ones() > read.count_ones());
                }
                let all = found.stored.iter().fold(found.read, |all, part| all | part.pages);
                assert_eq!(all, pages, "nothing is lost");
            }
        }
    }

    #[test]
    fn what_is_written_again_and_again_is_no_chain() {
        let mut parts = vec![(0, u64::MAX)];
        let mut chunks = 0;
        for turn in 0..200_u64 {
            let written = turn * 7 % 64;
            let unwritten = [(0, written), (written + 1, 64)];
            let found = earlier(&unwritten, &parts).window(0, u64::MAX, 0, PAGE);
            chunks += found.read.count_ones();
            parts = found.stored.iter().map(|part| (0, part.pages)).collect();
            parts.push((0, found.read));
            assert!(parts.len() <= MOST_PARTS, "{parts:x?}");
            let all = parts.iter().fold(0, |all, (_, pages)| all | pages);
            assert_eq!(all, u64::MAX);
        }
        assert!(chunks / 200 < 12, "{} pages for each that was written", chunks / 200);
    }
}
