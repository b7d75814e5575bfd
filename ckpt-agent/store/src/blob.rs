//! A stream of bytes of any length, cut into chunks: in-flight bytes, contents of files.

use std::fmt;
use std::io::{self, Read};

use serde::{Deserialize, Deserializer, Serialize, de};

use super::chunk::ChunkRef;
use super::error::{StoreError, errno_of};

/// The length of a blob's pieces in bytes; the last one may be shorter.
pub const BLOB_PIECE: usize = 256 << 10;

/// A stream of bytes in a checkpoint. In JSON `{"length":…,"pieces":[…]}`, a piece being a
/// chunk's reference or the number of bytes of a hole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Blob {
    length: u64,
    pieces: Vec<Piece>,
}

/// A part of a [`Blob`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Piece {
    /// So many zero bytes, which are not stored. At least 1.
    Hole(u64),
    /// A chunk.
    Stored(ChunkRef),
}

impl Piece {
    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Hole(length) => *length,
            Self::Stored(chunk) => u64::from(chunk.length),
        }
    }
}

impl Blob {
    /// Its length in bytes, holes included.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Its pieces in order, each with the offset in the blob at which it begins.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, &Piece)> {
        let mut next = 0;
        self.pieces.iter().map(move |piece| {
            let offset = next;
            next += piece.length();
            (offset, piece)
        })
    }

    /// Puts pieces together; holes side by side become one. `None` if the length overflows.
    fn from_pieces(parts: impl IntoIterator<Item = Piece>) -> Option<Self> {
        let mut blob = Self::default();
        for part in parts {
            blob.length = blob.length.checked_add(part.length())?;
            match (blob.pieces.last_mut(), part) {
                (Some(Piece::Hole(length)), Piece::Hole(more)) => *length += more,
                _ => blob.pieces.push(part),
            }
        }
        Some(blob)
    }
}

impl<'de> Deserialize<'de> for Piece {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HoleOrChunk;
        impl<'de> de::Visitor<'de> for HoleOrChunk {
            type Value = Piece;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the length of a hole or a chunk's reference")
            }
            fn visit_u64<E: de::Error>(self, length: u64) -> Result<Piece, E> {
                if length == 0 {
                    return Err(E::custom("a hole has a length"));
                }
                Ok(Piece::Hole(length))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<Piece, A::Error> {
                ChunkRef::deserialize(de::value::SeqAccessDeserializer::new(seq)).map(Piece::Stored)
            }
        }
        deserializer.deserialize_any(HoleOrChunk)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Told {
            length: u64,
            pieces: Vec<Piece>,
        }
        let told = Told::deserialize(deserializer)?;
        Self::from_pieces(told.pieces)
            .filter(|blob| blob.length == told.length)
            .ok_or_else(|| de::Error::custom("a blob is as long as its pieces"))
    }
}

/// A blob whose chunks are still on their way to the disk.
#[derive(Debug)]
#[must_use = "the blob itself is made by Chunks::blob"]
pub struct PendingBlob(Vec<PendingPiece>);

#[derive(Debug)]
enum PendingPiece {
    Hole(u64),
    Submitted(u64),
}

impl PendingBlob {
    /// Reads `source` to its end, submitting every piece that is not zero throughout.
    pub(super) fn cut(
        source: &mut dyn Read,
        take_buffer: impl Fn(usize) -> Vec<u8>,
        submit: impl Fn(Vec<u8>) -> Result<u64, StoreError>,
    ) -> Result<Self, StoreError> {
        let mut pieces = Vec::new();
        let mut buffer = take_buffer(BLOB_PIECE);
        loop {
            let length = fill(source, &mut buffer)
                .map_err(|error| StoreError::Source { errno: errno_of(&error) })?;
            if length == 0 {
                return Ok(Self(pieces));
            }
            if buffer.iter().all(|byte| *byte == 0) {
                pieces.push(PendingPiece::Hole(length as u64));
            } else {
                pieces.push(PendingPiece::Submitted(submit(buffer)?));
                buffer = take_buffer(BLOB_PIECE);
            }
        }
    }

    pub(super) fn resolve(&self, places: &[ChunkRef]) -> Option<Blob> {
        let parts: Option<Vec<Piece>> = self
            .0
            .iter()
            .map(|piece| match piece {
                PendingPiece::Hole(length) => Some(Piece::Hole(*length)),
                PendingPiece::Submitted(sequence) => {
                    places.get(usize::try_from(*sequence).ok()?).copied().map(Piece::Stored)
                }
            })
            .collect();
        Blob::from_pieces(parts?)
    }
}

/// Reads one piece, or what is left.
fn fill(source: &mut dyn Read, buffer: &mut Vec<u8>) -> io::Result<usize> {
    buffer.clear();
    source.take(BLOB_PIECE as u64).read_to_end(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_that_lies_about_its_length_is_refused() {
        assert_eq!(
            serde_json::from_str::<Blob>(r#"{"length":7,"pieces":[3,4]}"#).unwrap(),
            Blob { length: 7, pieces: vec![Piece::Hole(7)] }
        );
        for text in [
            r#"{"length":8,"pieces":[3,4]}"#,
            r#"{"length":0,"pieces":[0]}"#,
            r#"{"length":1,"pieces":[18446744073709551615,2]}"#,
            r#"{"length":1,"pieces":[-1]}"#,
            r#"{"length":1,"pieces":["x"]}"#,
        ] {
            assert!(serde_json::from_str::<Blob>(text).is_err(), "{text}");
        }
    }
}
