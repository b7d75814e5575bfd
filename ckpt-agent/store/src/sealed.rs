//! Texts that are encrypted: index files, and what a caller keeps beside an image. What a holder without the key must know
//! stands before them in clear.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::chunk::ChunkRef;
use super::error::{Damage, StoreError};
use super::hash::ChunkHash;
use super::mark::{IndexFile, MAX_INDEX};
use super::sealing::{ImageKey, KeyId, PIECE, PiecePlace};

/// Version of what is encrypted.
const FORMAT: u32 = 1;
/// With this an encrypted index file begins, and no other.
const BEGIN: &[u8] = b"{\"sealed\":";
/// This ends its first line.
const FIRST_END: &[u8] = b",\n";
/// The longest first line.
const LONGEST_FIRST: u64 = 512;
/// Level of compression.
const LEVEL: i32 = 1;

/// By what a text was encrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    format: u32,
    key: KeyId,
    salt: Option<ChunkHash>,
    text: ChunkHash,
}

/// A text that is encrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedText {
    sealed: Head,
    /// Base64.
    pieces: Vec<String>,
}

/// Why a text can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Nobody has given its key.
    #[error("it is encrypted, and this machine has not got its job's key")]
    NoKey,
    /// It was encrypted with another key.
    #[error("it is encrypted with another key than this machine has got for its job")]
    WrongKey,
    /// By a newer ckptd.
    #[error("it was encrypted by a newer ckptd: use that")]
    Newer,
    /// It is not what was encrypted.
    #[error("it can't be decrypted: it is damaged")]
    Damaged,
}

impl SealedText {
    /// Encrypts a text. `context`: what it is, without which it can't be decrypted.
    ///
    /// # Errors
    /// [`StoreError::Cipher`], [`StoreError::Json`].
    pub fn seal(key: &ImageKey, context: &str, text: &[u8]) -> Result<Self, StoreError> {
        let json = |error: io::Error| StoreError::Json {
            name: context.to_owned(),
            reason: error.to_string(),
        };
        let packed = zstd::bulk::compress(text, LEVEL).map_err(json)?;
        let name = key.text_name(context, &packed);
        let count = packed.len().div_ceil(PIECE).max(1) as u64;
        let pieces = (0..count).zip(packed.chunks(PIECE)).map(|(index, piece)| {
            let place = PiecePlace { index, last: index + 1 == count };
            key.seal_piece(&name, place, piece).map(|sealed| STANDARD.encode(sealed))
        });
        let pieces = pieces.collect::<Result<_, _>>()?;
        let (key, salt) = (key.id().clone(), key.salt());
        Ok(Self { sealed: Head { format: FORMAT, key, salt, text: name }, pieces })
    }

    /// Decrypts it. `most`: how long it may be.
    ///
    /// # Errors
    /// Why not.
    pub fn open(
        &self,
        key: Option<&ImageKey>,
        context: &str,
        most: usize,
    ) -> Result<Vec<u8>, Unreadable> {
        let key = self.sealed.key(key)?;
        let count = self.pieces.len() as u64;
        let mut packed = Vec::new();
        for (index, piece) in (0..).zip(&self.pieces) {
            let mut stored = STANDARD.decode(piece).map_err(|_| Unreadable::Damaged)?;
            let place = PiecePlace { index, last: index + 1 == count };
            let opened = key.open_piece(&self.sealed.text, place, &mut stored);
            packed.extend_from_slice(opened.ok_or(Unreadable::Damaged)?);
        }
        if key.text_name(context, &packed) != self.sealed.text {
            return Err(Unreadable::Damaged);
        }
        let mut text = Vec::new();
        let unpacked = zstd::Decoder::new(packed.as_slice())
            .and_then(|decoder| decoder.take(most as u64 + 1).read_to_end(&mut text));
        match unpacked {
            Ok(length) if length <= most => Ok(text),
            _ => Err(Unreadable::Damaged),
        }
    }
}

impl Head {
    /// The key by which it can be read.
    fn key(&self, own: Option<&ImageKey>) -> Result<ImageKey, Unreadable> {
        if self.format > FORMAT {
            return Err(Unreadable::Newer);
        }
        let own = own.ok_or(Unreadable::NoKey)?;
        match *own.id() == self.key {
            true => Ok(own.salted(self.salt)),
            false => Err(Unreadable::WrongKey),
        }
    }

    /// Whether this key, and no salt, has encrypted it.
    pub(super) fn is_by(&self, key: &ImageKey) -> bool {
        self.key == *key.id() && self.salt == key.salt()
    }
}

/// An encrypted index file: all chunks that the text refers to, as whoever has no key can check them, and the text.
#[derive(Debug, Deserialize)]
struct Envelope {
    sealed: Head,
    #[serde(rename = "chunks")]
    _chunks: serde::de::IgnoredAny,
    pieces: Vec<String>,
}

fn context(number: u64, name: &str) -> String {
    format!("index {number} {name}")
}

/// An index file as it lies on the disk. `chunks`: those that the text refers to, as they are stored.
///
/// # Errors
/// [`StoreError::Cipher`], [`StoreError::Json`].
pub(super) fn seal_index(
    key: &ImageKey,
    number: u64,
    name: &str,
    text: &[u8],
    chunks: &[ChunkRef],
) -> Result<Vec<u8>, StoreError> {
    let SealedText { sealed, pieces } = SealedText::seal(key, &context(number, name), text)?;
    let json = |error: serde_json::Error| StoreError::Json {
        name: name.to_owned(),
        reason: error.to_string(),
    };
    let mut file = BEGIN.to_vec();
    serde_json::to_writer(&mut file, &sealed).map_err(json)?;
    file.extend_from_slice(FIRST_END);
    file.extend_from_slice(b"\"chunks\":");
    serde_json::to_writer(&mut file, chunks).map_err(json)?;
    file.extend_from_slice(b",\"pieces\":");
    serde_json::to_writer(&mut file, &pieces).map_err(json)?;
    file.push(b'}');
    Ok(file)
}

/// The text of an index file, encrypted or not.
///
/// # Errors
/// Why it can't be read.
pub(super) fn open_index(
    key: impl FnOnce() -> Result<Option<ImageKey>, Damage>,
    number: u64,
    file: &IndexFile,
    stored: Vec<u8>,
) -> Result<Vec<u8>, Damage> {
    if !stored.starts_with(BEGIN) {
        return Ok(stored);
    }
    let damaged = |reason: String| Damage::Index { number, name: file.name.clone(), reason };
    let envelope: Envelope =
        protocol::json::read(&stored).map_err(|error| damaged(error.to_string()))?;
    let Envelope { sealed, pieces, .. } = envelope;
    drop(stored);
    let text = SealedText { sealed, pieces };
    text.open(key()?.as_ref(), &context(number, &file.name), MAX_INDEX)
        .map_err(|why| unreadable(number, &file.name, why))
}

fn unreadable(number: u64, name: &str, why: Unreadable) -> Damage {
    match why {
        Unreadable::NoKey => Damage::NoKey { number },
        Unreadable::WrongKey => Damage::WrongKey { number },
        why => Damage::Index { number, name: name.to_owned(), reason: why.to_string() },
    }
}

/// How the index file at that path is encrypted; none: it is not.
///
/// # Errors
/// Where it can't be read, or begins as an encrypted one and is none.
pub(super) fn head_of(file: File) -> io::Result<Option<Head>> {
    let mut start = Vec::new();
    file.take(LONGEST_FIRST).read_to_end(&mut start)?;
    let Some(rest) = start.strip_prefix(BEGIN) else { return Ok(None) };
    let end = rest.windows(FIRST_END.len()).position(|bytes| bytes == FIRST_END);
    let end = end.ok_or(io::ErrorKind::InvalidData)?;
    protocol::json::read(&rest[..end]).map(Some).map_err(io::Error::other)
}

/// The key of an image that is encrypted as `head` says.
///
/// # Errors
/// [`Damage::NoKey`], [`Damage::WrongKey`], and where a newer ckptd has encrypted it.
pub(super) fn key_for(
    head: &Head,
    own: Option<&ImageKey>,
    number: u64,
    name: &str,
) -> Result<ImageKey, Damage> {
    head.key(own).map_err(|why| unreadable(number, name, why))
}

/// Whether an index file lies there that is encrypted.
pub(super) fn is_sealed(path: &Path) -> bool {
    let head = super::disk::open_regular(path).and_then(head_of);
    // What begins like one and is damaged is none that is not.
    !matches!(head, Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::cluster::image_key::{Encryption, JobKey};

    fn key(byte: u8) -> ImageKey {
        ImageKey::new(&JobKey::new([byte; 32]), Encryption::Shared)
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    }

    #[test]
    fn a_text_comes_back_with_its_key_and_in_its_context_alone() {
        for text in [Vec::new(), b"{}".to_vec(), noise(2 * PIECE + 3), vec![b' '; 3 * PIECE]] {
            let sealed = SealedText::seal(&key(1), "a", &text).unwrap();
            assert_eq!(sealed.open(Some(&key(1)), "a", text.len()).unwrap(), text);
            let (own, other) = (key(1), key(2));
            let open = |key, context, most| sealed.open(key, context, most).unwrap_err();
            assert_eq!(open(None, "a", text.len()), Unreadable::NoKey);
            assert_eq!(open(Some(&other), "a", text.len()), Unreadable::WrongKey);
            assert_eq!(open(Some(&own), "b", text.len()), Unreadable::Damaged);
            if let Some(most) = text.len().checked_sub(1) {
                assert_eq!(open(Some(&own), "a", most), Unreadable::Damaged, "it is too long");
            }
            let mut fewer = sealed.clone();
            fewer.pieces.pop();
            assert_eq!(fewer.open(Some(&key(1)), "a", text.len()), Err(Unreadable::Damaged));
        }
    }

    #[test]
    fn the_first_line_tells_how_it_is_encrypted() {
        let index = seal_index(&key(1), 3, "graph.json", b"{}", &[]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graph.json");
        let head = || head_of(File::open(&path).unwrap());
        std::fs::write(&path, &index).unwrap();
        assert!(head().unwrap().unwrap().is_by(&key(1)));
        assert!(!head().unwrap().unwrap().is_by(&key(2)));
        assert!(is_sealed(&path));
        std::fs::write(&path, &index[..60]).unwrap();
        head().unwrap_err();
        assert!(is_sealed(&path));
        std::fs::write(&path, b"{}").unwrap();
        assert!(head().unwrap().is_none());
        assert!(!is_sealed(&path));
    }
}
