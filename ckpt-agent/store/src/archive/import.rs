//! Reading an archive from outside.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::super::disk::{Disk, RealDisk};
use super::super::error::{Damage, StoreError};
use super::super::hash::ChunkHash;
use super::super::layout::{Layout, MARK};
use super::super::mark::{CommitMark, MAX_MARK};
use super::super::verify::verify;
use super::{ARCHIVE_VERSION, About, ArchiveError, STRIDE, Watch};
use super::{MAX_ABOUT, MAX_INDEXES, MAX_PACKS, members};

/// The largest window of compression that is accepted, as a power of two: 128 MiB.
const MAX_WINDOW: u32 = 27;
/// Zeros that may follow the archive's end: tar fills its last record up to 10 KiB.
const MAX_TAIL: u64 = 64 << 10;
/// tar's unit.
const BLOCK: u64 = 512;
/// What is left out of a file where it is all zeros.
const HOLE: usize = 4096;

type Source<R> = tar::Archive<zstd::Decoder<'static, BufReader<R>>>;

/// An archive whose first member has been read.
pub struct Import<R: Read> {
    archive: Source<R>,
    about: About,
    /// Bytes up to the next member.
    padding: u64,
}

impl<R: Read> Import<R> {
    /// Reads what the archive is about. Nothing of it is to be believed before
    /// [`unpack`](Self::unpack) has returned.
    ///
    /// # Errors
    /// Where it is no archive of ours, or a newer one.
    pub fn open(from: R) -> Result<Self, ArchiveError> {
        let mut decoder = zstd::Decoder::new(from).map_err(ArchiveError::Read)?.single_frame();
        decoder.window_log_max(MAX_WINDOW).map_err(ArchiveError::Read)?;
        let mut archive = tar::Archive::new(decoder);
        let about = {
            let foreign = |error: io::Error| match error.kind() {
                io::ErrorKind::UnexpectedEof => ArchiveError::Short,
                _ => ArchiveError::Foreign(error.to_string()),
            };
            let mut entries = archive.entries().map_err(foreign)?.raw(true);
            let first = entries.next().transpose().map_err(foreign)?;
            let mut first = first.ok_or_else(|| ArchiveError::Foreign("it is empty".to_owned()))?;
            let due = members::about();
            if !is(&first, &due) {
                let complaint = format!("it does not begin with {due}");
                return Err(ArchiveError::Foreign(complaint));
            }
            small(&mut first, MAX_ABOUT)?
        };
        let length = about.len() as u64;
        let bad = |error: serde_json::Error| ArchiveError::About(error.to_string());
        let value: serde_json::Value = protocol::json::read(&about).map_err(bad)?;
        match value.get("format").and_then(serde_json::Value::as_u64) {
            Some(found) if found > ARCHIVE_VERSION => return Err(ArchiveError::Newer { found }),
            _ => {}
        }
        let about = protocol::json::of_value(&value).map_err(bad)?;
        Ok(Self { archive, about, padding: length.next_multiple_of(BLOCK) - length })
    }

    /// What the archive is about.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Unpacks it into the empty folder `job_dir`, which becomes a job's folder but for its description,
    /// and checks every hash. After an error the folder is to be removed.
    ///
    /// # Errors
    /// The first thing that is wrong with the archive, or what the kernel refuses.
    pub fn unpack(
        self,
        job_dir: &Path,
        free: u64,
        watch: Watch<'_>,
    ) -> Result<CommitMark, ArchiveError> {
        let Self { archive, about, padding } = self;
        let layout = Layout::new(job_dir);
        let folders = [layout.checkpoints(), layout.checkpoint(about.checkpoint), layout.packs()];
        for folder in &folders {
            RealDisk.make_dir(folder).map_err(refused("create", folder))?;
        }
        // A second listing of the entries would begin at the archive's start: what is left is read as an
        // archive of its own.
        let mut decoder = archive.into_inner();
        io::copy(&mut (&mut decoder).take(padding), &mut io::sink()).map_err(read)?;
        let mut archive = tar::Archive::new(&mut decoder);
        let mut members = Members {
            entries: archive.entries().map_err(read)?.raw(true),
            seen: HashSet::from([members::about().into_bytes()]),
            watch: &mut *watch,
        };
        let text = members.due(&members::mark(), None, |entry, _| small(entry, MAX_MARK as u64))?;
        let mark = CommitMark::decode(about.checkpoint, &text)?;
        check_size(&mark, &about, free, job_dir)?;
        for file in &mark.files {
            let path = layout.checkpoint(mark.checkpoint).join(&file.name);
            let (name, length) = (members::index(&file.name), Some(file.length));
            let hash = members.due(&name, length, |entry, watch| save(entry, &path, watch))?;
            if hash != file.hash {
                let (number, name) = (mark.checkpoint, file.name.clone());
                let reason = "its hash does not match".to_owned();
                return Err(Damage::Index { number, name, reason }.into());
            }
        }
        for pack in &mark.packs {
            let path = layout.pack(pack.id);
            let (name, length) = (members::pack(pack.id), Some(pack.length));
            members.due(&name, length, |entry, watch| save(entry, &path, watch))?;
        }
        if let Some(part) = about.log {
            let path = job_dir.join("log");
            let (name, length) = (members::log(), Some(part.length));
            let hash = members.due(&name, length, |entry, watch| save(entry, &path, watch))?;
            if hash != part.hash {
                let (name, reason) = (members::log(), "is damaged: its hash does not match".into());
                return Err(ArchiveError::Member { name, reason });
            }
        }
        members.end()?;
        expect_end(decoder)?;
        let path = layout.checkpoint(mark.checkpoint).join(MARK);
        let mut file = RealDisk.create(&path).map_err(refused("create", &path))?;
        file.append(&[&text]).and_then(|()| file.sync()).map_err(refused("write", &path))?;
        let mut interrupted = Ok(());
        verify(job_dir, mark.checkpoint, |_| {
            if interrupted.is_ok() {
                interrupted = watch(0);
            }
        })?;
        interrupted?;
        for folder in folders.iter().rev() {
            RealDisk.sync_dir(folder).map_err(refused("write", folder))?;
        }
        Ok(mark)
    }
}

fn check_size(
    mark: &CommitMark,
    about: &About,
    free: u64,
    folder: &Path,
) -> Result<(), ArchiveError> {
    let sum = |lengths: &mut dyn Iterator<Item = u64>| lengths.fold(0, u64::saturating_add);
    let indexes = sum(&mut mark.files.iter().map(|file| file.length));
    if mark.packs.len() > MAX_PACKS || indexes > MAX_INDEXES {
        let reason = "names more files than any checkpoint has".to_owned();
        return Err(ArchiveError::Member { name: members::mark(), reason });
    }
    let packs = sum(&mut mark.packs.iter().map(|pack| pack.length));
    let log = about.log.map_or(0, |log| log.length);
    let needed = indexes.saturating_add(packs).saturating_add(log);
    match needed > free {
        true => Err(ArchiveError::Room { needed, free, folder: folder.to_owned() }),
        false => Ok(()),
    }
}

/// The members that are left.
struct Members<'a, 'b, R: Read> {
    entries: tar::Entries<'a, R>,
    seen: HashSet<Vec<u8>>,
    watch: Watch<'b>,
}

impl<R: Read> Members<'_, '_, R> {
    /// Hands the next member to `take`, if it is the plain file `name` of that length.
    fn due<T>(
        &mut self,
        name: &str,
        length: Option<u64>,
        take: impl FnOnce(&mut tar::Entry<'_, R>, Watch<'_>) -> Result<T, ArchiveError>,
    ) -> Result<T, ArchiveError> {
        let next = self.entries.next().transpose().map_err(read)?;
        let mut entry = next.ok_or_else(|| {
            let reason = "is missing".to_owned();
            ArchiveError::Member { name: name.to_owned(), reason }
        })?;
        if !is(&entry, name) {
            return Err(self.wrong(&entry, name));
        }
        if let Some(length) = length.filter(|length| *length != entry.size()) {
            let reason = format!("has {} bytes instead of {length}", entry.size());
            return Err(ArchiveError::Member { name: name.to_owned(), reason });
        }
        self.seen.insert(name.as_bytes().to_vec());
        take(&mut entry, &mut *self.watch)
    }

    fn end(&mut self) -> Result<(), ArchiveError> {
        match self.entries.next().transpose().map_err(read)? {
            None => Ok(()),
            Some(entry) => Err(self.wrong(&entry, "")),
        }
    }

    fn wrong(&self, entry: &tar::Entry<'_, R>, due: &str) -> ArchiveError {
        let name = entry.path_bytes();
        let seen = self.seen.contains(&*name);
        let reason = members::complaint(entry.header().entry_type(), &name, due, seen);
        ArchiveError::Member { name: members::shown(&name), reason }
    }
}

fn is<R: Read>(entry: &tar::Entry<'_, R>, name: &str) -> bool {
    entry.header().entry_type() == tar::EntryType::Regular
        && *entry.path_bytes() == *name.as_bytes()
}

/// All bytes of a short member.
fn small<R: Read>(entry: &mut tar::Entry<'_, R>, limit: u64) -> Result<Vec<u8>, ArchiveError> {
    if entry.size() > limit {
        let reason = format!("is longer than {limit} bytes");
        return Err(ArchiveError::Member { name: members::shown(&entry.path_bytes()), reason });
    }
    let length = entry.size();
    let mut bytes = Vec::new();
    entry.take(limit).read_to_end(&mut bytes).map_err(read)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(ArchiveError::Short) }
}

/// Writes a member into a file, with holes for pages of zeros, and makes it durable; its hash.
fn save<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    path: &Path,
    watch: Watch<'_>,
) -> Result<ChunkHash, ArchiveError> {
    let file = create(path).map_err(refused("create", path))?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; STRIDE];
    let mut position = 0;
    while position < entry.size() {
        let most = buffer.len().min((entry.size() - position) as usize);
        fill(entry, &mut buffer[..most])?;
        hasher.update(&buffer[..most]);
        for (index, part) in buffer[..most].chunks(HOLE).enumerate() {
            if part.iter().any(|byte| *byte != 0) {
                let at = position + (index * HOLE) as u64;
                file.write_all_at(part, at).map_err(refused("write", path))?;
            }
        }
        position += most as u64;
        watch(most as u64)?;
    }
    file.set_len(position).and_then(|()| file.sync_all()).map_err(refused("write", path))?;
    Ok(hasher.finalize().into())
}

fn fill(from: &mut impl Read, into: &mut [u8]) -> Result<(), ArchiveError> {
    from.read_exact(into).map_err(read)
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Nothing but zeros may be left, and nothing may follow the compressed archive.
fn expect_end<R: Read>(mut decoder: zstd::Decoder<'_, BufReader<R>>) -> Result<(), ArchiveError> {
    let foreign = || ArchiveError::Foreign("something follows its end".to_owned());
    let mut tail = Vec::new();
    (&mut decoder).take(MAX_TAIL + 1).read_to_end(&mut tail).map_err(read)?;
    if tail.len() as u64 > MAX_TAIL || tail.iter().any(|byte| *byte != 0) {
        return Err(foreign());
    }
    let mut rest = decoder.finish();
    match rest.read(&mut [0]).map_err(read)? {
        0 => Ok(()),
        _ => Err(foreign()),
    }
}

fn read(error: io::Error) -> ArchiveError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ArchiveError::Short,
        _ => ArchiveError::Read(error),
    }
}

fn refused(action: &'static str, path: &Path) -> impl Fn(io::Error) -> ArchiveError {
    let path = path.to_owned();
    move |error| StoreError::io(action, &path, &error).into()
}
