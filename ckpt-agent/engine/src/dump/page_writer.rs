//! The pages of a process on their way into the store, 64 of them at a time.

use std::collections::BTreeMap;

use super::super::error::{EngineError, Result};
use super::super::graph::{StoredWindow, WINDOW_PAGES};
use super::super::trace::ProcessMemory;
use super::earlier::{Earlier, Kept};
use super::into_store::{Tag, Writer};
use crate::tracking::Wish;

/// Pages of one window of one process on their way.
pub(super) struct PendingWindow {
    pub(super) address: u64,
    /// Those that are taken from the chunk.
    pub(super) pages: u64,
    /// Those that the chunk has.
    pub(super) has: u64,
    pub(super) tag: Tag,
}

/// Cuts the pages of a process into windows.
pub(super) struct PageWriter<'w, 'p> {
    pub(super) writer: &'w mut Writer<'p>,
    memory: ProcessMemory,
    page: u64,
    /// Pages to read, by window.
    wanted: BTreeMap<u64, u64>,
    /// Those of them that are kept even if they are zero, because a file would show through.
    over_file: BTreeMap<u64, u64>,
    /// Pages already read, by address.
    early: BTreeMap<u64, Vec<u8>>,
    /// Pages that an earlier image has.
    earlier: Earlier,
    done: Vec<PendingWindow>,
}

impl<'w, 'p> PageWriter<'w, 'p> {
    /// Of a process whose memory this copy has.
    pub(super) fn new(
        writer: &'w mut Writer<'p>,
        snapshot_pid: i32,
        earlier: Earlier,
        page: u64,
    ) -> Self {
        Self {
            writer,
            memory: ProcessMemory::of_copy(snapshot_pid),
            page,
            wanted: BTreeMap::new(),
            over_file: BTreeMap::new(),
            early: BTreeMap::new(),
            earlier,
            done: Vec::new(),
        }
    }

    /// Takes pages that were read before.
    pub(super) fn add_early(&mut self, address: u64, bytes: &[u8], over_file: bool) {
        for (index, page) in bytes.chunks(self.page as usize).enumerate() {
            let at = address + index as u64 * self.page;
            self.early.insert(at, page.to_vec());
            self.want(at, over_file);
        }
    }

    fn want(&mut self, address: u64, over_file: bool) {
        let span = WINDOW_PAGES * self.page;
        let window = address / span * span;
        let bit = 1 << ((address - window) / self.page);
        *self.wanted.entry(window).or_default() |= bit;
        if over_file {
            *self.over_file.entry(window).or_default() |= bit;
        }
    }

    /// Takes pages of the snapshot process.
    ///
    /// # Errors
    /// Failed reads; full disks.
    pub(super) fn add(&mut self, start: u64, end: u64, over_file: bool) -> Result<()> {
        let span = WINDOW_PAGES * self.page;
        let mut at = start;
        while at < end {
            let window = at / span * span;
            let first = (at - window) / self.page;
            let last = ((end.min(window + span)) - window) / self.page;
            let bits = if last - first == WINDOW_PAGES {
                u64::MAX
            } else {
                ((1 << (last - first)) - 1) << first
            };
            *self.wanted.entry(window).or_default() |= bits;
            if over_file {
                *self.over_file.entry(window).or_default() |= bits;
            }
            at = window + span;
        }
        // Whole windows below the last one cannot grow any more: write them as they come, since areas are
        // visited in ascending order.
        let keep = end / span * span;
        let early_from = self.early.keys().next().copied().unwrap_or(u64::MAX);
        let later = self.wanted.split_off(&keep.min(early_from / span * span));
        let ready = std::mem::replace(&mut self.wanted, later);
        for (window, bits) in ready {
            self.write(window, bits)?;
        }
        Ok(())
    }

    /// What an earlier image has of a window, and what is to be read.
    fn kept(&self, window: u64, bits: u64) -> Kept {
        if self.early.range(window..window + WINDOW_PAGES * self.page).next().is_some() {
            return Kept { stored: Vec::new(), read: bits };
        }
        let over_file = self.over_file.get(&window).copied().unwrap_or(0);
        self.earlier.window(window, bits, over_file, self.page)
    }

    fn write(&mut self, window: u64, bits: u64) -> Result<()> {
        let kept = self.kept(window, bits);
        if Wish::of_environment() == Wish::Verify {
            self.verify(window, bits, &kept)?;
        }
        let mut wanted = kept.read;
        for part in kept.stored {
            let StoredWindow { address, pages, has, chunk } = part;
            match self.writer.refer(&chunk, part.bytes(self.page)) {
                Some(tag) => self.done.push(PendingWindow { address, pages, has, tag }),
                None => wanted |= pages,
            }
        }
        // Anonymous memory begins as zeros anyway.
        let must_keep = self.over_file.remove(&window).unwrap_or(0);
        if wanted == 0 {
            return Ok(());
        }
        let mut buffer = self.read(window, wanted)?;
        let (pages, length) = drop_zeros(wanted, must_keep, &mut buffer, self.page as usize);
        buffer.truncate(length);
        if pages != 0 {
            let tag = self.writer.submit(buffer)?;
            self.done.push(PendingWindow { address: window, pages, has: pages, tag });
        }
        Ok(())
    }

    /// The bytes of pages of a window, one after the other.
    fn read(&mut self, window: u64, bits: u64) -> Result<Vec<u8>> {
        let page = self.page as usize;
        let count = bits.count_ones() as usize;
        let mut buffer = self.writer.store.take_buffer(count * page);
        buffer.resize(count * page, 0);
        let mut filled = 0;
        let mut index = 0;
        while index < WINDOW_PAGES {
            if bits & 1 << index == 0 {
                index += 1;
                continue;
            }
            let address = window + index * self.page;
            if let Some(early) = self.early.remove(&address) {
                buffer[filled..filled + page].copy_from_slice(&early);
                (filled, index) = (filled + page, index + 1);
                continue;
            }
            let mut run = 1;
            while index + run < WINDOW_PAGES
                && bits & 1 << (index + run) != 0
                && !self.early.contains_key(&(address + run * self.page))
            {
                run += 1;
            }
            let bytes = run as usize * page;
            self.memory.read(address, &mut buffer[filled..filled + bytes])?;
            (filled, index) = (filled + bytes, index + run);
        }
        Ok(buffer)
    }

    /// Compares what is not to be read with what the process has.
    fn verify(&mut self, window: u64, bits: u64, kept: &Kept) -> Result<()> {
        let written = || {
            EngineError::odd(
                format!("the memory at {window:#x}"),
                "it was written, and nothing told of it",
            )
        };
        let mut zeros = bits & !kept.read;
        for part in &kept.stored {
            zeros &= !part.pages;
            let earlier = self.earlier.content(part, self.page)?;
            if self.read(window, part.pages)? != earlier {
                return Err(written());
            }
        }
        let zeros = self.read(window, zeros)?;
        if is_zero(&zeros) { Ok(()) } else { Err(written()) }
    }

    /// The windows, in ascending order.
    ///
    /// # Errors
    /// Failed reads; full disks.
    pub(super) fn finish(mut self) -> Result<Vec<PendingWindow>> {
        for (window, bits) in std::mem::take(&mut self.wanted) {
            self.write(window, bits)?;
        }
        self.done.sort_unstable_by_key(|window| window.address);
        Ok(self.done)
    }
}

/// Whether all is zero: the first byte, and each one like the one before it, which is compared faster than by a loop.
fn is_zero(page: &[u8]) -> bool {
    match page {
        [] => true,
        [first, rest @ ..] => *first == 0 && page[..rest.len()] == *rest,
    }
}

/// Takes pages of zeros out of a window's bytes; the pages that stay and their length.
fn drop_zeros(bits: u64, must_keep: u64, buffer: &mut [u8], page: usize) -> (u64, usize) {
    let (mut kept, mut from, mut to) = (0, 0, 0);
    for index in (0..WINDOW_PAGES).filter(|index| bits & 1 << index != 0) {
        if must_keep & 1 << index != 0 || !is_zero(&buffer[from..from + page]) {
            kept |= 1 << index;
            if to != from {
                buffer.copy_within(from..from + page, to);
            }
            to += page;
        }
        from += page;
    }
    (kept, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_is_not_zero() {
        let mut page = vec![0; 4096];
        assert!(is_zero(&page) && is_zero(&[]) && is_zero(&[0]));
        for at in [0, 1, 2047, 4095] {
            page[at] = 1;
            assert!(!is_zero(&page), "{at}");
            page[at] = 0;
        }
        assert!(!is_zero(&[7; 8]));
    }

    #[test]
    fn drops_zeros_but_not_over_a_file() {
        let page = 4096;
        let mut buffer = vec![0; 4 * page];
        buffer[page] = 1;
        buffer[3 * page] = 3;
        // Pages 0, 5, 6 and 63 of a window; 6 lies over a file.
        let bits = 1 | 1 << 5 | 1 << 6 | 1 << 63;
        let (kept, length) = drop_zeros(bits, 1 << 6, &mut buffer, page);
        assert_eq!(kept, 1 << 5 | 1 << 6 | 1 << 63);
        assert_eq!(length, 3 * page);
        assert_eq!((buffer[0], buffer[page], buffer[2 * page]), (1, 0, 3));
    }
}
