//! Writing a pack: a tar archive whose members are groups of chunks. `FORMAT.md` draws it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::chunk::{ChunkRef, Encoding, PackId};
use super::disk::DiskFile;
use super::error::StoreError;
use super::hash::ChunkHash;

/// Members' data, and plain chunks inside of them, begin at multiples of this.
const ALIGNMENT: u64 = 4096;
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
    refs: HashMap<ChunkHash, ChunkRef>,
}

/// A member to be.
struct Group {
    encoding: Encoding,
    chunks: Vec<Pending>,
    length: u64,
}

struct Pending {
    hash: ChunkHash,
    bytes: Vec<u8>,
    length: u32,
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
}

impl PackWriter {
    pub(super) fn new(id: PackId, path: &Path, file: Box<dyn DiskFile>) -> Self {
        Self {
            id,
            path: path.to_path_buf(),
            file,
            position: 0,
            groups_written: 0,
            plain: Group::new(Encoding::Plain),
            zstd: Group::new(Encoding::Zstd),
            refs: HashMap::new(),
        }
    }

    /// Takes a chunk of `length` bytes, stored as `bytes`. Returns the buffers of chunks that
    /// have been written meanwhile.
    pub(super) fn add(
        &mut self,
        hash: ChunkHash,
        encoding: Encoding,
        bytes: Vec<u8>,
        length: u32,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let full = self.group(encoding).length_with(bytes.len()) > MAX_GROUP as u64;
        let written = if full { self.write_group(encoding)? } else { Vec::new() };
        self.group(encoding).push(hash, bytes, length);
        Ok(written)
    }

    /// Writes what is left and the archive's end.
    pub(super) fn finish(mut self) -> Result<FinishedPack, StoreError> {
        self.write_group(Encoding::Plain)?;
        self.write_group(Encoding::Zstd)?;
        self.append(&[&ZEROS[..2 * BLOCK as usize]])?;
        let Self { id, path, file, position: length, refs, .. } = self;
        Ok(FinishedPack { id, path, file, length, refs })
    }

    fn group(&mut self, encoding: Encoding) -> &mut Group {
        match encoding {
            Encoding::Plain => &mut self.plain,
            Encoding::Zstd => &mut self.zstd,
        }
    }

    fn write_group(&mut self, encoding: Encoding) -> Result<Vec<Vec<u8>>, StoreError> {
        let group = std::mem::replace(self.group(encoding), Group::new(encoding));
        if group.chunks.is_empty() {
            return Ok(Vec::new());
        }
        let name = format!("v1/{:06}.{}", self.groups_written, encoding.suffix());
        let head = self.head(&name, group.length);
        let data_start = self.position + head.len() as u64;
        let mut parts: Vec<&[u8]> = Vec::with_capacity(2 * group.chunks.len() + 2);
        parts.push(&head);
        let mut end = 0;
        for chunk in &group.chunks {
            parts.push(zeros(chunk.offset - end));
            parts.push(&chunk.bytes);
            end = chunk.offset + chunk.bytes.len() as u64;
        }
        parts.push(zeros(end.next_multiple_of(BLOCK) - end));
        self.append(&parts)?;
        self.groups_written += 1;
        for chunk in &group.chunks {
            let place = ChunkRef {
                hash: chunk.hash,
                pack: self.id,
                offset: data_start + chunk.offset,
                stored: chunk.bytes.len() as u32,
                length: chunk.length,
                encoding,
            };
            self.refs.insert(chunk.hash, place);
        }
        Ok(group.chunks.into_iter().map(|chunk| chunk.bytes).collect())
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
    fn new(encoding: Encoding) -> Self {
        Self { encoding, chunks: Vec::new(), length: 0 }
    }

    fn next_offset(&self) -> u64 {
        match self.encoding {
            Encoding::Plain => self.length.next_multiple_of(ALIGNMENT),
            // Frames follow each other, so that zstd unpacks the member as a whole.
            Encoding::Zstd => self.length,
        }
    }

    fn length_with(&self, stored: usize) -> u64 {
        self.next_offset() + stored as u64
    }

    fn push(&mut self, hash: ChunkHash, bytes: Vec<u8>, length: u32) {
        let offset = self.next_offset();
        self.length = offset + bytes.len() as u64;
        self.chunks.push(Pending { hash, bytes, length, offset });
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
