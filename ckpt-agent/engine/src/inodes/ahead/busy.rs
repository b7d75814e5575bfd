//! Files that may be changing at this moment without a sign of it to come.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;

use super::super::super::error::{EngineError, Result};
use super::super::super::leases::Leased;
use super::super::super::names;
use super::super::super::proc::{Members, read_maps, read_text, shown_by, thread_numbers};
use super::super::super::sys::kcmp::{Resource, share};
use super::Key;

/// What the processes of a job have open for writing, or mapped so.
#[derive(Debug, Default)]
pub(super) struct Busy {
    open_for_writing: HashSet<Key>,
    /// By their numbers alone: Btrfs tells another device in maps than in stat.
    mapped: HashSet<u64>,
    /// Files with leases.
    leased: Leased,
    /// Where a file that is asked for is open.
    seen: HashMap<Key, String>,
}

impl Busy {
    /// Of all processes of a job. `wanted`: files of which a place is noted where they are open.
    ///
    /// # Errors
    /// Where /proc cannot be read.
    pub(super) fn of(members: &Members, wanted: impl Fn(Key) -> bool) -> Result<Self> {
        let mut busy = Self { leased: Leased::now(), ..Self::default() };
        for pid in members.list()? {
            busy.add_process(pid, &wanted)?;
        }
        Ok(busy)
    }

    pub(super) fn is_open_for_writing(&self, key: Key) -> bool {
        self.open_for_writing.contains(&key)
    }

    pub(super) fn is_mapped(&self, key: Key) -> bool {
        self.mapped.contains(&key.1)
    }

    /// Whether opening a file could be noticed.
    pub(super) fn is_leased(&self, key: Key) -> bool {
        self.leased.has(key.1)
    }

    /// Paths below /proc of wanted files.
    pub(super) fn seen(&self) -> impl Iterator<Item = &str> {
        self.seen.values().map(String::as_str)
    }

    pub(super) fn add_process(&mut self, pid: i32, wanted: &impl Fn(Key) -> bool) -> Result<()> {
        self.add_table(&format!("/proc/{pid}/fd"), wanted)?;
        for tid in thread_numbers(pid)?.into_iter().skip(1) {
            // Where the kernel can't tell, the same is read again.
            if share(pid, tid, Resource::Descriptors) != Some(true) {
                self.add_table(&format!("/proc/{pid}/task/{tid}/fd"), wanted)?;
            }
        }
        match read_maps(shown_by(pid)?) {
            Ok(mappings) => {
                let written = |mapping: &&_| is_shared_and_writable(mapping);
                self.mapped.extend(mappings.iter().filter(written).map(|mapping| mapping.inode));
                Ok(())
            }
            Err(EngineError::Gone(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn add_table(&mut self, folder: &str, wanted: &impl Fn(Key) -> bool) -> Result<()> {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            // It has ended.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(EngineError::system("read", folder, error)),
        };
        // One that ends in between has nothing open any more.
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            // The link's own mode says what the descriptor is open for (fs/proc/fd.c).
            let Ok(link) = path.symlink_metadata() else { continue };
            let Some(file) = path.metadata().ok().filter(std::fs::Metadata::is_file) else {
                continue;
            };
            let key = (file.dev(), file.ino());
            if link.mode() & 0o200 != 0 {
                self.open_for_writing.insert(key);
            }
            if let Some(number) = path.file_name().and_then(std::ffi::OsStr::to_str) {
                let info = read_text(&format!("{folder}info/{number}")).ok().flatten();
                self.leased.add(key.1, &info.unwrap_or_default());
            }
            if wanted(key) {
                self.seen.insert(key, names::text(path));
            }
        }
        Ok(())
    }
}

fn is_shared_and_writable(mapping: &super::super::super::proc::Mapping) -> bool {
    mapping.shared && mapping.protection.writable() && mapping.inode != 0
}
