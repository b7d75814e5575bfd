//! Files that an image only names, and that may be on this machine alone: they travel beside it.
//!
//! ```text
//! INSTANCE/files/HASH             contents, by BLAKE3
//! INSTANCE/checkpoints/N/FILES    which belong to the image: a line with the hash of the rest, and JSON
//! ```
//!
//! Where the job has a key, contents and list are encrypted. HASH is that of what is stored, and the list tells hashes and
//! lengths in clear: so whoever holds an image without the key can check it.

mod lists;

use ckpt_engine::sys::standing::acts_for_all;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, fchmod, futimens};
use nix::unistd::{Gid, Uid, fchown, linkat};
use protocol::agent::CheckpointNumber;

use super::error::CopyError;
use crate::driver::user::User;
use ckpt_engine::job_init::OwnFile as Misplaced;
use ckpt_engine::sys::file_user::FileUser;
use ckpt_engine::sys::stat::modified_ns_of;
use ckpt_store::ImageKey;
use lists::{OwnFile, Sealed, list_of, newest_list, read_contents, read_list};

pub use lists::{LONGEST_LIST, checkpoints};

/// Name of the list in a checkpoint's folder.
pub const LIST: &str = "FILES";
/// Folder of the contents in an instance's.
pub const FOLDER: &str = "files";
/// The largest file that travels, bytes.
const LARGEST: u64 = 256 * 1024 * 1024;
/// Bytes that are copied at a time.
const PIECE: usize = 1024 * 1024;

/// A file that an image names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// Its path.
    pub path: String,
    /// Size at the checkpoint, bytes.
    pub size: u64,
    /// When it was last modified, ns since 1970.
    pub modified_ns: i64,
    /// Whether the job has it open for writing: what is behind its size came after the checkpoint.
    pub written: bool,
}

/// Why a file does not travel.
#[derive(Debug, thiserror::Error)]
enum Left {
    /// The kernel refused to read it, or to keep its content.
    #[error(transparent)]
    Kernel(#[from] io::Error),
    /// What is there is not what the checkpoint saw.
    #[error("it has changed since the checkpoint")]
    Changed,
    /// It is too large.
    #[error("it has more than {} MiB", LARGEST >> 20)]
    Large,
    /// It need not.
    #[error("it is ckptd itself, which every node has")]
    Ckptd,
}

/// Whether a path is that of a content.
pub fn is_content(path: &str) -> bool {
    let name = path.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix('/'));
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    name.is_some_and(|name| name.len() == 64 && name.bytes().all(hex))
}

/// Puts the files of an image beside it, as the job's user. What can't travel comes back, a line each.
///
/// # Errors
/// Where the disk takes no more.
pub fn stash(
    folder: &Path,
    checkpoint: CheckpointNumber,
    named: &BTreeSet<Named>,
    user: Option<&User>,
) -> Result<Vec<String>, CopyError> {
    let before = newest_list(folder, checkpoint);
    let job_key = ckpt_store::key_of(folder)?;
    let key = job_key.as_ref().map(ImageKey::for_new_image).transpose()?.flatten();
    let content_key = job_key.as_ref().filter(|_| key.is_some());
    prune(folder);
    let store = folder.join(FOLDER);
    make_folder(&store).map_err(CopyError::file("create", &store))?;
    let (mut files, mut left) = (Vec::<OwnFile>::new(), Vec::new());
    for file in named {
        if files.iter().any(|known| known.path == file.path) {
            continue;
        }
        match keep_one(&store, file, &before, user, content_key) {
            Ok(kept) => files.push(kept),
            Err(reason) => left.push(format!("{} is not in the image: {reason}", file.path)),
        }
    }
    let json = list_of(files, checkpoint, key.as_ref())?;
    let write = || -> io::Result<()> {
        File::open(&store)?.sync_all()?;
        let hash = blake3::hash(&json).to_hex();
        let folder = folder.join("checkpoints").join(checkpoint.to_string());
        let draft = folder.join(".FILES.draft");
        let mut file =
            File::options().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(&[hash.as_bytes(), b"\n", &json].concat())?;
        file.sync_all()?;
        fs::rename(&draft, folder.join(LIST))?;
        File::open(folder)?.sync_all()
    };
    write().map_err(CopyError::files("write the list of the job's files"))?;
    Ok(left)
}

fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn keep_one(
    store: &Path,
    named: &Named,
    before: &[OwnFile],
    user: Option<&User>,
    key: Option<&ImageKey>,
) -> Result<OwnFile, Left> {
    let known = before.iter().find(|known| known.path == named.path);
    let same = |known: &&OwnFile| {
        known.size == named.size
            && known.modified_ns == named.modified_ns
            && store.join(&known.hash).exists()
    };
    let path = named.path.clone();
    let opened = as_user(user, move || {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        File::options().read(true).custom_flags(flags.bits()).open(path)
    });
    let file = match opened {
        Ok(file) => file,
        // It was here at a checkpoint before, and the job has it still.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let known = known.filter(same).ok_or(Left::Kernel(error))?;
            return match key {
                // What was kept in clear is to be so no more.
                Some(_) if known.sealed.is_none() => {
                    let content = File::open(store.join(&known.hash))?;
                    let (hash, sealed) = take_in(store, content, known.size, key)?;
                    Ok(OwnFile { hash, sealed, ..known.clone() })
                }
                _ => Ok(known.clone()),
            };
        }
        Err(error) => return Err(error.into()),
    };
    let found = file.metadata()?;
    let modified_ns = modified_ns_of(&found);
    let is_it = match named.written {
        true => found.len() >= named.size,
        false => found.len() == named.size && modified_ns == named.modified_ns,
    };
    if !found.is_file() || !is_it {
        return Err(Left::Changed);
    }
    if named.size > LARGEST {
        return Err(Left::Large);
    }
    let own_program = fs::metadata("/proc/self/exe");
    if own_program.is_ok_and(|own| own.dev() == found.dev() && own.ino() == found.ino()) {
        return Err(Left::Ckptd);
    }
    let unchanged = |known: &&OwnFile| {
        same(known)
            && (known.device, known.inode) == (found.dev(), found.ino())
            && known.sealed.is_some() == key.is_some()
    };
    let (hash, sealed) = match known.filter(unchanged).filter(|_| modified_ns == named.modified_ns)
    {
        Some(known) => (known.hash.clone(), known.sealed.clone()),
        None => take_in(store, file, named.size, key)?,
    };
    Ok(OwnFile {
        path: named.path.clone(),
        hash,
        size: named.size,
        modified_ns: named.modified_ns,
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        device: found.dev(),
        inode: found.ino(),
        sealed,
    })
}

/// Copies so many bytes into the store; the hash of what is stored.
fn take_in(
    store: &Path,
    file: File,
    size: u64,
    key: Option<&ImageKey>,
) -> io::Result<(String, Option<Sealed>)> {
    let draft = store.join(".draft");
    let to = File::options().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    let (hash, length, sealed) = match key {
        None => {
            let (hash, length) = copy(file.take(size), &to)?;
            (hash, length, None)
        }
        Some(key) => match encrypt(&file, size, &to, key) {
            Ok((hash, sealed)) => (hash, size, Some(sealed)),
            Err(error) => {
                // Encrypted with a key that is that of another content, if this one has changed.
                fs::remove_file(&draft)?;
                return Err(error);
            }
        },
    };
    if length != size {
        return Err(io::Error::other("it became shorter"));
    }
    let place = store.join(&hash);
    if place.exists() || from_sibling(store, &hash) {
        fs::remove_file(&draft)?;
    } else {
        to.sync_all()?;
        fs::rename(&draft, place)?;
    }
    Ok((hash, sealed))
}

/// Encrypts so many bytes of a file; the hash of what is stored.
fn encrypt(mut file: &File, size: u64, to: &File, key: &ImageKey) -> io::Result<(String, Sealed)> {
    let name = key.content_name(file.take(size))?;
    file.rewind()?;
    let mut hashed = Hashed::new(to);
    key.seal_content(&name, file.take(size), &mut hashed)?;
    let (hash, stored) = hashed.told();
    if stored != ImageKey::sealed_length(size) {
        return Err(io::Error::other("it became shorter"));
    }
    Ok((hash, Sealed { name, stored }))
}

/// Hashes and counts what is written.
struct Hashed<'a> {
    to: &'a File,
    hasher: blake3::Hasher,
    length: u64,
}

impl<'a> Hashed<'a> {
    fn new(to: &'a File) -> Self {
        Self { to, hasher: blake3::Hasher::new(), length: 0 }
    }

    /// The hash and the length of all that was written.
    fn told(self) -> (String, u64) {
        (self.hasher.finalize().to_hex().to_string(), self.length)
    }
}

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.to.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.length += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Copies everything; its hash and length.
fn copy(mut from: impl Read, to: &File) -> io::Result<(String, u64)> {
    let mut hashed = Hashed::new(to);
    let mut buffer = vec![0; PIECE];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(hashed.told()),
            read => hashed.write_all(&buffer[..read])?,
        }
    }
}

/// Another instance of the job may have the same content: a link costs nothing. Whether it has.
fn from_sibling(store: &Path, hash: &str) -> bool {
    let Some(instances) = store.parent().and_then(Path::parent) else { return false };
    let Ok(listing) = fs::read_dir(instances) else { return false };
    let places = listing.flatten().map(|entry| entry.path().join(FOLDER).join(hash));
    let mut others = places.filter(|place| place.is_file());
    others.any(|place| fs::hard_link(place, store.join(hash)).is_ok())
}

/// Whether a content is here, or was in another instance of the job.
pub fn is_here(folder: &Path, path: &str, length: u64) -> bool {
    let place = folder.join(path);
    let has = |place: &Path| {
        fs::symlink_metadata(place).is_ok_and(|found| found.is_file() && found.len() == length)
    };
    // A path that has no name, or none in UTF-8, is not that of a content.
    let Some(hash) = place.file_name().and_then(|name| name.to_str()) else { return false };
    has(&place) || (from_sibling(&folder.join(FOLDER), hash) && has(&place))
}

/// The list of an image and the contents that it needs, with lengths; none of an image without a list.
///
/// # Errors
/// See [`CopyError`].
pub fn list(folder: &Path, checkpoint: CheckpointNumber) -> Result<Vec<(String, u64)>, CopyError> {
    let Some(contents) = read_contents(folder, checkpoint)? else { return Ok(Vec::new()) };
    let path = format!("checkpoints/{checkpoint}/{LIST}");
    let found = fs::metadata(folder.join(&path)).map_err(CopyError::file("read", &path))?;
    let contents: BTreeSet<(String, u64)> = contents
        .into_iter()
        .map(|content| (format!("{FOLDER}/{}", content.hash), content.size))
        .collect();
    Ok(contents.into_iter().chain([(path, found.len())]).collect())
}

/// Checks that a file is what the name says under which it is to be kept.
///
/// # Errors
/// It is another one, or can't be read.
pub fn must_be_content(file: &File, path: &str) -> Result<(), CopyError> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file).map_err(CopyError::file("read", path))?;
    match path.ends_with(hasher.finalize().to_hex().as_str()) {
        true => Ok(()),
        false => Err(CopyError::Content(path.to_owned())),
    }
}

/// Checks that the list in `folder` is whole and all it names is there, or else beneath it.
///
/// # Errors
/// See [`CopyError`].
pub fn verify(
    folder: &Path,
    beneath: &Path,
    checkpoint: CheckpointNumber,
) -> Result<(), CopyError> {
    for (path, length) in list(folder, checkpoint)? {
        let there = |folder: &Path| {
            fs::metadata(folder.join(&path)).is_ok_and(|found| found.len() == length)
        };
        if !there(folder) && !there(beneath) {
            return Err(CopyError::Missing(path));
        }
    }
    Ok(())
}

/// Removes the contents that no image here needs. Nothing may be written there meanwhile.
pub fn prune(folder: &Path) {
    let mut needed = BTreeSet::new();
    for number in checkpoints(folder) {
        match read_contents(folder, number) {
            Ok(files) => needed.extend(files.into_iter().flatten().map(|file| file.hash)),
            Err(reason) => return tracing::warn!("the job's files are not collected: {reason}"),
        }
    }
    for entry in fs::read_dir(folder.join(FOLDER)).into_iter().flatten().flatten() {
        if !entry.file_name().to_str().is_some_and(|name| needed.contains(name)) {
            // What stays is removed with the instance.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Files that [`place`] would put in place.
///
/// # Errors
/// See [`CopyError`].
pub fn misplaced(folder: &Path, checkpoint: CheckpointNumber) -> Result<Vec<Misplaced>, CopyError> {
    let mut files = read_list(folder, checkpoint)?.unwrap_or_default();
    files.retain(|file| fs::symlink_metadata(&file.path).is_err());
    let found = files.into_iter().map(|file| Misplaced {
        path: file.path.into(),
        size: file.size,
        modified_ns: file.modified_ns,
        mode: file.mode,
    });
    Ok(found.collect())
}

/// Puts files where the image expects them and nothing is, as the job's user. What does not work is only
/// told: a restore that misses a file says so itself.
pub fn place(folder: &Path, checkpoint: CheckpointNumber, user: Option<&User>) {
    let files = match read_list(folder, checkpoint) {
        Ok(files) => files.unwrap_or_default(),
        Err(reason) => return tracing::warn!("the job's files are not put in place: {reason}"),
    };
    let key = match ckpt_store::key_of(folder) {
        Ok(key) => key,
        Err(reason) => return tracing::warn!("the job's files are not put in place: {reason}"),
    };
    for file in files {
        if fs::symlink_metadata(&file.path).is_ok() {
            continue;
        }
        let (path, key) = (file.path.clone(), key.as_ref());
        let done = File::open(folder.join(FOLDER).join(&file.hash))
            .and_then(|content| as_user(user, move || put(content, &file, key)));
        match done {
            Ok(()) => tracing::info!("{path} was put in place for the job"),
            Err(error) => tracing::warn!("failed to put {path} in place for the job: {error}"),
        }
    }
}

fn put(content: File, file: &OwnFile, key: Option<&ImageKey>) -> io::Result<()> {
    let path = PathBuf::from(&file.path);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    fs::create_dir_all(parent)?;
    let parent = File::open(parent)?;
    // It has no name until all of it is there.
    let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let made = nix::fcntl::openat(&parent, ".", flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let made = File::from(made);
    match (&file.sealed, key) {
        (None, _) => {
            let (hash, _) = copy(content, &made)?;
            if hash != file.hash {
                return Err(io::Error::other("its copy is damaged"));
            }
        }
        (Some(sealed), Some(key)) => key.open_content(&sealed.name, content, &made)?,
        (Some(_), None) => {
            return Err(io::Error::other("it is encrypted, and there is no key"));
        }
    }
    if acts_for_all() {
        // For anybody else but root its owner is whoever makes it; so is that.
        let _ = fchown(&made, Some(Uid::from_raw(file.uid)), Some(Gid::from_raw(file.gid)));
    }
    // Without the bits that would lend its owner's rights.
    fchmod(&made, Mode::from_bits_truncate((file.mode & 0o1777) as libc::mode_t))?;
    let time = ckpt_engine::sys::stat::time(file.modified_ns);
    futimens(&made, &time, &time)?;
    made.sync_all()?;
    let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&made));
    match linkat(nix::fcntl::AT_FDCWD, own.as_str(), &parent, name, AtFlags::AT_SYMLINK_FOLLOW) {
        // Another part of the job was faster.
        Err(nix::errno::Errno::EEXIST) => Ok(()),
        other => Ok(other?),
    }
}

/// Does something with the rights of that user and its groups to files, in a thread of its own: the kernel keeps them
/// for each thread.
///
/// # Errors
/// What it returns, and where the kernel does not let this process be that user.
pub fn as_user<T: Send>(
    user: Option<&User>,
    what: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let Some(user) = user else { return what() };
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let _acting = FileUser::begin(user.uid, user.gid, &user.groups)
                .map_err(|error| io::Error::new(io::ErrorKind::PermissionDenied, error))?;
            what()
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread failed")))
    })
}

#[cfg(test)]
mod tests {
    use super::lists::list_path;
    use super::*;
    use protocol::cluster::image_key::{Encryption, JobKey};

    fn named(path: &Path, written: bool) -> Named {
        let found = fs::metadata(path).unwrap();
        let modified_ns = found.mtime() * 1_000_000_000 + found.mtime_nsec();
        Named { path: path.display().to_string(), size: found.len(), modified_ns, written }
    }

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for number in [1, 2] {
            fs::create_dir_all(folder.path().join(format!("checkpoints/{number}"))).unwrap();
        }
        folder
    }

    #[test]
    fn what_was_lost_is_put_back_and_nothing_is_overwritten() {
        let (folder, disk) = (folder(), tempfile::tempdir().unwrap());
        let (program, log) = (disk.path().join("a/program"), disk.path().join("log"));
        fs::create_dir(disk.path().join("a")).unwrap();
        fs::write(&program, b"code").unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o750)).unwrap();
        fs::write(&log, b"before").unwrap();
        let all: BTreeSet<Named> = [named(&program, false), named(&log, true)].into();
        fs::write(&log, b"before and after").unwrap();
        assert_eq!(stash(folder.path(), 1, &all, None).unwrap(), Vec::<String>::new());
        // Gone from the disk, but known.
        fs::remove_dir_all(disk.path().join("a")).unwrap();
        assert_eq!(stash(folder.path(), 2, &all, None).unwrap(), Vec::<String>::new());
        fs::write(&log, b"another").unwrap();
        place(folder.path(), 2, None);
        assert_eq!(fs::read(&program).unwrap(), b"code");
        assert_eq!(fs::metadata(&program).unwrap().mode() & 0o7777, 0o750);
        assert!(all.contains(&named(&program, false)), "time and size are those of before");
        assert_eq!(fs::read(&log).unwrap(), b"another");
        fs::remove_file(&log).unwrap();
        place(folder.path(), 2, None);
        assert_eq!(fs::read(&log).unwrap(), b"before");
    }

    #[test]
    fn what_changed_or_is_too_large_is_told() {
        let (folder, disk) = (folder(), tempfile::tempdir().unwrap());
        let (changed, large) = (disk.path().join("changed"), disk.path().join("large"));
        fs::write(&changed, b"one").unwrap();
        File::create(&large).unwrap().set_len(LARGEST + 1).unwrap();
        let gone = Named { path: "/nowhere/x".to_owned(), ..named(&changed, false) };
        let all: BTreeSet<Named> = [named(&changed, false), named(&large, false), gone].into();
        fs::write(&changed, b"three").unwrap();
        let left = stash(folder.path(), 1, &all, None).unwrap();
        assert_eq!(left.len(), 3, "{left:?}");
        assert!(left[0].starts_with("/nowhere/x is not in the image: "), "{left:?}");
    }

    #[test]
    fn contents_go_with_the_last_image_that_needs_them_and_damage_is_seen() {
        let (folder, disk) = (folder(), tempfile::tempdir().unwrap());
        let path = disk.path().join("data");
        fs::write(&path, b"data").unwrap();
        stash(folder.path(), 1, &[named(&path, false)].into(), None).unwrap();
        let (content, length) = list(folder.path(), 1).unwrap().remove(0);
        assert!(is_content(&content) && length == 4);
        verify(folder.path(), folder.path(), 1).unwrap();
        let is_right =
            || must_be_content(&File::open(folder.path().join(&content)).unwrap(), &content);
        is_right().unwrap();
        prune(folder.path());
        assert!(is_here(folder.path(), &content, 4));
        fs::write(folder.path().join(&content), b"dada").unwrap();
        assert_eq!(is_right().unwrap_err().to_string(), format!("{content} has another content"));
        assert!(list(folder.path(), 2).unwrap().is_empty());
        fs::remove_file(folder.path().join("checkpoints/1/FILES")).unwrap();
        fs::write(folder.path().join(&content), b"data").unwrap();
        prune(folder.path());
        assert!(!is_here(folder.path(), &content, 4));
    }

    #[test]
    fn with_a_key_files_are_encrypted_checked_without_it_and_put_back_with_it() {
        let (folder, disk) = (folder(), tempfile::tempdir().unwrap());
        let key = JobKey::new([5; 32]);
        let path = disk.path().join("data");
        fs::write(&path, b"the content of a file").unwrap();
        let all: BTreeSet<Named> = [named(&path, false)].into();
        // One that was kept in clear before is not so any more, even if it is gone by now.
        assert!(stash(folder.path(), 1, &all, None).unwrap().is_empty());
        fs::remove_file(&path).unwrap();
        ckpt_store::keep_key(folder.path(), &key, Encryption::Shared).unwrap();
        assert!(stash(folder.path(), 2, &all, None).unwrap().is_empty());
        ckpt_store::forget_key(folder.path()).unwrap();
        let (content, length) = list(folder.path(), 2).unwrap().remove(0);
        assert_eq!(length, ImageKey::sealed_length(21));
        let stored = fs::read(folder.path().join(&content)).unwrap();
        assert_eq!(stored.len() as u64, length);
        assert!(!stored.windows(7).any(|window| window == b"content"));
        let listed = fs::read(list_path(folder.path(), 2)).unwrap();
        let name = path.to_str().unwrap().as_bytes();
        assert!(!listed.windows(name.len()).any(|window| window == name));
        verify(folder.path(), folder.path(), 2).unwrap();
        must_be_content(&File::open(folder.path().join(&content)).unwrap(), &content).unwrap();
        prune(folder.path());
        assert!(is_here(folder.path(), &content, length));
        let refused = misplaced(folder.path(), 2).unwrap_err();
        assert!(refused.to_string().contains("has not got its job's key"), "{refused}");
        place(folder.path(), 2, None);
        assert!(!path.exists());
        ckpt_store::keep_key(folder.path(), &key, Encryption::Shared).unwrap();
        place(folder.path(), 2, None);
        assert_eq!(fs::read(&path).unwrap(), b"the content of a file");
    }

    #[test]
    fn only_hashes_are_contents() {
        assert!(is_content(&format!("files/{}", "0a".repeat(32))));
        for bad in ["files/", "files/../x", "packs/0a.tar", "files/0A"] {
            assert!(!is_content(bad), "{bad}");
        }
        assert!(!is_content(&format!("files/{}", "0A".repeat(32))));
    }

    #[test]
    fn a_user_has_its_own_groups_and_none_of_the_agent() {
        const GROUP: u32 = 4242;
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let folder = folder();
        let path = folder.path().join("secret");
        fs::write(&path, "of the group").unwrap();
        std::os::unix::fs::chown(&path, Some(0), Some(GROUP)).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let user = |groups: &[u32]| User {
            name: "somebody".into(),
            uid: 12345,
            gid: 12345,
            groups: groups.to_vec(),
            home: "/".into(),
            shell: "/bin/sh".into(),
        };
        // An agent that is in that group.
        let _agent = FileUser::begin(0, 0, &[GROUP]).unwrap();
        let read = |user: &User| as_user(Some(user), || fs::read_to_string(&path));
        let refused = read(&user(&[])).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(read(&user(&[GROUP])).unwrap(), "of the group");
    }
}
