//! Reading an archive from outside.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::BuildHasher;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use protocol::log_times;
use serde::Deserialize;

use super::super::disk::{Disk, RealDisk};
use super::super::error::Damage;
use super::super::hash::ChunkHash;
use super::super::layout::{Layout, MARK};
use super::super::mark::{CommitMark, MAX_MARK};
use super::super::references::{Fault, Tally, references};
use super::super::sorted::{Order, Sorter};
use super::beside::{self, Beside};
use super::room::{Free, Room};
use super::{ALL_IMAGES, ARCHIVE_VERSION, About, ArchiveError, ONE_IMAGE, STRIDE, Watch};
use super::{MAX_ABOUT, MAX_IMAGES, foreign, inner, members, refused};

/// The largest window of compression that is accepted, as a power of two: 8 MiB, as for `zstd -19`. An export has 512 KiB.
const MAX_WINDOW: u32 = 23;
/// Zeros that may follow the archive's end: tar fills its last record up to 10 KiB.
const MAX_TAIL: u64 = 64 << 10;
/// tar's unit.
const BLOCK: u64 = 512;
/// What is left out of a file where it is all zeros.
const HOLE: usize = 4096;

type Source<R> = tar::Archive<zstd::Decoder<'static, BufReader<R>>>;

/// What every version says of itself.
#[derive(Deserialize)]
struct Form {
    format: u64,
}

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
                _ if is_altered(&error) => ArchiveError::Altered,
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
        match protocol::json::read::<Form>(&about) {
            Ok(Form { format: found }) if found > ARCHIVE_VERSION => {
                return Err(ArchiveError::Newer { found });
            }
            _ => {}
        }
        let about: About = protocol::json::read(&about).map_err(bad)?;
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
        free: Free<'_>,
        watch: Watch<'_>,
    ) -> Result<CommitMark, ArchiveError> {
        if self.about.format != ONE_IMAGE {
            return Err(ArchiveError::Kind("a job of a cluster"));
        }
        let image = self.read(&mut *watch, |members, about| {
            let mut room = Room::of(about, free, job_dir)?;
            let image = members.image(&members::only(), about.checkpoint, job_dir, &mut room)?;
            members.log(about, &job_dir.join("log"), &mut room)?;
            Ok(image)
        })?;
        image.settle(job_dir, watch)
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
        free: Free<'_>,
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
                let image = members.image(&name, about.checkpoint, &place, &mut room)?;
                members.beside(&name, about.checkpoint, &place, &mut room)?;
                marks.insert(*instance, image.settle(&place, &mut *members.watch)?);
            }
            members.log(about, &folder.join("log"), &mut room)?;
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
            seen: HashSet::new(),
            hashing: RandomState::new(),
            watch,
        };
        members.see(members::about().as_bytes());
        let taken = take(&mut members, &about)?;
        members.end()?;
        expect_end(decoder)?;
        Ok(taken)
    }
}

/// An image that has been read, but for its mark.
struct Image {
    mark: CommitMark,
    /// The mark as it came.
    text: Vec<u8>,
    /// The chunks that its index files refer to.
    referred: Sorter,
}

impl Image {
    /// Writes its mark, checks every hash, and makes it durable.
    fn settle(self, job_dir: &Path, watch: Watch<'_>) -> Result<CommitMark, ArchiveError> {
        let Self { mark, text, referred } = self;
        let layout = Layout::new(job_dir);
        let path = layout.checkpoint(mark.checkpoint).join(MARK);
        let mut file = RealDisk.create(&path).map_err(refused("create", &path))?;
        file.append(&[&text]).and_then(|()| file.sync()).map_err(refused("write", &path))?;
        drop(text);
        foreign::check(job_dir, &mark, referred, watch)?;
        for folder in folders(&layout, mark.checkpoint).iter().rev() {
            RealDisk.sync_dir(folder).map_err(refused("write", folder))?;
        }
        Ok(mark)
    }
}

fn folders(layout: &Layout, checkpoint: u64) -> [PathBuf; 3] {
    [layout.checkpoints(), layout.checkpoint(checkpoint), layout.packs()]
}

/// The members that are left.
struct Members<'a, 'b, R: Read> {
    entries: tar::Entries<'a, R>,
    /// Hashes of the names that have been there: for the reason of a refusal.
    seen: HashSet<u64>,
    hashing: RandomState,
    watch: Watch<'b>,
}

impl<R: Read> Members<'_, '_, R> {
    fn see(&mut self, name: &[u8]) {
        self.seen.insert(self.hashing.hash_one(name));
    }

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
        self.see(name.as_bytes());
        take(&mut entry, &mut *self.watch)
    }

    /// Reads an image into `job_dir`, but for its mark.
    fn image(
        &mut self,
        name: &str,
        checkpoint: u64,
        job_dir: &Path,
        room: &mut Room<'_>,
    ) -> Result<Image, ArchiveError> {
        let layout = Layout::new(job_dir);
        for folder in &folders(&layout, checkpoint) {
            RealDisk.make_dir(folder).map_err(refused("create", folder))?;
        }
        let text =
            self.due(&members::mark(name), None, |entry, _| small(entry, MAX_MARK as u64))?;
        let mark = CommitMark::decode(checkpoint, &text)?;
        room.take_image(&mark, name)?;
        let mut referred = Sorter::new(job_dir, Order::Place);
        for file in &mark.files {
            let path = layout.checkpoint(checkpoint).join(&file.name);
            let (member, length) = (members::index(name, &file.name), Some(file.length));
            let hash = self.due(&member, length, |entry, watch| {
                save_index(entry, &member, &path, room, &mut referred, watch)
            })?;
            if hash != file.hash {
                let (number, name) = (checkpoint, file.name.clone());
                let reason = "its hash does not match".to_owned();
                return Err(Damage::Index { number, name, reason }.into());
            }
        }
        for pack in &mark.packs {
            let path = layout.pack(pack.id);
            let (member, length) = (members::pack(name, pack.id), Some(pack.length));
            self.due(&member, length, |entry, watch| save(entry, &path, room, watch))?;
        }
        Ok(Image { mark, text, referred })
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
            room.take_file(file.length)?;
            let Some(path) = file.place(folder, checkpoint) else { continue };
            let (member, length) = (members::piece(name, &file.name), Some(file.length));
            let found =
                self.due(&member, length, |entry, watch| save(entry, &path, room, watch))?;
            if file.hash().is_some_and(|hash| hash != found.to_string()) {
                let reason = "is damaged: its hash does not match".to_owned();
                return Err(ArchiveError::Member { name: member, reason });
            }
        }
        RealDisk.sync_dir(&files).map_err(refused("write", &files))
    }

    /// Reads the job's output, where it has any.
    fn log(&mut self, about: &About, path: &Path, room: &mut Room<'_>) -> Result<(), ArchiveError> {
        let Some(part) = &about.log else { return Ok(()) };
        let (name, length) = (members::log(), Some(part.length));
        let hash = self.due(&name, length, |entry, watch| save(entry, path, room, watch))?;
        match hash == part.hash {
            true => {
                let path = path.with_file_name(log_times::NAME);
                log_times::write(&path, &part.times, part.length).map_err(refused("write", &path))
            }
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
        let seen = self.seen.contains(&self.hashing.hash_one(&*name));
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
    room: &mut Room<'_>,
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
                room.wrote(part.len())?;
            }
        }
        position += most as u64;
        watch(most as u64)?;
    }
    file.set_len(position).and_then(|()| file.sync_all()).map_err(refused("write", path))?;
    Ok(hasher.finalize().into())
}

/// Writes an index file as it is read, and makes it durable; its hash. What is no index ends where that is seen.
fn save_index<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    member: &str,
    path: &Path,
    room: &mut Room<'_>,
    referred: &mut Sorter,
    watch: Watch<'_>,
) -> Result<ChunkHash, ArchiveError> {
    let length = entry.size();
    let file = create(path).map_err(refused("create", path))?;
    let mut saved = Tally::of(Saved { from: entry, left: length, file: &file, path, room, watch });
    let mut kept = Ok(());
    let scanned = references(&mut saved, |chunk| {
        if kept.is_ok() {
            kept = referred.add(&chunk);
        }
    });
    let (_, hash) = saved.so_far();
    match scanned {
        Err(Fault::Read(error)) => return Err(inner(error, read)),
        Err(Fault::Text(reason)) => {
            return Err(ArchiveError::Member {
                name: member.to_owned(),
                reason: format!("is no index file: {reason}"),
            });
        }
        Ok(()) => {}
    }
    kept.and_then(|()| file.sync_all()).map_err(refused("write", path))?;
    Ok(hash)
}

/// Writes what is read.
struct Saved<'a, 'b, R> {
    from: R,
    left: u64,
    file: &'a File,
    path: &'a Path,
    room: &'a mut Room<'b>,
    watch: Watch<'a>,
}

impl<R: Read> Read for Saved<'_, '_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        if count == 0 && self.left > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left = self.left.saturating_sub(count as u64);
        let mut file = self.file;
        let written = file.write_all(&into[..count]).map_err(refused("write", self.path));
        let room = written.and_then(|()| self.room.wrote(count));
        room.and_then(|()| Ok((self.watch)(count as u64)?)).map_err(io::Error::other)?;
        Ok(count)
    }
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

/// Whether the one who decrypts has found that, however often the readers between have wrapped it.
fn is_altered(error: &io::Error) -> bool {
    let mut cause = error.get_ref().map(|cause| cause as &(dyn std::error::Error + 'static));
    while let Some(found) = cause {
        if let Some(ArchiveError::Altered) = found.downcast_ref() {
            return true;
        }
        // An error of reading has as its source that of what it wraps, and not this itself.
        cause = match found.downcast_ref::<io::Error>().map(io::Error::get_ref) {
            Some(inner) => inner.map(|inner| inner as _),
            None => found.source(),
        };
    }
    false
}

fn read(error: io::Error) -> ArchiveError {
    match error.kind() {
        _ if is_altered(&error) => ArchiveError::Altered,
        io::ErrorKind::UnexpectedEof => ArchiveError::Short,
        _ => ArchiveError::Read(error),
    }
}
