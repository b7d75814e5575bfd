//! Writing a pack: a tar archive whose members are groups of chunks. `FORMAT.md` draws it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::chunk::{ChunkRef, Encoding, PackId};
use super::disk::DiskFile;
use super::error::StoreError;
use super::hash::ChunkHash;
use super::known::StoredHashes;
use super::sealing::Trailer;

/// Members' data, and plain chunks inside of them, begin at multiples of this.
const ALIGNMENT: u64 = 4096;
/// Encrypted chunks begin at multiples of this: what is not aligned, the kernel copies more slowly.
const LINE: u64 = 64;
/// tar's unit, and the length of its headers.
const BLOCK: u64 = 512;
/// A group is closed before it passes this length. One chunk is at most half of it.
pub(super) const MAX_GROUP: usize = 8 << 20;
/// The name of a member that only moves the next one to its place.
pub(super) const PADDING: &str = "padding";

static ZEROS: [u8; 2 * ALIGNMENT as usize] = [0; 2 * ALIGNMENT as usize];

/// A pack that is being written.
pub(super) struct PackWriter {
    id: PackId,
    path: PathBuf,
    file: Box<dyn DiskFile>,
    position: u64,
    groups_written: u64,
    plain: Group,
    zstd: Group,
    sealed: Group,
    refs: HashMap<ChunkHash, ChunkRef>,
    stored: StoredHashes,
}

/// What a group consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Zstd,
    Sealed,
}

impl Kind {
    /// How such a member's name ends.
    fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Zstd => "zst",
            Self::Sealed => "sealed",
        }
    }
}

/// A chunk on its way into a pack.
#[derive(Debug)]
pub(super) struct Packed {
    /// By which it is referred to.
    pub(super) hash: ChunkHash,
    /// Where `bytes` are encrypted: what follows them, and the hash of both.
    pub(super) sealed: Option<(Trailer, ChunkHash)>,
    pub(super) encoding: Encoding,
    /// What is stored.
    pub(super) bytes: Vec<u8>,
    /// The length of its content.
    pub(super) length: u32,
}

impl Packed {
    fn kind(&self) -> Kind {
        match (self.sealed, self.encoding) {
            (Some(_), _) => Kind::Sealed,
            (None, Encoding::Plain) => Kind::Plain,
            (None, Encoding::Zstd) => Kind::Zstd,
        }
    }

    fn trailer(&self) -> &[u8] {
        self.sealed.as_ref().map_or(&[], |(trailer, _)| trailer)
    }

    /// Bytes that it takes in the pack.
    fn stored_length(&self) -> usize {
        self.bytes.len() + self.trailer().len()
    }
}

/// A member to be.
struct Group {
    kind: Kind,
    chunks: Vec<Pending>,
    length: u64,
}

struct Pending {
    chunk: Packed,
    /// From the start of the member's data.
    offset: u64,
}

/// A pack that will not change any more.
pub(super) struct FinishedPack {
    pub(super) id: PackId,
    pub(super) path: PathBuf,
    /// Not synced yet.
    pub(super) file: Box<dyn DiskFile>,
    pub(super) length: u64,
    pub(super) refs: HashMap<ChunkHash, ChunkRef>,
    /// Of encrypted chunks, what is stored.
    pub(super) stored: StoredHashes,
}

impl PackWriter {
    pub(super) fn new(id: PackId, path: &Path, file: Box<dyn DiskFile>) -> Self {
        Self {
            id,
            path: path.to_path_buf(),
            file,
            position: 0,
            groups_written: 0,
            plain: Group::new(Kind::Plain),
            zstd: Group::new(Kind::Zstd),
            sealed: Group::new(Kind::Sealed),
            refs: HashMap::new(),
            stored: HashMap::new(),
        }
    }

    /// Takes a chunk. Returns those that have been written meanwhile.
    pub(super) fn add(&mut self, chunk: Packed) -> Result<Vec<Packed>, StoreError> {
        let kind = chunk.kind();
        let full = self.group(kind).length_with(chunk.stored_length()) > MAX_GROUP as u64;
        let written = if full { self.write_group(kind)? } else { Vec::new() };
        self.group(kind).push(chunk);
        Ok(written)
    }

    /// Writes what is left and the archive's end.
    pub(super) fn finish(mut self) -> Result<FinishedPack, StoreError> {
        for kind in [Kind::Plain, Kind::Zstd, Kind::Sealed] {
            self.write_group(kind)?;
        }
        self.append(&[&ZEROS[..2 * BLOCK as usize]])?;
        let Self { id, path, file, position: length, refs, stored, .. } = self;
        Ok(FinishedPack { id, path, file, length, refs, stored })
    }

    fn group(&mut self, kind: Kind) -> &mut Group {
        match kind {
            Kind::Plain => &mut self.plain,
            Kind::Zstd => &mut self.zstd,
            Kind::Sealed => &mut self.sealed,
        }
    }

    fn write_group(&mut self, kind: Kind) -> Result<Vec<Packed>, StoreError> {
        let group = std::mem::replace(self.group(kind), Group::new(kind));
        if group.chunks.is_empty() {
            return Ok(Vec::new());
        }
        let name = format!("v1/{:06}.{}", self.groups_written, kind.suffix());
        let head = self.head(&name, group.length);
        let data_start = self.position + head.len() as u64;
        let mut parts: Vec<&[u8]> = Vec::with_capacity(3 * group.chunks.len() + 2);
        parts.push(&head);
        let mut end = 0;
        for Pending { chunk, offset } in &group.chunks {
            parts.push(zeros(offset - end));
            parts.push(&chunk.bytes);
            parts.push(chunk.trailer());
            end = offset + chunk.stored_length() as u64;
        }
        parts.push(zeros(end.next_multiple_of(BLOCK) - end));
        self.append(&parts)?;
        self.groups_written += 1;
        for Pending { chunk, offset } in &group.chunks {
            let place = ChunkRef {
                hash: chunk.hash,
                pack: self.id,
                offset: data_start + offset,
                stored: chunk.bytes.len() as u32,
                length: chunk.length,
                encoding: chunk.encoding,
            };
            self.refs.insert(chunk.hash, place);
            if let Some((_, stored)) = chunk.sealed {
                self.stored.insert((self.id, place.offset), stored);
            }
        }
        Ok(group.chunks.into_iter().map(|pending| pending.chunk).collect())
    }

    /// The header of a member whose data is to begin aligned, with a padding member before it
    /// where needed.
    fn head(&self, name: &str, length: u64) -> Vec<u8> {
        let mut head = Vec::new();
        if (self.position + BLOCK) % ALIGNMENT != 0 {
            let data_start = (self.position + 2 * BLOCK).next_multiple_of(ALIGNMENT);
            let padding = data_start - self.position - 2 * BLOCK;
            head.extend_from_slice(header(PADDING, padding).as_bytes());
            head.extend_from_slice(zeros(padding));
        }
        head.extend_from_slice(header(name, length).as_bytes());
        head
    }

    fn append(&mut self, parts: &[&[u8]]) -> Result<(), StoreError> {
        self.file.append(parts).map_err(|error| StoreError::io("write", &self.path, &error))?;
        self.position += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        Ok(())
    }
}

impl Group {
    fn new(kind: Kind) -> Self {
        Self { kind, chunks: Vec::new(), length: 0 }
    }

    fn next_offset(&self) -> u64 {
        match self.kind {
            Kind::Plain => self.length.next_multiple_of(ALIGNMENT),
            // Frames follow each other, so that zstd unpacks the member as a whole.
            Kind::Zstd => self.length,
            Kind::Sealed => self.length.next_multiple_of(LINE),
        }
    }

    fn length_with(&self, stored: usize) -> u64 {
        self.next_offset() + stored as u64
    }

    fn push(&mut self, chunk: Packed) {
        let offset = self.next_offset();
        self.length = offset + chunk.stored_length() as u64;
        self.chunks.push(Pending { chunk, offset });
    }
}

/// Fewer zeros than one alignment.
fn zeros(count: u64) -> &'static [u8] {
    &ZEROS[..count as usize]
}

fn header(name: &str, length: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    // Our names are short; a ustar header takes 100 bytes.
    let field = &mut header.as_old_mut().name;
    field[..name.len()].copy_from_slice(name.as_bytes());
    header.set_size(length);
    header.set_mode(0o600);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_entry_type(tar::EntryType::Regular);
    header.set_cksum();
    header
}
