//! Where contents of the job's files are kept, by their hashes.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ckpt_store::ImageKey;

use super::lists::Sealed;
use super::{FOLDER, PIECE};

/// What keeps contents.
pub(super) trait Contents {
    /// Whether that content of an earlier checkpoint is there.
    fn has(&self, hash: &str) -> bool;
    /// It.
    fn open(&self, hash: &str) -> io::Result<File>;
    /// Keeps so many bytes of a file, encrypted where there is a key; the hash of what is kept.
    fn take_in(
        &mut self,
        file: File,
        size: u64,
        key: Option<&ImageKey>,
    ) -> io::Result<(String, Option<Sealed>)>;
}

/// Contents in an instance's folder.
pub(super) struct Here<'a> {
    store: &'a Path,
}

impl<'a> Here<'a> {
    pub(super) fn new(store: &'a Path) -> Self {
        Self { store }
    }
}

impl Contents for Here<'_> {
    fn has(&self, hash: &str) -> bool {
        self.store.join(hash).exists()
    }

    fn open(&self, hash: &str) -> io::Result<File> {
        File::open(self.store.join(hash))
    }

    fn take_in(
        &mut self,
        file: File,
        size: u64,
        key: Option<&ImageKey>,
    ) -> io::Result<(String, Option<Sealed>)> {
        let draft = self.store.join(".draft");
        let to =
            File::options().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        let (hash, sealed) = match write_to(&to, file, size, key) {
            // Encrypted with a key that is that of another content, if this one has changed.
            Err(error) if key.is_some() => {
                fs::remove_file(&draft)?;
                return Err(error);
            }
            written => written?,
        };
        let place = self.store.join(&hash);
        if place.exists() || from_sibling(self.store, &hash) {
            fs::remove_file(&draft)?;
        } else {
            to.sync_all()?;
            fs::rename(&draft, place)?;
        }
        Ok((hash, sealed))
    }
}

/// Copies so many bytes of a file, encrypted where there is a key; the hash of what was written.
pub(super) fn write_to(
    to: &File,
    file: File,
    size: u64,
    key: Option<&ImageKey>,
) -> io::Result<(String, Option<Sealed>)> {
    let Some(key) = key else {
        let (hash, length) = copy(file.take(size), to)?;
        return if length == size { Ok((hash, None)) } else { Err(shorter()) };
    };
    let (hash, sealed) = encrypt(&file, size, to, key)?;
    Ok((hash, Some(sealed)))
}

fn shorter() -> io::Error {
    io::Error::other("it became shorter")
}

/// Encrypts so many bytes of a file; the hash of what is stored.
fn encrypt(mut file: &File, size: u64, to: &File, key: &ImageKey) -> io::Result<(String, Sealed)> {
    let name = key.content_name(file.take(size))?;
    file.rewind()?;
    let mut hashed = Hashed::new(to);
    key.seal_content(&name, file.take(size), &mut hashed)?;
    let (hash, stored) = hashed.told();
    if stored != ImageKey::sealed_length(size) {
        return Err(shorter());
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
pub(super) fn copy(mut from: impl Read, to: &File) -> io::Result<(String, u64)> {
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
pub(super) fn from_sibling(store: &Path, hash: &str) -> bool {
    let Some(instances) = store.parent().and_then(Path::parent) else { return false };
    let Ok(listing) = fs::read_dir(instances) else { return false };
    let places = listing.flatten().map(|entry| entry.path().join(FOLDER).join(hash));
    let mut others = places.filter(|place| place.is_file());
    others.any(|place| fs::hard_link(place, store.join(hash)).is_ok())
}
