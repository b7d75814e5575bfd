//! Writing an archive.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::vec::IntoIter;

use protocol::cluster::image_key::JobKey;
use protocol::log_times::{self, Piece, Times};
use serde::Serialize;

use super::super::checkpoint::Checkpoint;
use super::super::chunk::{ChunkRef, PackId};
use super::super::error::Damage;
use super::super::key_file::key_of;
use super::super::mark::PackFile;
use super::super::pack::PADDING;
use super::super::reader::ChunkReader;
use super::{About, ArchiveError, Interrupted, LogPart, ONE_IMAGE, STRIDE, Watch};
use super::{inner, members};

/// Level of the archive's compression: what is in packs has been compressed as far as it pays.
const LEVEL: i32 = 1;

/// A committed checkpoint that is about to become an archive. It holds the packs open, so that a
/// collection meanwhile does not disturb.
#[derive(Debug)]
pub struct Export {
    image: ImageExport,
    /// Of an image that is encrypted.
    key: Option<JobKey>,
    log: Option<(File, LogPart)>,
}

/// One image of an archive.
#[derive(Debug)]
pub(super) struct ImageExport {
    checkpoint: Checkpoint,
    reader: ChunkReader,
    chunks: BTreeMap<PackId, Vec<ChunkRef>>,
    indexes: Vec<Vec<u8>>,
}

impl Export {
    /// Opens checkpoint `number` of the job kept in `job_dir`, to go with the first `log_length` bytes of
    /// the job's output.
    ///
    /// # Errors
    /// What is wrong with the checkpoint, or that the output can't be read.
    pub fn open(
        job_dir: &Path,
        number: u64,
        log: Option<(File, u64)>,
    ) -> Result<Self, ArchiveError> {
        let image = ImageExport::open(job_dir, number)?;
        // Only one that can be read is of use elsewhere.
        image.checkpoint.reader()?;
        let key = match image.checkpoint.mark().sealed {
            true => key_of(job_dir)?.map(|key| key.job().clone()),
            false => None,
        };
        let log = match log {
            Some((file, length)) => {
                let times = log_times::read(&job_dir.join(log_times::NAME), length);
                let times = times.pieces().to_vec();
                Some(measure(file, length, times).map_err(ArchiveError::Read)?)
            }
            None => None,
        };
        Ok(Self { image, key, log: log.filter(|(_, log)| log.length > 0) })
    }

    /// The bytes that [`write`](Self::write) is going to tell of.
    pub fn bytes(&self) -> u64 {
        self.image.bytes() + self.log.as_ref().map_or(0, |(_, log)| log.length)
    }

    /// Writes the archive. Every chunk is checked by its hash on the way.
    ///
    /// # Errors
    /// Damage found, or what `out` refuses.
    pub fn write<W: Write>(
        mut self,
        job: &impl Serialize,
        out: W,
        watch: Watch<'_>,
    ) -> Result<W, ArchiveError> {
        let about = About {
            format: ONE_IMAGE,
            checkpoint: self.image.number(),
            log: self.log.as_ref().map(|(_, log)| log.clone()),
            job: protocol::json::to_value(job).map_err(json)?,
            key: self.key.take(),
            instances: Vec::new(),
        };
        let mut tar = Tar::begin(out, &about, watch)?;
        self.image.append(&mut tar, &members::only())?;
        if let Some((file, part)) = self.log.take() {
            tar.log(&file, &part)?;
        }
        tar.finish()
    }
}

pub(super) fn json(error: serde_json::Error) -> ArchiveError {
    ArchiveError::About(error.to_string())
}

impl ImageExport {
    pub(super) fn open(job_dir: &Path, number: u64) -> Result<Self, ArchiveError> {
        let checkpoint = Checkpoint::open(job_dir, number)?;
        let reader = checkpoint.stored_reader()?;
        let mut found: HashSet<ChunkRef> = HashSet::new();
        let mut indexes = Vec::new();
        for file in &checkpoint.mark().files {
            let text = checkpoint.read_index(file)?;
            checkpoint.references(file, |chunk| {
                found.insert(chunk);
            })?;
            indexes.push(text);
        }
        let mut chunks: BTreeMap<PackId, Vec<ChunkRef>> = BTreeMap::new();
        for chunk in found {
            chunks.entry(chunk.pack).or_default().push(chunk);
        }
        for list in chunks.values_mut() {
            list.sort_unstable_by_key(|chunk| chunk.offset);
        }
        Ok(Self { checkpoint, reader, chunks, indexes })
    }

    fn number(&self) -> u64 {
        self.checkpoint.mark().checkpoint
    }

    fn bytes(&self) -> u64 {
        let mark = self.checkpoint.mark();
        let packs: u64 = mark.packs.iter().map(|pack| pack.length).sum();
        let indexes: u64 = mark.files.iter().map(|file| file.length).sum();
        packs + indexes
    }

    /// Mark, index files and packs. Every chunk is checked by its hash on the way.
    pub(super) fn append<W: Write>(
        &self,
        tar: &mut Tar<'_, W>,
        folder: &str,
    ) -> Result<(), ArchiveError> {
        let mark = self.checkpoint.mark().encode().map_err(json)?;
        tar.append(&members::mark(folder), mark.len() as u64, mark.as_slice())?;
        for (file, text) in self.checkpoint.mark().files.iter().zip(&self.indexes) {
            tar.append(&members::index(folder, &file.name), file.length, text.as_slice())?;
        }
        for pack in &self.checkpoint.mark().packs {
            tar.append(&members::pack(folder, pack.id), pack.length, self.pack(pack)?)?;
        }
        Ok(())
    }

    /// The bytes of a pack, with zeros for the chunks that this checkpoint does not need.
    fn pack(&self, pack: &PackFile) -> Result<PackBytes<'_>, ArchiveError> {
        let damaged = |error: io::Error| Damage::Pack { pack: pack.id, reason: error.to_string() };
        let file = self.reader.file(pack.id).ok_or(Damage::PackMissing { pack: pack.id })?;
        let mut wanted = self.chunks.get(&pack.id).into_iter().flatten().peekable();
        let mut stretches = Vec::new();
        let mut end = 0;
        let mut archive = tar::Archive::new(At { file, position: 0 });
        for entry in archive.entries_with_seek().map_err(damaged)?.raw(true) {
            let entry = entry.map_err(damaged)?;
            if *entry.path_bytes() == *PADDING.as_bytes() {
                continue;
            }
            let start = entry.raw_file_position();
            stretches.push(Stretch::Copy(end, start));
            end = start;
            let member_end = start.saturating_add(entry.size());
            while let Some(chunk) = wanted.next_if(|chunk| chunk.offset < member_end) {
                if chunk.offset < end {
                    let reason = "it overlaps with another chunk".to_owned();
                    let (pack, hash) = (chunk.pack, chunk.hash);
                    return Err(Damage::Reference { pack, hash, reason }.into());
                }
                stretches.push(Stretch::Zeros(end, chunk.offset));
                stretches.push(Stretch::Chunk(chunk));
                end = chunk.offset + u64::from(chunk.stored);
            }
            if end < member_end {
                stretches.push(Stretch::Zeros(end, member_end));
                end = member_end;
            }
        }
        stretches.push(Stretch::Copy(end, pack.length));
        Ok(PackBytes {
            reader: &self.reader,
            file,
            stretches: stretches.into_iter(),
            current: Stretch::Copy(0, 0),
            scratch: Vec::new(),
        })
    }
}

/// The hash of the first `length` bytes of a file, or of as many as it has.
pub(super) fn measure(file: File, length: u64, times: Vec<Piece>) -> io::Result<(File, LogPart)> {
    // Those of another machine can be in more pieces than there were.
    let times = Times::of(times, length);
    let mut hasher = blake3::Hasher::new();
    let mut from = At { file: &file, position: 0 }.take(length);
    let length = io::copy(&mut from, &mut hasher)?;
    Ok((file, LogPart { length, hash: hasher.finalize().into(), times: times.pieces().to_vec() }))
}

/// The tar archive, and who is told of its progress.
pub(super) struct Tar<'a, W: Write> {
    builder: tar::Builder<zstd::Encoder<'static, W>>,
    watch: Watch<'a>,
}

impl<'a, W: Write> Tar<'a, W> {
    /// Begins an archive with what it is about.
    pub(super) fn begin(out: W, about: &About, watch: Watch<'a>) -> Result<Self, ArchiveError> {
        let mut compressor = zstd::Encoder::new(out, LEVEL).map_err(ArchiveError::Write)?;
        compressor.include_checksum(true).map_err(ArchiveError::Write)?;
        let mut tar = Self { builder: tar::Builder::new(compressor), watch };
        let about = serde_json::to_vec_pretty(about).map_err(json)?;
        tar.append(&members::about(), about.len() as u64, about.as_slice())?;
        Ok(tar)
    }

    /// The job's output, which is the last member.
    pub(super) fn log(&mut self, file: &File, part: &LogPart) -> Result<(), ArchiveError> {
        let mut hasher = blake3::Hasher::new();
        let from = Hashing { inner: At { file, position: 0 }, hasher: &mut hasher };
        self.append(&members::log(), part.length, from.take(part.length))?;
        match part.hash == hasher.finalize().into() {
            true => Ok(()),
            false => Err(ArchiveError::Changed("the job's log".to_owned())),
        }
    }

    pub(super) fn finish(self) -> Result<W, ArchiveError> {
        let done = self.builder.into_inner().and_then(zstd::Encoder::finish);
        done.map_err(ArchiveError::Write)
    }

    pub(super) fn append(
        &mut self,
        name: &str,
        length: u64,
        from: impl Read,
    ) -> Result<(), ArchiveError> {
        let header = members::header(name, length).map_err(ArchiveError::Write)?;
        let mut watched = Watched { from, watch: self.watch, length: 0 };
        let appended = self.builder.append(&header, &mut watched);
        appended.map_err(|error| inner(error, ArchiveError::Write))?;
        match watched.length == length {
            true => Ok(()),
            false => Err(ArchiveError::Changed(name.to_owned())),
        }
    }
}

/// Tells of what passes.
struct Watched<'a, 'b, R> {
    from: R,
    watch: &'a mut (dyn FnMut(u64) -> Result<(), Interrupted> + 'b),
    length: u64,
}

impl<R: Read> Read for Watched<'_, '_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        self.length += count as u64;
        (self.watch)(count as u64).map_err(|stop| io::Error::other(ArchiveError::from(stop)))?;
        Ok(count)
    }
}

/// A file read from a position of its own.
struct At<'a> {
    file: &'a File,
    position: u64,
}

impl Read for At<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(into, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl io::Seek for At<'_> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let position = match to {
            io::SeekFrom::Start(position) => Some(position),
            io::SeekFrom::Current(by) => self.position.checked_add_signed(by),
            io::SeekFrom::End(by) => self.file.metadata()?.len().checked_add_signed(by),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

/// Hashes what passes.
struct Hashing<'a, R> {
    inner: R,
    hasher: &'a mut blake3::Hasher,
}

impl<R: Read> Read for Hashing<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.hasher.update(&into[..count]);
        Ok(count)
    }
}

/// A stretch of a pack, from and to a position.
#[derive(Debug)]
enum Stretch<'a> {
    /// As it is.
    Copy(u64, u64),
    /// Zeros instead of what is there.
    Zeros(u64, u64),
    /// A chunk that is to be checked.
    Chunk(&'a ChunkRef),
}

/// A pack's bytes, stretch by stretch.
struct PackBytes<'a> {
    reader: &'a ChunkReader,
    file: &'a File,
    stretches: IntoIter<Stretch<'a>>,
    current: Stretch<'a>,
    scratch: Vec<u8>,
}

impl Read for PackBytes<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match &mut self.current {
                Stretch::Chunk(chunk) => {
                    let read = self.reader.read(chunk, &mut self.scratch);
                    read.map_err(|damage| io::Error::other(ArchiveError::from(damage)))?;
                    let end = chunk.offset + u64::from(chunk.stored);
                    self.current = Stretch::Copy(chunk.offset, end);
                }
                Stretch::Copy(start, end) if *start < *end => {
                    let most = into.len().min(STRIDE).min((*end - *start) as usize);
                    let count = self.file.read_at(&mut into[..most], *start)?;
                    *start += count as u64;
                    return Ok(count);
                }
                Stretch::Zeros(start, end) if *start < *end => {
                    let count = into.len().min(STRIDE).min((*end - *start) as usize);
                    into[..count].fill(0);
                    *start += count as u64;
                    return Ok(count);
                }
                Stretch::Copy(..) | Stretch::Zeros(..) => match self.stretches.next() {
                    Some(next) => self.current = next,
                    None => return Ok(0),
                },
            }
        }
    }
}
