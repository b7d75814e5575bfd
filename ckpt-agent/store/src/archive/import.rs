//! Reading an archive from outside.

use std::collections::{BTreeMap, HashSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::super::disk::{Disk, RealDisk};
use super::super::error::{Damage, StoreError};
use super::super::hash::ChunkHash;
use super::super::layout::{Layout, MARK};
use super::super::mark::{CommitMark, MAX_MARK};
use super::super::verify::verify;
use super::beside::{self, Beside};
use super::{ALL_IMAGES, ARCHIVE_VERSION, About, ArchiveError, ONE_IMAGE, STRIDE, Watch};
use super::{MAX_ABOUT, MAX_IMAGES, MAX_INDEXES, MAX_PACKS, members};

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
        let about: About = protocol::json::of_value(&value).map_err(bad)?;
        let rising = about.instances.windows(2).all(|pair| pair[0] < pair[1]);
        let fits = match about.format {
            ONE_IMAGE => about.instances.is_empty(),
            _ => !about.instances.is_empty() && about.instances.len() <= MAX_IMAGES && rising,
        };
        if !fits {
            let reason = "the instances that it names are not those of its format".to_owned();
            return Err(ArchiveError::About(reason));
        }
        Ok(Self { archive, about, padding: length.next_multiple_of(BLOCK) - length })
    }

    /// What the archive is about.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Unpacks its one image into the empty folder `job_dir`, which becomes a job's folder but for its
    /// description, and checks every hash. After an error the folder is to be removed.
    ///
    /// # Errors
    /// The first thing that is wrong with the archive, or what the kernel refuses.
    pub fn unpack(
        self,
        job_dir: &Path,
        free: u64,
        watch: Watch<'_>,
    ) -> Result<CommitMark, ArchiveError> {
        if self.about.format != ONE_IMAGE {
            return Err(ArchiveError::Kind("a job of a cluster"));
        }
        let (mark, text) = self.read(&mut *watch, |members, about| {
            let mut room = Room::of(about, free, job_dir)?;
            let image = members.image(&members::only(), about.checkpoint, job_dir, &mut room)?;
            members.log(about, &job_dir.join("log"))?;
            Ok(image)
        })?;
        settle(job_dir, &mark, &text, watch)?;
        Ok(mark)
    }

    /// Unpacks the images of all instances, each into a folder of `folder` as `place` names it, and the job's
    /// output into `folder/log`. As [`unpack`](Self::unpack) otherwise.
    ///
    /// # Errors
    /// As [`unpack`](Self::unpack).
    pub fn unpack_all(
        self,
        folder: &Path,
        place: impl Fn(u32) -> PathBuf,
        free: u64,
        watch: Watch<'_>,
    ) -> Result<BTreeMap<u32, CommitMark>, ArchiveError> {
        if self.about.format != ALL_IMAGES {
            return Err(ArchiveError::Kind("a job of one machine"));
        }
        self.read(watch, |members, about| {
            let mut room = Room::of(about, free, folder)?;
            let mut marks = BTreeMap::new();
            for instance in &about.instances {
                let (name, place) = (members::of_instance(*instance), place(*instance));
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(&place)
                    .map_err(refused("create", &place))?;
                let (mark, text) = members.image(&name, about.checkpoint, &place, &mut room)?;
                members.beside(&name, about.checkpoint, &place, &mut room)?;
                settle(&place, &mark, &text, &mut *members.watch)?;
                marks.insert(*instance, mark);
            }
            members.log(about, &folder.join("log"))?;
            Ok(marks)
        })
    }

    /// Reads all members that follow, to the end of the archive and of what it came from.
    fn read<T>(
        self,
        watch: Watch<'_>,
        take: impl FnOnce(
            &mut Members<'_, '_, &mut zstd::Decoder<'static, BufReader<R>>>,
            &About,
        ) -> Result<T, ArchiveError>,
    ) -> Result<T, ArchiveError> {
        let Self { archive, about, padding } = self;
        // A second listing of the entries would begin at the archive's start: what is left is read as an
        // archive of its own.
        let mut decoder = archive.into_inner();
        io::copy(&mut (&mut decoder).take(padding), &mut io::sink()).map_err(read)?;
        let mut archive = tar::Archive::new(&mut decoder);
        let mut members = Members {
            entries: archive.entries().map_err(read)?.raw(true),
            seen: HashSet::from([members::about().into_bytes()]),
            watch,
        };
        let taken = take(&mut members, &about)?;
        members.end()?;
        expect_end(decoder)?;
        Ok(taken)
    }
}

/// Writes the mark of an image that has been read, checks every hash, and makes it durable.
fn settle(
    job_dir: &Path,
    mark: &CommitMark,
    text: &[u8],
    watch: Watch<'_>,
) -> Result<(), ArchiveError> {
    let layout = Layout::new(job_dir);
    let path = layout.checkpoint(mark.checkpoint).join(MARK);
    let mut file = RealDisk.create(&path).map_err(refused("create", &path))?;
    file.append(&[text]).and_then(|()| file.sync()).map_err(refused("write", &path))?;
    let mut interrupted = Ok(());
    verify(job_dir, mark.checkpoint, |_| {
        if interrupted.is_ok() {
            interrupted = watch(0);
        }
    })?;
    interrupted?;
    for folder in folders(&layout, mark.checkpoint).iter().rev() {
        RealDisk.sync_dir(folder).map_err(refused("write", folder))?;
    }
    Ok(())
}

fn folders(layout: &Layout, checkpoint: u64) -> [PathBuf; 3] {
    [layout.checkpoints(), layout.checkpoint(checkpoint), layout.packs()]
}

/// What an archive may still take.
struct Room<'a> {
    folder: &'a Path,
    free: u64,
    needed: u64,
    indexes: u64,
    packs: usize,
}

impl<'a> Room<'a> {
    fn of(about: &About, free: u64, folder: &'a Path) -> Result<Self, ArchiveError> {
        let mut room = Self { folder, free, needed: 0, indexes: 0, packs: 0 };
        room.take(about.log.map_or(0, |log| log.length))?;
        Ok(room)
    }

    fn take(&mut self, bytes: u64) -> Result<(), ArchiveError> {
        self.needed = self.needed.saturating_add(bytes);
        let Self { needed, free, .. } = *self;
        match needed > free {
            true => Err(ArchiveError::Room { needed, free, folder: self.folder.to_owned() }),
            false => Ok(()),
        }
    }

    fn take_image(&mut self, mark: &CommitMark, name: &str) -> Result<(), ArchiveError> {
        let sum = |lengths: &mut dyn Iterator<Item = u64>| lengths.fold(0, u64::saturating_add);
        let indexes = sum(&mut mark.files.iter().map(|file| file.length));
        self.indexes = self.indexes.saturating_add(indexes);
        self.packs = self.packs.saturating_add(mark.packs.len());
        if self.packs > MAX_PACKS || self.indexes > MAX_INDEXES {
            let reason = "names more files than any checkpoint has".to_owned();
            return Err(ArchiveError::Member { name: members::mark(name), reason });
        }
        let packs = sum(&mut mark.packs.iter().map(|pack| pack.length));
        self.take(indexes.saturating_add(packs))
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

    /// Reads an image into `job_dir`, but for its mark.
    fn image(
        &mut self,
        name: &str,
        checkpoint: u64,
        job_dir: &Path,
        room: &mut Room<'_>,
    ) -> Result<(CommitMark, Vec<u8>), ArchiveError> {
        let layout = Layout::new(job_dir);
        for folder in &folders(&layout, checkpoint) {
            RealDisk.make_dir(folder).map_err(refused("create", folder))?;
        }
        let text =
            self.due(&members::mark(name), None, |entry, _| small(entry, MAX_MARK as u64))?;
        let mark = CommitMark::decode(checkpoint, &text)?;
        room.take_image(&mark, name)?;
        for file in &mark.files {
            let path = layout.checkpoint(checkpoint).join(&file.name);
            let (member, length) = (members::index(name, &file.name), Some(file.length));
            let hash = self.due(&member, length, |entry, watch| save(entry, &path, watch))?;
            if hash != file.hash {
                let (number, name) = (checkpoint, file.name.clone());
                let reason = "its hash does not match".to_owned();
                return Err(Damage::Index { number, name, reason }.into());
            }
        }
        for pack in &mark.packs {
            let path = layout.pack(pack.id);
            let (member, length) = (members::pack(name, pack.id), Some(pack.length));
            self.due(&member, length, |entry, watch| save(entry, &path, watch))?;
        }
        Ok((mark, text))
    }

    /// Reads what lies beside an image.
    fn beside(
        &mut self,
        name: &str,
        checkpoint: u64,
        folder: &Path,
        room: &mut Room<'_>,
    ) -> Result<(), ArchiveError> {
        let member = members::beside(name);
        let text = self.due(&member, None, |entry, _| small(entry, MAX_ABOUT))?;
        let wrong = |reason: String| ArchiveError::Member { name: member.clone(), reason };
        let list: Vec<Beside> =
            protocol::json::read(&text).map_err(|error| wrong(error.to_string()))?;
        if let Some(complaint) = beside::complaint(&list) {
            return Err(wrong(complaint.to_owned()));
        }
        let files = folder.join("files");
        RealDisk.make_dir(&files).map_err(refused("create", &files))?;
        for file in &list {
            room.take(file.length)?;
            let Some(path) = file.place(folder, checkpoint) else { continue };
            let (member, length) = (members::piece(name, &file.name), Some(file.length));
            let found = self.due(&member, length, |entry, watch| save(entry, &path, watch))?;
            if file.hash().is_some_and(|hash| hash != found.to_string()) {
                let reason = "is damaged: its hash does not match".to_owned();
                return Err(ArchiveError::Member { name: member, reason });
            }
        }
        RealDisk.sync_dir(&files).map_err(refused("write", &files))
    }

    /// Reads the job's output, where it has any.
    fn log(&mut self, about: &About, path: &Path) -> Result<(), ArchiveError> {
        let Some(part) = about.log else { return Ok(()) };
        let (name, length) = (members::log(), Some(part.length));
        let hash = self.due(&name, length, |entry, watch| save(entry, path, watch))?;
        match hash == part.hash {
            true => Ok(()),
            false => {
                let reason = "is damaged: its hash does not match".to_owned();
                Err(ArchiveError::Member { name, reason })
            }
        }
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
