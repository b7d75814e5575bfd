//! Files that have lost the name by which they were opened, and have another one.

use std::fs::DirEntry;
use std::os::unix::fs::{DirEntryExt, MetadataExt};

use nix::sys::stat::FileStat;

use super::super::names;
use super::super::sys::abi;
use super::super::sys::stat::{identity, links};

/// What /proc appends to the path of a file that has lost it (fs/d_path.c).
pub(super) const DELETED: &str = " (deleted)";

/// Names of a folder that are looked at.
pub(super) const MOST_NAMES: usize = 100_000;

/// Another name that a file has in the folder of the one that it has lost: it was linked before, or had none at first
/// (O_TMPFILE). `link` as /proc shows it, `root` where it is followed from. The smallest of several.
pub fn find(root: &str, link: &str, stat: &FileStat) -> Option<String> {
    let path = link.strip_suffix(DELETED)?;
    if stat.st_mode & abi::S_IFMT != abi::S_IFREG || links(stat) == 0 {
        return None;
    }
    let (folder, _) = path.rsplit_once('/')?;
    let number = identity(stat).1;
    let names = std::fs::read_dir(names::path(&format!("{root}{folder}/"))).ok()?;
    let same = |entry: &DirEntry| {
        entry.ino() == number
            && entry.metadata().is_ok_and(|found| (found.dev(), found.ino()) == identity(stat))
    };
    names
        .take(MOST_NAMES)
        .filter_map(|entry| Some(names::text(entry.ok().filter(same)?.file_name())))
        .min()
        .map(|name| format!("{folder}/{name}"))
}
