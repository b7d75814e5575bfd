//! Encryption of what a checkpoint consists of. `FORMAT.md` draws it.
//!
//! All keys follow from the key of the job by BLAKE3, and each encrypts one content: so equal content has equal bytes, which are
//! stored once, and no nonce is used for two contents.

use std::fmt;
use std::io::{self, Read, Write};

use protocol::cluster::image_key::{Encryption, JobKey};
use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use super::chunk::Encoding;
pub(super) use super::chunk::OVERHEAD;
use super::error::StoreError;
use super::hash::ChunkHash;

/// What follows encrypted bytes: tag, nonce, cipher.
pub(super) type Trailer = [u8; OVERHEAD];

const NONCE: usize = 12;
const TAG: usize = 16;
const _: () = assert!(OVERHEAD == TAG + NONCE + 1);
/// From a piece's end to the byte of its nonce that tells whether it is the last.
const LAST_FROM_END: usize = NONCE + 1 - 8;
/// Bytes of a piece of a longer content, before they are encrypted.
pub(super) const PIECE: usize = 1 << 20;

/// An algorithm that encrypts and authenticates. Recorded behind all that it has encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// AES-256-GCM.
    Aes256Gcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
}

impl Cipher {
    /// The one that this processor is fast in.
    #[must_use]
    pub fn of_this_processor() -> Self {
        if has_aes() { Self::Aes256Gcm } else { Self::ChaCha20Poly1305 }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Aes256Gcm => 1,
            Self::ChaCha20Poly1305 => 2,
        }
    }

    fn of_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Aes256Gcm),
            2 => Some(Self::ChaCha20Poly1305),
            _ => None,
        }
    }

    fn with(self, key: &[u8; 32]) -> Option<LessSafeKey> {
        let algorithm = match self {
            Self::Aes256Gcm => &AES_256_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        UnboundKey::new(algorithm, key).ok().map(LessSafeKey::new)
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}

/// By what a key is known without being told: 16 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyId(String);

/// What encrypts and decrypts a job's images, or one image that has a key of its own.
#[derive(Clone)]
pub struct ImageKey {
    job: JobKey,
    encryption: Encryption,
    cipher: Cipher,
    id: KeyId,
    salt: Option<ChunkHash>,
    keys: Keys,
}

/// One for each purpose.
#[derive(Clone)]
struct Keys {
    names: [u8; 32],
    chunks: [u8; 32],
    frames: [u8; 32],
    text_names: [u8; 32],
    texts: [u8; 32],
}

impl Keys {
    fn of(root: &[u8; 32]) -> Self {
        let derive = |purpose: &str| {
            blake3::derive_key(&format!("ckptd 2026-11 images of jobs: {purpose}"), root)
        };
        Self {
            names: derive("names of chunks"),
            chunks: derive("keys of chunks"),
            frames: derive("nonces of compressed chunks"),
            text_names: derive("names of texts"),
            texts: derive("keys of texts"),
        }
    }
}

impl fmt::Debug for ImageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl ImageKey {
    /// That of a job.
    #[must_use]
    pub fn new(job: &JobKey, encryption: Encryption) -> Self {
        let id = blake3::derive_key("ckptd 2026-11 images of jobs: which key it is", job.bytes());
        let id = blake3::Hash::from_bytes(id).to_hex();
        Self {
            job: job.clone(),
            encryption,
            cipher: Cipher::of_this_processor(),
            id: KeyId(id[..16].to_owned()),
            salt: None,
            keys: Keys::of(job.bytes()),
        }
    }

    /// With another cipher for what it encrypts; it decrypts all.
    #[must_use]
    pub fn with_cipher(self, cipher: Cipher) -> Self {
        Self { cipher, ..self }
    }

    /// The job's key, from which all others follow.
    pub(super) fn job(&self) -> &JobKey {
        &self.job
    }

    /// How new images are encrypted.
    #[must_use]
    pub fn encryption(&self) -> Encryption {
        self.encryption
    }

    /// By what it is known.
    pub(super) fn id(&self) -> &KeyId {
        &self.id
    }

    /// What makes it the key of one image alone; none: it is the job's.
    pub(super) fn salt(&self) -> Option<ChunkHash> {
        self.salt
    }

    /// The key of the image that has this salt; without one, the job's.
    pub(super) fn salted(&self, salt: Option<ChunkHash>) -> Self {
        if salt == self.salt {
            return self.clone();
        }
        let root = salt.map_or(*self.job.bytes(), |salt| {
            *blake3::keyed_hash(self.job.bytes(), &salt.to_bytes()).as_bytes()
        });
        Self { salt, keys: Keys::of(&root), ..self.clone() }
    }

    /// The key for a new image; none, where images are not to be encrypted.
    ///
    /// # Errors
    /// [`StoreError::NoRandomness`].
    pub fn for_new_image(&self) -> Result<Option<Self>, StoreError> {
        match self.encryption {
            Encryption::Off => Ok(None),
            Encryption::Shared => Ok(Some(self.salted(None))),
            Encryption::Apart => Ok(Some(self.salted(Some(random()?)))),
        }
    }

    /// The name of a chunk: nobody without the key can tell whether a chunk has a certain content.
    pub(super) fn name(&self, content: &[u8]) -> ChunkHash {
        blake3::keyed_hash(&self.keys.names, content).into()
    }

    fn chunk_key(&self, name: &ChunkHash, encoding: Encoding, cipher: Cipher) -> [u8; 32] {
        let form = match encoding {
            Encoding::Plain => 0,
            Encoding::Zstd => 1,
        };
        let mut hasher = blake3::Hasher::new_keyed(&self.keys.chunks);
        hasher.update(&name.to_bytes()).update(&[form, cipher.byte()]);
        *hasher.finalize().as_bytes()
    }

    /// Encrypts a chunk in its place: its content, or a zstd frame of that. What comes back is to follow it.
    ///
    /// # Errors
    /// [`StoreError::Cipher`].
    pub(super) fn seal_chunk(
        &self,
        name: &ChunkHash,
        encoding: Encoding,
        bytes: &mut [u8],
    ) -> Result<Trailer, StoreError> {
        let nonce = match encoding {
            // The key is that of this content alone.
            Encoding::Plain => [0; NONCE],
            // Another version of zstd may make another frame of it.
            Encoding::Zstd => start_of(blake3::keyed_hash(&self.keys.frames, bytes)),
        };
        let key = self.chunk_key(name, encoding, self.cipher);
        seal(self.cipher, &key, nonce, bytes).ok_or(StoreError::Cipher)
    }

    /// Undoes [`seal_chunk`](Self::seal_chunk). None: these are not the bytes of that chunk.
    pub(super) fn open_chunk<'a>(
        &self,
        name: &ChunkHash,
        encoding: Encoding,
        stored: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        open(|cipher| self.chunk_key(name, encoding, cipher), None, stored)
    }

    /// The name of a text, or of a file's content, by which its key is told. `context`: what it is.
    pub(super) fn text_name(&self, context: &str, text: &[u8]) -> ChunkHash {
        let mut hasher = self.name_content(context);
        hasher.update(text);
        hasher.finalize().into()
    }

    /// The beginning of a [`text_name`](Self::text_name), for a content that is read piece by piece.
    fn name_content(&self, context: &str) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new_keyed(&self.keys.text_names);
        hasher.update(context.as_bytes()).update(&[0]);
        hasher
    }

    fn text_key(&self, name: &ChunkHash, cipher: Cipher) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.keys.texts);
        hasher.update(&name.to_bytes()).update(&[cipher.byte()]);
        *hasher.finalize().as_bytes()
    }

    /// Encrypts the piece of that number.
    pub(super) fn seal_piece(
        &self,
        name: &ChunkHash,
        place: PiecePlace,
        bytes: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let mut sealed = Vec::with_capacity(bytes.len() + OVERHEAD);
        sealed.extend_from_slice(bytes);
        let key = self.text_key(name, self.cipher);
        let trailer = seal(self.cipher, &key, place.nonce(), &mut sealed);
        sealed.extend_from_slice(&trailer.ok_or(StoreError::Cipher)?);
        Ok(sealed)
    }

    /// Undoes [`seal_piece`](Self::seal_piece). None: it is not that piece.
    pub(super) fn open_piece<'a>(
        &self,
        name: &ChunkHash,
        place: PiecePlace,
        stored: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        open(|cipher| self.text_key(name, cipher), Some(place.nonce()), stored)
    }

    /// The name of a file's content, for [`seal_content`](Self::seal_content).
    ///
    /// # Errors
    /// What `from` says.
    pub fn content_name(&self, from: impl Read) -> io::Result<ChunkHash> {
        if self.encryption == Encryption::Apart {
            return random().map_err(io::Error::other);
        }
        let mut hasher = self.name_content(CONTENT);
        hasher.update_reader(from)?;
        Ok(hasher.finalize().into())
    }

    /// Encrypts a content whose name [`content_name`](Self::content_name) has told. It must be that very content: what was
    /// written before an error is to be thrown away.
    ///
    /// # Errors
    /// It is another one; what `from` or `to` says.
    pub fn seal_content(
        &self,
        name: &ChunkHash,
        mut from: impl Read,
        mut to: impl Write,
    ) -> io::Result<()> {
        let mut hasher = self.name_content(CONTENT);
        let (mut now, mut next) = (Vec::new(), Vec::new());
        fill(&mut from, &mut now)?;
        for index in 0.. {
            fill(&mut from, &mut next)?;
            hasher.update(&now);
            let place = PiecePlace { index, last: next.is_empty() };
            to.write_all(&self.seal_piece(name, place, &now).map_err(io::Error::other)?)?;
            if place.last {
                break;
            }
            std::mem::swap(&mut now, &mut next);
        }
        if self.encryption != Encryption::Apart && *name != hasher.finalize().into() {
            return Err(io::Error::other("it changed while it was read"));
        }
        Ok(())
    }

    /// Bytes that a content of this length has when it is encrypted.
    #[must_use]
    pub fn sealed_length(length: u64) -> u64 {
        let pieces = length.div_ceil(PIECE as u64).max(1);
        length.saturating_add(pieces.saturating_mul(OVERHEAD as u64))
    }

    /// Undoes [`seal_content`](Self::seal_content).
    ///
    /// # Errors
    /// It is not what the name tells; what `from` or `to` says.
    pub fn open_content(
        &self,
        name: &ChunkHash,
        mut from: impl Read,
        mut to: impl Write,
    ) -> io::Result<()> {
        let damaged = || io::Error::other("it can't be decrypted: it is damaged");
        let mut stored = Vec::new();
        for index in 0.. {
            stored.clear();
            (&mut from).take((PIECE + OVERHEAD) as u64).read_to_end(&mut stored)?;
            let flag = stored.len().checked_sub(LAST_FROM_END).and_then(|at| stored.get(at));
            let last = flag == Some(&1);
            let place = PiecePlace { index, last };
            to.write_all(self.open_piece(name, place, &mut stored).ok_or_else(damaged)?)?;
            if last {
                break;
            }
        }
        match from.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(damaged()),
        }
    }
}

/// What a file's content is, before the name of a text.
const CONTENT: &str = "file";

fn fill(from: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<usize> {
    buffer.clear();
    from.take(PIECE as u64).read_to_end(buffer)
}

/// Which piece of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct PiecePlace {
    /// From 0.
    pub(super) index: u64,
    /// Whether none follows.
    pub(super) last: bool,
}

impl PiecePlace {
    fn nonce(self) -> [u8; NONCE] {
        let mut nonce = [0; NONCE];
        nonce[..8].copy_from_slice(&self.index.to_be_bytes());
        nonce[8] = u8::from(self.last);
        nonce
    }
}

fn start_of(hash: blake3::Hash) -> [u8; NONCE] {
    let mut nonce = [0; NONCE];
    nonce.copy_from_slice(&hash.as_bytes()[..NONCE]);
    nonce
}

fn seal(cipher: Cipher, key: &[u8; 32], nonce: [u8; NONCE], bytes: &mut [u8]) -> Option<Trailer> {
    let key = cipher.with(key)?;
    let own = Nonce::assume_unique_for_key(nonce);
    let tag = key.seal_in_place_separate_tag(own, Aad::empty(), bytes).ok()?;
    let mut trailer = [0; OVERHEAD];
    trailer[..TAG].copy_from_slice(tag.as_ref());
    trailer[TAG..TAG + NONCE].copy_from_slice(&nonce);
    trailer[TAG + NONCE] = cipher.byte();
    Some(trailer)
}

/// `due`: the nonce that it must have been encrypted with.
fn open(
    key: impl FnOnce(Cipher) -> [u8; 32],
    due: Option<[u8; NONCE]>,
    stored: &mut [u8],
) -> Option<&[u8]> {
    let (rest, [cipher]) = stored.split_last_chunk_mut()?;
    let (sealed, nonce) = rest.split_last_chunk_mut::<NONCE>()?;
    let (cipher, nonce) = (Cipher::of_byte(*cipher)?, *nonce);
    if due.is_some_and(|due| due != nonce) {
        return None;
    }
    let key = cipher.with(&key(cipher))?;
    let nonce = Nonce::assume_unique_for_key(nonce);
    key.open_in_place(nonce, Aad::empty(), sealed).ok().map(|bytes| &*bytes)
}

/// 32 bytes that nobody can guess.
pub(super) fn random() -> Result<ChunkHash, StoreError> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| StoreError::NoRandomness)?;
    Ok(ChunkHash::of_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> ImageKey {
        ImageKey::new(&JobKey::new([byte; 32]), Encryption::Shared)
    }

    #[test]
    fn equal_content_has_equal_bytes_under_one_key_and_others_under_another() {
        let content = vec![7; 5000];
        for cipher in [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
            let (one, other) = (key(1).with_cipher(cipher), key(2).with_cipher(cipher));
            let sealed = |key: &ImageKey, encoding| {
                let mut sealed = content.clone();
                let trailer = key.seal_chunk(&key.name(&content), encoding, &mut sealed).unwrap();
                [&sealed[..], &trailer].concat()
            };
            let plain = sealed(&one, Encoding::Plain);
            assert_eq!(plain.len(), content.len() + OVERHEAD);
            assert_eq!(plain, sealed(&one, Encoding::Plain));
            assert_ne!(plain, sealed(&other, Encoding::Plain));
            assert_ne!(one.name(&content), other.name(&content));
            assert_ne!(one.name(&content), ChunkHash::of(&content));
            // Whatever it was encrypted with, and whatever the reader would take.
            for reader in [key(1).with_cipher(Cipher::Aes256Gcm), one.clone()] {
                let name = reader.name(&content);
                let mut stored = plain.clone();
                let opened = reader.open_chunk(&name, Encoding::Plain, &mut stored);
                assert_eq!(opened, Some(&content[..]));
                assert!(
                    reader.open_chunk(&name, Encoding::Zstd, &mut plain.clone()).is_none(),
                    "the form is part of it"
                );
            }
            let name = one.name(&content);
            assert!(other.open_chunk(&name, Encoding::Plain, &mut plain.clone()).is_none());
            for at in [0, content.len(), content.len() + TAG, plain.len() - 1] {
                let mut flipped = plain.clone();
                flipped[at] ^= 1;
                assert!(one.open_chunk(&name, Encoding::Plain, &mut flipped).is_none(), "{at}");
            }
            assert!(one.open_chunk(&name, Encoding::Plain, &mut plain[..20].to_vec()).is_none());
        }
    }

    #[test]
    fn a_salt_makes_another_key_of_the_same_name() {
        let (job, salt) = (key(1), ChunkHash::of(b"salt"));
        let own = job.salted(Some(salt));
        assert_eq!(job.id(), own.id());
        assert_ne!(job.name(b"x"), own.name(b"x"));
        assert_eq!(own.name(b"x"), key(1).salted(Some(salt)).name(b"x"));
        assert_eq!(own.salted(None).name(b"x"), job.name(b"x"));
    }

    #[test]
    fn contents_of_any_length_come_back_and_no_piece_can_be_left_out() {
        for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 5] {
            let mut content = vec![0; length];
            blake3::Hasher::new().finalize_xof().fill(&mut content);
            let name = key(1).content_name(&content[..]).unwrap();
            let mut sealed = Vec::new();
            key(1).seal_content(&name, &content[..], &mut sealed).unwrap();
            let pieces = length.div_ceil(PIECE).max(1);
            assert_eq!(sealed.len(), length + pieces * OVERHEAD);
            assert_eq!(sealed.len() as u64, ImageKey::sealed_length(length as u64));
            let open = |stored: &[u8]| {
                let mut opened = Vec::new();
                key(1).open_content(&name, stored, &mut opened).map(|()| opened)
            };
            assert_eq!(open(&sealed).unwrap(), content);
            open(&sealed[..sealed.len() - 1]).unwrap_err();
            open(&[&sealed[..], b"x"].concat()).unwrap_err();
            if pieces > 1 {
                open(&sealed[..PIECE + OVERHEAD]).unwrap_err();
                open(&sealed[PIECE + OVERHEAD..]).unwrap_err();
            }
            key(2).open_content(&name, &sealed[..], io::sink()).unwrap_err();
        }
        // One that has changed since it got its name.
        let name = key(1).content_name(&b"before"[..]).unwrap();
        key(1).seal_content(&name, &b"after"[..], io::sink()).unwrap_err();
    }
}
