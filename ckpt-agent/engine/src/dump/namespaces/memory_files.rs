//! What is in a file system in memory (tmpfs) that a job has mounted for itself.

use std::fs::{DirEntry, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{MountedContent, MountedEntry, to_hex};
use super::super::super::proc::mounts::Mount;
use super::super::super::proc::namespace_root;
use super::super::super::sys::stat::{self, modified_ns_of};
use super::super::super::sys::xattr;
use super::refuse;

/// Whoever makes the namespace again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Maker {
    /// User, as this machine numbers it.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// It may give files to others.
    pub may_own: bool,
}

/// Refuses a file system of pseudo-terminals with any in it.
pub(super) fn refuse_terminals(pid: i32, mount: &Mount) -> Result<()> {
    let folder = seen(pid, mount)?;
    let list = std::fs::read_dir(&folder).map_err(|error| failed("read", &folder, error))?;
    match list.filter_map(std::result::Result::ok).any(|entry| entry.file_name() != "ptmx") {
        true => Err(refuse(format!("has pseudo-terminals of its own in {}", mount.at))),
        false => Ok(()),
    }
}

/// Reads all of it. What its mounts cover is there as empty as they need it.
pub(super) fn read(pid: i32, mount: &Mount, maker: Maker) -> Result<Vec<MountedEntry>> {
    let top = seen(pid, mount)?;
    let metadata = std::fs::metadata(&top).map_err(|error| failed("stat", &top, error))?;
    if !metadata.is_dir() {
        return Err(refuse(format!("has a file of a tmpfs of its own mounted ({})", mount.at)));
    }
    let mut reader = Reader { mount, maker, device: metadata.dev(), bytes: 0, entries: Vec::new() };
    let shown = format!("{}:{}", stat::major(metadata.dev()), stat::minor(metadata.dev()));
    if shown != mount.device {
        return Err(EngineError::odd("the file system mounted at", &mount.at));
    }
    reader.add(&top, "", &metadata)?;
    reader.folder(&top, "")?;
    Ok(reader.entries)
}

fn seen(pid: i32, mount: &Mount) -> Result<PathBuf> {
    Ok(PathBuf::from(format!("{}{}", namespace_root(pid)?, mount.at)))
}

fn failed(call: &'static str, path: &Path, error: std::io::Error) -> EngineError {
    EngineError::system(call, path.display().to_string(), error)
}

struct Reader<'m> {
    mount: &'m Mount,
    maker: Maker,
    device: u64,
    bytes: usize,
    entries: Vec<MountedEntry>,
}

impl Reader<'_> {
    fn with(&self, what: impl std::fmt::Display) -> EngineError {
        refuse(format!("has a tmpfs of its own at {} with {what} in it", self.mount.at))
    }

    fn folder(&mut self, path: &Path, name: &str) -> Result<()> {
        let list = std::fs::read_dir(path).map_err(|error| failed("read", path, error))?;
        let mut list: Vec<DirEntry> = list
            .take(MountedEntry::MOST + 1)
            .collect::<std::io::Result<_>>()
            .map_err(|error| failed("read", path, error))?;
        list.sort_by_key(DirEntry::file_name);
        for entry in list {
            let path = entry.path();
            let metadata = entry.metadata().map_err(|error| failed("stat", &path, error))?;
            let file_name = entry.file_name();
            let Some(file_name) = file_name.to_str() else {
                return Err(self.with("a name that is no UTF-8"));
            };
            let below =
                if name.is_empty() { file_name.to_owned() } else { format!("{name}/{file_name}") };
            self.add(&path, &below, &metadata)?;
            if metadata.is_dir() && metadata.dev() == self.device {
                self.folder(&path, &below)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, name: &str, metadata: &Metadata) -> Result<()> {
        if self.entries.len() >= MountedEntry::MOST {
            return Err(self.with(format_args!("more than {} files", MountedEntry::MOST)));
        }
        if metadata.dev() != self.device {
            self.entries.push(covered(name, metadata));
            return Ok(());
        }
        let maker = self.maker;
        let owner = (metadata.uid(), metadata.gid());
        let is_makers = owner == (maker.user, maker.group);
        if !is_makers && !maker.may_own {
            return Err(self.with(format_args!("files of other users ({name})")));
        }
        if !metadata.is_dir() && metadata.nlink() > 1 {
            return Err(self.with(format_args!("a file that has several names ({name})")));
        }
        if xattr::has_any(path).map_err(|errno| failed("listxattr", path, errno.into()))? {
            return Err(self.with(format_args!("extended attributes ({name})")));
        }
        let content = self.content(path, name, metadata)?;
        self.entries.push(MountedEntry {
            path: name.to_owned(),
            mode: metadata.mode() & 0o7777,
            owner: maker.may_own.then_some(owner),
            modified_ns: modified_ns_of(metadata),
            content,
        });
        Ok(())
    }

    fn content(&mut self, path: &Path, name: &str, metadata: &Metadata) -> Result<MountedContent> {
        if metadata.is_dir() {
            return Ok(MountedContent::Directory);
        }
        if metadata.is_symlink() {
            let to = std::fs::read_link(path).map_err(|error| failed("readlink", path, error))?;
            let Some(to) = to.to_str() else { return Err(self.with("a link that is no UTF-8")) };
            return Ok(MountedContent::Link { to: to.to_owned() });
        }
        if !metadata.is_file() {
            return Err(self.with(format_args!("a file that is no regular one ({name})")));
        }
        let size = usize::try_from(metadata.size()).unwrap_or(usize::MAX);
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > MountedEntry::MOST_BYTES {
            return Err(self.with(format_args!("more than {} bytes", MountedEntry::MOST_BYTES)));
        }
        let bytes = std::fs::read(path).map_err(|error| failed("read", path, error))?;
        Ok(MountedContent::File { bytes: to_hex(&bytes) })
    }
}

/// A place for what is mounted over it.
fn covered(name: &str, metadata: &Metadata) -> MountedEntry {
    let (content, mode) = match metadata.is_dir() {
        true => (MountedContent::Directory, 0o755),
        false => (MountedContent::File { bytes: String::new() }, 0o644),
    };
    MountedEntry { path: name.to_owned(), mode, owner: None, modified_ns: 0, content }
}
