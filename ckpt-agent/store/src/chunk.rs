//! Where the bytes of a chunk are.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};

use serde::{Deserialize, Serialize};

use super::hash::ChunkHash;

/// The longest chunk, in bytes, before compression.
pub const MAX_CHUNK: usize = 4 << 20;

/// Bytes that encryption adds to a chunk: tag, nonce, cipher.
pub(super) const OVERHEAD: usize = 16 + 12 + 1;

/// Names a pack: 48 random bits, so that packs of several nodes can lie in one folder. Written as
/// 12 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PackId(u64);

impl PackId {
    /// A new name. The caller creates the file exclusively and asks again should the name be
    /// taken.
    pub fn random() -> Self {
        // The standard library seeds each `RandomState` from the kernel's random numbers.
        Self(RandomState::new().build_hasher().finish() >> 16)
    }

    /// The one of this number.
    pub(super) fn of_number(number: u64) -> Self {
        Self(number)
    }

    pub(super) fn number(self) -> u64 {
        self.0
    }

    /// Reads 12 lower-case hexadecimal digits; anything else is `None`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 12 || !text.bytes().all(digits) {
            return None;
        }
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for PackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012x}", self.0)
    }
}

impl fmt::Debug for PackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<PackId> for String {
    fn from(id: PackId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for PackId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("a pack is named by 12 lower-case hexadecimal digits")
    }
}

/// How the bytes of a chunk are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Encoding {
    /// As they are.
    #[serde(rename = "p")]
    Plain,
    /// As one zstd frame.
    #[serde(rename = "z")]
    Zstd,
}

/// Where the bytes of one chunk are, and which bytes they have to be. In JSON an array:
/// `[hash, pack, offset, stored, length, "p" or "z"]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Packed", into = "Packed")]
pub struct ChunkRef {
    /// The hash of the chunk's bytes, uncompressed.
    pub hash: ChunkHash,
    /// The pack that holds them.
    pub pack: PackId,
    /// Where they begin, in bytes from the start of the pack.
    pub offset: u64,
    /// How many bytes of the pack they take; equal to `length` if they are plain.
    pub stored: u32,
    /// How many bytes they are, 1 to [`MAX_CHUNK`].
    pub length: u32,
    /// How they are stored.
    pub encoding: Encoding,
}

type Packed = (ChunkHash, PackId, u64, u32, u32, Encoding);

impl From<ChunkRef> for Packed {
    fn from(chunk: ChunkRef) -> Self {
        let ChunkRef { hash, pack, offset, stored, length, encoding } = chunk;
        (hash, pack, offset, stored, length, encoding)
    }
}

impl TryFrom<Packed> for ChunkRef {
    type Error = &'static str;

    fn try_from(packed: Packed) -> Result<Self, Self::Error> {
        let (hash, pack, offset, stored, length, encoding) = packed;
        let chunk = Self { hash, pack, offset, stored, length, encoding };
        chunk.check().map(|()| chunk)
    }
}

impl ChunkRef {
    /// Checks the limits that hold for every chunk, whatever its pack: a reference may come from
    /// an image that somebody else has written.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        // As a holder sees it, an encrypted chunk is a plain one of so many bytes more.
        let most = match self.encoding {
            Encoding::Plain => MAX_CHUNK + OVERHEAD,
            Encoding::Zstd => MAX_CHUNK,
        };
        if self.length == 0 || self.length as usize > most {
            return Err("a chunk is 1 byte to 4 MiB long");
        }
        match self.encoding {
            Encoding::Plain if self.stored != self.length => {
                Err("a plain chunk is stored in its own length")
            }
            // A frame that is not smaller would have been stored plain.
            Encoding::Zstd if self.stored == 0 || self.stored >= self.length => {
                Err("a compressed chunk is shorter than its bytes")
            }
            _ if self.offset.checked_add(u64::from(self.stored)).is_none() => {
                Err("a chunk ends before the largest offset")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ChunkRef {
        ChunkRef {
            hash: ChunkHash::of(b"x"),
            pack: PackId(0xab),
            offset: 4096,
            stored: 10,
            length: 20,
            encoding: Encoding::Zstd,
        }
    }

    #[test]
    fn a_reference_is_a_compact_array() {
        let text = serde_json::to_string(&sample()).unwrap();
        let hash = ChunkHash::of(b"x");
        assert_eq!(text, format!(r#"["{hash}","0000000000ab",4096,10,20,"z"]"#));
        assert_eq!(serde_json::from_str::<ChunkRef>(&text).unwrap(), sample());
    }

    #[test]
    fn references_beyond_the_limits_are_refused() {
        let bad = [
            ChunkRef { length: 0, ..sample() },
            ChunkRef { length: MAX_CHUNK as u32 + 1, ..sample() },
            ChunkRef { stored: 20, ..sample() },
            ChunkRef { stored: 0, ..sample() },
            ChunkRef { encoding: Encoding::Plain, ..sample() },
            ChunkRef {
                encoding: Encoding::Plain,
                length: (MAX_CHUNK + OVERHEAD) as u32 + 1,
                stored: (MAX_CHUNK + OVERHEAD) as u32 + 1,
                ..sample()
            },
            ChunkRef { offset: u64::MAX, ..sample() },
        ];
        for chunk in bad {
            let text = serde_json::to_string(&chunk).unwrap();
            assert!(serde_json::from_str::<ChunkRef>(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_pack_is_not_a_path() {
        for name in ["../../../etc", "/etc/passwd/x", "0000000000AB", "0000000000ab0", ""] {
            assert_eq!(PackId::parse(name), None, "{name}");
        }
    }
}
