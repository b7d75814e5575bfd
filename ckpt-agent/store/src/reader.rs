//! Reading chunks back. Many threads may read at once; no byte passes unchecked.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use super::blob::{Blob, Piece};
use super::chunk::{ChunkRef, Encoding, PackId};
use super::disk::open_regular;
use super::encode::Decoder;
use super::error::{Damage, errno_of};
use super::hash::ChunkHash;
use super::layout::Layout;
use super::mark::CommitMark;
use super::sealing::{ImageKey, OVERHEAD};

/// Holds the packs of one checkpoint open: a later collection does not disturb it.
#[derive(Debug)]
pub struct ChunkReader {
    packs: HashMap<PackId, Pack>,
    /// What decrypts chunks; none: they are read as they are stored.
    key: Option<ImageKey>,
}

#[derive(Debug)]
struct Pack {
    file: File,
    length: u64,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch { decoder: None, frame: Vec::new() }) };
}

/// Per thread, to be used again: a decoder's tables, and the compressed bytes.
struct Scratch {
    decoder: Option<Decoder>,
    frame: Vec<u8>,
}

impl ChunkReader {
    pub(super) fn open(layout: &Layout, mark: &CommitMark) -> Result<Self, Damage> {
        let mut packs = HashMap::new();
        for told in &mark.packs {
            let path = layout.pack(told.id);
            let file = match open_regular(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(Damage::PackMissing { pack: told.id });
                }
                Err(error) => return Err(Damage::io(&path, &error)),
            };
            let length = file.metadata().map_err(|error| Damage::io(&path, &error))?.len();
            if length != told.length {
                let reason = format!("it has {length} bytes instead of {}", told.length);
                return Err(Damage::Pack { pack: told.id, reason });
            }
            packs.insert(told.id, Pack { file, length });
        }
        Ok(Self { packs, key: None })
    }

    /// The same, which decrypts with that key, if there is one.
    pub(super) fn decrypting(self, key: Option<ImageKey>) -> Self {
        Self { key, ..self }
    }

    /// Reads a chunk into `bytes`, which is resized to it. A buffer that has been used before
    /// spares the page faults of fresh memory.
    ///
    /// # Errors
    /// [`Damage::Reference`] if there can be no chunk in that place, [`Damage::Chunk`] if the
    /// bytes there are others than its name tells; `bytes` must not be used then.
    pub fn read(&self, chunk: &ChunkRef, bytes: &mut Vec<u8>) -> Result<(), Damage> {
        self.find(chunk)?;
        bytes.resize(chunk.length as usize, 0);
        self.read_into(chunk, bytes)
    }

    /// Reads a chunk into `bytes`, which must have its length.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn read_into(&self, chunk: &ChunkRef, bytes: &mut [u8]) -> Result<(), Damage> {
        let pack = self.find(chunk)?;
        if bytes.len() != chunk.length as usize {
            return Err(reference(chunk, "its place in memory has another length"));
        }
        if let Some(key) = &self.key {
            return SCRATCH.with_borrow_mut(|scratch| scratch.decrypt(pack, chunk, key, bytes));
        }
        match chunk.encoding {
            Encoding::Plain => read_at(pack, chunk, bytes)?,
            Encoding::Zstd => SCRATCH.with_borrow_mut(|scratch| {
                scratch.frame.resize(chunk.stored as usize, 0);
                read_at(pack, chunk, &mut scratch.frame)?;
                let Scratch { decoder, frame } = scratch;
                decode(decoder, chunk, frame, bytes)
            })?,
        }
        match ChunkHash::of(bytes) == chunk.hash {
            true => Ok(()),
            false => Err(damaged(chunk, "its hash does not match its bytes")),
        }
    }

    /// Writes all bytes of a blob to `sink`, holes as zeros.
    ///
    /// # Errors
    /// [`Damage::Sink`] if `sink` refuses, else as for [`read`](Self::read).
    pub fn read_blob(&self, blob: &Blob, sink: &mut dyn Write) -> Result<(), Damage> {
        let refused = |error: io::Error| Damage::Sink { errno: errno_of(&error) };
        let mut bytes = Vec::new();
        for (_, piece) in blob.pieces() {
            match piece {
                Piece::Hole(length) => {
                    let mut zeros = io::Read::take(io::repeat(0), *length);
                    io::copy(&mut zeros, sink).map_err(refused)?;
                }
                Piece::Stored(chunk) => {
                    self.read(chunk, &mut bytes)?;
                    sink.write_all(&bytes).map_err(refused)?;
                }
            }
        }
        Ok(())
    }

    /// A pack of the checkpoint.
    pub(super) fn file(&self, pack: PackId) -> Option<&File> {
        self.packs.get(&pack).map(|pack| &pack.file)
    }

    /// Checks what can be told without reading.
    fn find(&self, chunk: &ChunkRef) -> Result<&Pack, Damage> {
        chunk.check().map_err(|reason| reference(chunk, reason))?;
        let pack = self.packs.get(&chunk.pack);
        let pack = pack.ok_or_else(|| reference(chunk, "the checkpoint has no such pack"))?;
        let more = if self.key.is_some() { OVERHEAD as u64 } else { 0 };
        let end = chunk.offset.checked_add(u64::from(chunk.stored) + more);
        if end.is_none_or(|end| end > pack.length) {
            return Err(reference(chunk, "it lies beyond the pack's end"));
        }
        Ok(pack)
    }
}

impl Scratch {
    /// Reads an encrypted chunk. The cipher's tag, under a key that belongs to this content alone, tells that it is the one.
    fn decrypt(
        &mut self,
        pack: &Pack,
        chunk: &ChunkRef,
        key: &ImageKey,
        bytes: &mut [u8],
    ) -> Result<(), Damage> {
        let Self { decoder, frame } = self;
        frame.resize(chunk.stored as usize + OVERHEAD, 0);
        read_at(pack, chunk, frame)?;
        let opened = key.open_chunk(&chunk.hash, chunk.encoding, frame);
        let opened =
            opened.ok_or_else(|| damaged(chunk, "it can't be decrypted: it is damaged"))?;
        match chunk.encoding {
            Encoding::Plain => bytes.copy_from_slice(opened),
            Encoding::Zstd => decode(decoder, chunk, opened, bytes)?,
        }
        Ok(())
    }
}

fn decode(
    decoder: &mut Option<Decoder>,
    chunk: &ChunkRef,
    frame: &[u8],
    bytes: &mut [u8],
) -> Result<(), Damage> {
    let decoder = match decoder {
        Some(decoder) => decoder,
        none => none.insert(Decoder::new().map_err(|_| damaged(chunk, "no memory to unpack it"))?),
    };
    decoder.decode(frame, bytes).map_err(|reason| damaged(chunk, reason))
}

fn read_at(pack: &Pack, chunk: &ChunkRef, bytes: &mut [u8]) -> Result<(), Damage> {
    pack.file.read_exact_at(bytes, chunk.offset).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(chunk, "the pack was cut while it was read"),
        _ => damaged(chunk, "the disk can't read it"),
    })
}

fn damaged(chunk: &ChunkRef, reason: &'static str) -> Damage {
    Damage::Chunk { pack: chunk.pack, hash: chunk.hash, offset: chunk.offset, reason }
}

fn reference(chunk: &ChunkRef, reason: &str) -> Damage {
    Damage::Reference { pack: chunk.pack, hash: chunk.hash, reason: reason.to_owned() }
}
