//! What is not the job's user's: files that no restore may change or give away.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use ckptd_tests::job::Failure;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

/// Paths of root's, in a folder that the user can see.
#[derive(Debug, Clone)]
pub struct Outside {
    /// The folder of all of them, root's own.
    pub folder: String,
    /// A file that nobody else may read.
    pub secret: String,
    /// A file that everybody may read.
    pub readable: String,
    /// A folder that nobody else may enter.
    pub locked: String,
    /// A file in it that everybody could read.
    pub inner: String,
    /// A FIFO that everybody may open.
    pub fifo: String,
    /// A folder of the user's own, for what may well be made.
    pub scratch: String,
    everything: BTreeMap<PathBuf, Look>,
}

/// What must not change of a file: mode, owner, size, modification, inode, names, content.
type Look = (u32, (u32, u32), u64, i64, u64, u64, Vec<u8>);

impl Outside {
    /// Makes them below a folder of root's. `user`: who must not have them.
    pub fn make(root: &Path, user: u32) -> std::io::Result<Self> {
        let folder = root.join("outside");
        let text = |name: &str| folder.join(name).display().to_string();
        let own =
            |path: &str, bits: u32| fs::set_permissions(path, fs::Permissions::from_mode(bits));
        fs::DirBuilder::new().mode(0o755).create(&folder)?;
        let (secret, readable) = (text("secret"), text("readable"));
        fs::write(&secret, "root's own\n")?;
        own(&secret, 0o600)?;
        fs::write(&readable, "for everybody to read\n".repeat(1000))?;
        own(&readable, 0o644)?;
        fs::write(text("program"), "#!/bin/sh\n")?;
        own(&text("program"), 0o4755)?;
        let locked = text("locked");
        fs::DirBuilder::new().mode(0o700).create(&locked)?;
        let inner = text("locked/inner");
        fs::write(&inner, "behind a lock\n")?;
        own(&inner, 0o666)?;
        fs::write(text("another's"), "another user's\n")?;
        chown(text("another's"), Some(user + 1), Some(user + 1))?;
        let fifo = text("fifo");
        mknod(fifo.as_str(), SFlag::S_IFIFO, Mode::from_bits_truncate(0o666), 0)?;
        own(&fifo, 0o666)?;
        symlink(&secret, text("link"))?;
        // Where there may be no such node, there is one less to be had.
        let _ = mknod(text("memory").as_str(), SFlag::S_IFCHR, Mode::empty(), makedev(1, 1));
        let scratch = root.join("scratch");
        fs::DirBuilder::new().mode(0o755).create(&scratch)?;
        chown(&scratch, Some(user), Some(user))?;
        let scratch = scratch.display().to_string();
        let folder = folder.display().to_string();
        let everything = BTreeMap::new();
        let mut made = Self { folder, secret, readable, locked, inner, fifo, scratch, everything };
        made.everything = made.look()?;
        Ok(made)
    }

    /// All of these paths, and names in them that there are none of.
    pub fn paths(&self) -> Vec<String> {
        let new = [&self.folder, &self.locked, &self.scratch].map(|folder| format!("{folder}/new"));
        let up = format!("{}/../outside/secret", self.scratch);
        let known = self.everything.keys().map(|path| path.display().to_string());
        known.chain(new).chain([up, self.folder.clone()]).collect()
    }

    /// Whether that file is one that the user must not have.
    pub fn has(&self, found: &fs::Metadata) -> Option<&Path> {
        let closed = |look: &Look| look.0 & 0o004 == 0 && look.0 & 0o170_000 != 0o120_000;
        let known = self.everything.iter().find(|(path, look)| {
            look.4 == found.ino()
                && (closed(look) || path.starts_with(&self.locked))
                && fs::symlink_metadata(path).is_ok_and(|there| there.dev() == found.dev())
        });
        known.map(|(path, _)| path.as_path())
    }

    /// Expects them as they were.
    pub fn must_be_as_before(&self) -> Result<(), Failure> {
        let now = self.look().map_err(|e| Failure(format!("{}: {e}", self.folder)))?;
        if now == self.everything {
            return Ok(());
        }
        let names = |one: &BTreeMap<PathBuf, Look>, other: &BTreeMap<PathBuf, Look>| {
            let differ = one.iter().filter(|(path, look)| other.get(*path) != Some(look));
            differ.map(|(path, _)| path.clone()).collect::<Vec<_>>()
        };
        Err(Failure(format!(
            "files of root's have changed: {:?}, {:?}",
            names(&self.everything, &now),
            names(&now, &self.everything)
        )))
    }

    fn look(&self) -> std::io::Result<BTreeMap<PathBuf, Look>> {
        let mut found = BTreeMap::new();
        for folder in [&self.folder, &self.locked] {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                let stat = fs::symlink_metadata(&path)?;
                let content = if stat.is_file() { fs::read(&path)? } else { Vec::new() };
                let (mode, owner) = (stat.mode(), (stat.uid(), stat.gid()));
                // What is made in a folder and removed again moves its time, which is no change of it.
                let times = if stat.is_dir() { 0 } else { stat.mtime_nsec() + stat.mtime() };
                let size = if stat.is_dir() { 0 } else { stat.len() };
                let look = (mode, owner, size, times, stat.ino(), stat.nlink(), content);
                found.insert(path, look);
            }
        }
        Ok(found)
    }
}
