//! Where the image has the pages of a process.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::super::error::EngineError;

/// Pages of a [`StoredWindow`].
pub const WINDOW_PAGES: u64 = 64;

/// Pages of one aligned window of 64 pages that are stored in one chunk. The chunk's name stays the same from checkpoint to
/// checkpoint as long as none of them changes. Where some of them do, the image takes those from a chunk of their own and
/// the rest from the older one, which has more pages than are taken from it: a window may have several of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredWindow {
    /// Address of the window, a multiple of 64 pages.
    pub address: u64,
    /// Bit N: page N of the window is taken from the chunk.
    pub pages: u64,
    /// Bit N: page N of the window is in the chunk.
    pub has: u64,
    /// The bytes of the pages that it has, in order.
    pub chunk: ckpt_store::ChunkRef,
}

/// In JSON an array: `[address, pages, chunk]`, where more pages are in the chunk `[address, pages, chunk, has]`.
impl Serialize for StoredWindow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { address, pages, has, chunk } = self;
        match pages == has {
            true => (address, pages, chunk).serialize(serializer),
            false => (address, pages, chunk, has).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for StoredWindow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Array)
    }
}

/// What reads the array.
struct Array;

impl<'de> Visitor<'de> for Array {
    type Value = StoredWindow;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a window of pages: [address, pages, chunk] or [address, pages, chunk, has]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<StoredWindow, A::Error> {
        let missing = |place| A::Error::invalid_length(place, &self);
        let address = array.next_element()?.ok_or_else(|| missing(0))?;
        let pages = array.next_element()?.ok_or_else(|| missing(1))?;
        let chunk = array.next_element()?.ok_or_else(|| missing(2))?;
        let has = array.next_element()?.unwrap_or(pages);
        Ok(StoredWindow { address, pages, has, chunk })
    }
}

impl StoredWindow {
    /// How many bytes are taken from it.
    pub fn bytes(&self, page: u64) -> u64 {
        u64::from(self.pages.count_ones()).saturating_mul(page)
    }

    /// Whether it takes what its chunk has, and as long as its chunk says.
    pub fn is_sound(&self, page: u64) -> bool {
        let length = u64::from(self.has.count_ones()).saturating_mul(page);
        self.pages & !self.has == 0 && length == u64::from(self.chunk.length)
    }

    /// Whether all of these are, and in ascending order, each page once.
    pub fn are_sound(windows: &[Self], page: u64) -> bool {
        let (mut last, mut taken) = (0, 0);
        windows.iter().all(|window| {
            taken = if window.address == last { taken } else { 0 };
            let fits = window.address >= last && taken & window.pages == 0;
            (last, taken) = (window.address, taken | window.pages);
            fits && window.address % (WINDOW_PAGES * page) == 0 && window.is_sound(page)
        })
    }

    /// The same chunk, of which only some of its pages are taken.
    #[must_use]
    pub fn only(&self, pages: u64) -> Self {
        Self { pages: self.pages & pages, ..*self }
    }

    /// Runs of pages that are taken: (address, bytes), ascending.
    pub fn runs(&self, page: u64) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for index in (0..WINDOW_PAGES).filter(|index| self.pages & 1 << index != 0) {
            let address = self.address + index * page;
            match runs.last_mut() {
                Some(last) if last.0 + last.1 == address => last.1 += page,
                _ => runs.push((address, page)),
            }
        }
        runs
    }

    /// Where in the chunk a page is.
    pub fn place(&self, index: u64, page: u64) -> usize {
        (self.has & ((1 << index) - 1)).count_ones() as usize * page as usize
    }

    /// The bytes of the pages that are taken, out of the chunk's, one after the other.
    ///
    /// # Errors
    /// [`too_short`]
    pub fn taken(&self, chunk: Vec<u8>, page: u64) -> Result<Vec<u8>, EngineError> {
        if self.pages == self.has {
            return Ok(chunk);
        }
        let mut taken = Vec::with_capacity(self.bytes(page) as usize);
        for index in (0..WINDOW_PAGES).filter(|index| self.pages & 1 << index != 0) {
            let place = self.place(index, page);
            let bytes = chunk.get(place..place + page as usize);
            taken.extend_from_slice(bytes.ok_or_else(too_short)?);
        }
        Ok(taken)
    }
}

/// A chunk that has not the pages of its window.
pub fn too_short() -> EngineError {
    EngineError::Damaged("a chunk that is too short".into())
}

#[cfg(test)]
impl StoredWindow {
    /// One of a chunk that nobody has stored.
    pub(crate) fn for_test(address: u64, pages: u64, has: u64, page: u32) -> Self {
        let chunk = ckpt_store::ChunkRef {
            hash: ckpt_store::ChunkHash::of(b"x"),
            pack: ckpt_store::PackId::parse("0000000000ab").unwrap(),
            offset: 4096,
            stored: 1,
            length: has.count_ones() * page,
            encoding: ckpt_store::Encoding::Zstd,
        };
        Self { address, pages, has, chunk }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(pages: u64, has: u64) -> StoredWindow {
        StoredWindow::for_test(0x4000, pages, has, 4)
    }

    #[test]
    fn what_an_image_had_before_there_were_parts_is_read() {
        let (whole, part) = (window(0b101, 0b101), window(0b100, 0b1101));
        for (window, length) in [(whole, 3), (part, 4)] {
            let text = serde_json::to_string(&window).unwrap();
            let array: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
            assert_eq!(array.len(), length);
            assert_eq!(serde_json::from_str::<StoredWindow>(&text).unwrap(), window);
        }
    }

    #[test]
    fn each_page_is_there_once() {
        let at = |address, pages| StoredWindow { address, ..window(pages, 0b1111) };
        let sound = |windows: &[StoredWindow]| StoredWindow::are_sound(windows, 4);
        assert!(sound(&[]) && sound(&[at(0, 0b1), at(0, 0b110), at(0x400, 0b1)]));
        assert!(!sound(&[at(0, 0b1), at(0, 0b11)]));
        assert!(!sound(&[at(0, 0b1), at(0, 0b10), at(0, 0b1)]));
        assert!(!sound(&[at(0x400, 0b1), at(0, 0b1)]));
        assert!(!sound(&[at(0x404, 0b1)]) && !sound(&[at(0, 0b1_0000)]));
    }

    #[test]
    fn takes_its_pages_out_of_the_chunk() {
        let part = window(1 << 2 | 1 << 63, 1 | 1 << 2 | 1 << 5 | 1 << 63);
        assert!(part.is_sound(4) && !part.is_sound(8) && !window(0b11, 0b1).is_sound(4));
        assert_eq!(part.bytes(4), 8);
        let bytes: Vec<u8> = (0..16).collect();
        assert_eq!(part.taken(bytes.clone(), 4).unwrap(), [4, 5, 6, 7, 12, 13, 14, 15]);
        assert!(part.taken(bytes[..12].to_vec(), 4).is_err());
        assert_eq!(part.only(1 << 2).taken(bytes.clone(), 4).unwrap(), [4, 5, 6, 7]);
        assert_eq!(part.runs(4), [(0x4008, 4), (0x4000 + 63 * 4, 4)]);
        assert_eq!(window(0b1, 0b1).taken(bytes.clone(), 4).unwrap(), bytes);
    }
}
