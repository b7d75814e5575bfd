//! The job's files of an image that another node keeps: each goes there at once, and here takes memory alone, one after
//! the other.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use ckpt_store::ImageKey;
use nix::sys::memfd::{MFdFlags, memfd_create};
use protocol::agent::CheckpointNumber;

use super::super::error::CopyError;
use super::contents::{Contents, write_to};
use super::lists::{Sealed, list_of, newest_list, text_of};
use super::{FOLDER, Named, keep_all};
use crate::driver::user::User;

/// A content on its way.
pub struct Content<'a> {
    /// By which path it is known.
    pub path: String,
    /// Bytes.
    pub length: u64,
    /// It, to be read from its beginning.
    pub file: &'a File,
}

/// Sends the files of an image, as [`super::stash`] keeps them here. Lines about what can't travel, and the list that is
/// to lie beside the image.
///
/// # Errors
/// Where one could not be sent.
pub fn stash_at(
    folder: &Path,
    checkpoint: CheckpointNumber,
    named: &BTreeSet<Named>,
    user: Option<&User>,
    send: &mut dyn FnMut(Content<'_>) -> Result<(), CopyError>,
) -> Result<(Vec<String>, Vec<u8>), CopyError> {
    let job_key = ckpt_store::key_of(folder)?;
    let key = job_key.as_ref().map(ImageKey::for_new_image).transpose()?.flatten();
    let content_key = job_key.as_ref().filter(|_| key.is_some());
    let before = newest_list(folder, checkpoint);
    let mut there = There { store: folder.join(FOLDER), sent: BTreeSet::new(), failed: None, send };
    let (files, left) = keep_all(&mut there, named, &before, user, content_key);
    for file in &files {
        there.send_kept(&file.content().hash);
    }
    match there.failed {
        Some(failed) => Err(failed),
        None => Ok((left, text_of(&list_of(files, checkpoint, key.as_ref())?))),
    }
}

/// See the module.
struct There<'a> {
    /// Contents of earlier checkpoints that were kept here.
    store: PathBuf,
    /// Hashes of those that have gone.
    sent: BTreeSet<String>,
    /// Why one has not.
    failed: Option<CopyError>,
    send: &'a mut dyn FnMut(Content<'_>) -> Result<(), CopyError>,
}

impl There<'_> {
    fn send_one(&mut self, hash: &str, file: &File) {
        if self.failed.is_some() || !self.sent.insert(hash.to_owned()) {
            return;
        }
        let path = format!("{FOLDER}/{hash}");
        let sent = match file.metadata() {
            Ok(found) => (self.send)(Content { path, length: found.len(), file }),
            Err(error) => Err(CopyError::file("read", path)(error)),
        };
        self.failed = sent.err();
    }

    /// One that an earlier checkpoint has left here.
    fn send_kept(&mut self, hash: &str) {
        if self.failed.is_some() || self.sent.contains(hash) {
            return;
        }
        match self.open(hash) {
            Ok(file) => self.send_one(hash, &file),
            Err(error) => self.failed = Some(CopyError::file("open", hash)(error)),
        }
    }
}

impl Contents for There<'_> {
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
        // Its hash is known only when all of it was read, and by then the file may be another.
        let held = File::from(memfd_create(c"ckptd-content", MFdFlags::MFD_CLOEXEC)?);
        let (hash, sealed) = write_to(&held, file, size, key)?;
        self.send_one(&hash, &held);
        Ok((hash, sealed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn contents_go_once_with_a_list_that_names_them_and_nothing_is_left_here() {
        let (folder, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut named = BTreeSet::new();
        for (name, text) in [("a", "same"), ("b", "same"), ("c", "other")] {
            let path = disk.path().join(name);
            std::fs::write(&path, text).unwrap();
            let found = std::fs::metadata(&path).unwrap();
            let modified_ns = found.mtime() * 1_000_000_000 + found.mtime_nsec();
            let path = path.display().to_string();
            named.insert(Named { path, size: found.len(), modified_ns, written: false });
        }
        named.insert(Named { path: "/nowhere".into(), size: 1, modified_ns: 1, written: false });
        let mut sent = BTreeMap::new();
        let mut send = |content: Content<'_>| {
            let mut bytes = vec![0; content.length as usize];
            content.file.read_exact_at(&mut bytes, 0).unwrap();
            let path = format!("{FOLDER}/{}", blake3::hash(&bytes).to_hex());
            assert_eq!(path, content.path);
            assert!(sent.insert(path, bytes).is_none(), "it came twice");
            Ok(())
        };
        let (left, list) = stash_at(folder.path(), 1, &named, None, &mut send).unwrap();
        assert!(left.len() == 1 && left[0].starts_with("/nowhere is not in the image"), "{left:?}");
        assert_eq!(sent.len(), 2);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let there = folder.path().join("checkpoints/1");
        std::fs::create_dir_all(&there).unwrap();
        std::fs::write(there.join(super::super::LIST), list).unwrap();
        let listed = super::super::list(folder.path(), 1).unwrap();
        assert!(sent.keys().all(|path| listed.iter().any(|(listed, _)| listed == path)));
        let refused = stash_at(folder.path(), 1, &named, None, &mut |_| Err(CopyError::Gone));
        assert!(matches!(refused, Err(CopyError::Gone)));
    }
}
