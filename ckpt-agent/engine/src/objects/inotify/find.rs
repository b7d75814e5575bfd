//! The path of an inode. Root asks the file system by the handle that fdinfo shows; without that right, or where it has no
//! handles, folders are searched in which a program looks at files, nearest first.

use std::collections::{HashSet, VecDeque};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::super::super::error::Result;
use super::super::super::names;
use super::super::super::proc::mounts::Mount;
use super::super::super::proc::read_text;
use super::super::super::sys::inotify::open_by_handle;
use super::super::super::sys::stat;
use super::super::{DumpContext, reopen};

/// Names that are looked at before a search is given up.
const MOST_NAMES: usize = 400_000;

/// A watch whose path is searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Searched {
    pub(in super::super) number: i32,
    pub(in super::super) inode: u64,
    /// As the kernel numbers devices: 20 bits for the minor number.
    pub(in super::super) device: u32,
    pub(in super::super) mask: u32,
    /// Type and bytes of the inode's handle in its file system.
    pub(in super::super) handle: Option<(i32, Vec<u8>)>,
}

impl Searched {
    pub(in super::super) fn is(&self, inode: u64, device: u64) -> bool {
        inode == self.inode && device == stat::device(self.device >> 20, self.device & 0xf_ffff)
    }

    fn is_at(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|found| self.is(found.ino(), found.dev()))
    }
}

/// The path of each, where it is found.
pub(in super::super) fn paths(
    all: &[Searched],
    host_pid: i32,
    context: &DumpContext,
) -> Result<Vec<Option<String>>> {
    let mounts = read_text("/proc/self/mountinfo")?.unwrap_or_default();
    let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
    let mut found: Vec<Option<PathBuf>> =
        all.iter().map(|searched| by_handle(searched, &mounts)).collect();
    if found.iter().any(Option::is_none) {
        // Only where the job's user may look.
        let _acting = context.act_as_user()?;
        search(all, &mut found, roots(host_pid, context));
    }
    Ok(found.into_iter().map(|path| path.map(names::text)).collect())
}

/// Files that a process has open and that have lost all their names: where, their numbers and those of their devices.
pub(in super::super) fn deleted(host_pid: i32) -> Vec<(PathBuf, (u64, u64))> {
    let open = fs::read_dir(format!("/proc/{host_pid}/fd")).into_iter().flatten().flatten();
    open.filter_map(|entry| Some((entry.path(), fs::metadata(entry.path()).ok()?)))
        .filter(|(_, meta)| meta.nlink() == 0)
        .map(|(path, meta)| (path, (meta.ino(), meta.dev())))
        .collect()
}

fn by_handle(searched: &Searched, mounts: &[Mount]) -> Option<PathBuf> {
    let (kind, handle) = searched.handle.as_ref()?;
    let device = format!("{}:{}", searched.device >> 20, searched.device & 0xf_ffff);
    for mount in mounts.iter().filter(|mount| mount.device == device) {
        let Ok(on) = File::open(&mount.at) else { continue };
        let Ok(target) = open_by_handle(on.as_fd(), *kind, handle) else { continue };
        let Ok(path) = fs::read_link(reopen::magic_link(target)) else { continue };
        // Through another mount it may have no path, or one that leads elsewhere.
        if searched.is_at(&path) {
            return Some(path);
        }
    }
    None
}

/// Where a program watches files: around where it is and what it has open, and where systems keep what changes.
fn roots(host_pid: i32, context: &DumpContext) -> Vec<PathBuf> {
    let link = |name: &str| fs::read_link(format!("/proc/{host_pid}/{name}")).ok();
    let mut roots: Vec<PathBuf> = context.session_directories.clone();
    roots.extend(link("cwd"));
    let open = fs::read_dir(format!("/proc/{host_pid}/fd")).into_iter().flatten().flatten();
    let open = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    let near = open.chain(link("exe")).filter(|path| path.is_absolute());
    roots.extend(near.filter_map(|path| path.parent().map(Path::to_owned)));
    roots.extend(["/etc", "/tmp", "/run", "/var", "/dev", "/home", "/"].map(PathBuf::from));
    roots
}

/// Looks through folders, those that are nearest to a root first.
fn search(all: &[Searched], found: &mut [Option<PathBuf>], roots: Vec<PathBuf>) {
    let mut seen = HashSet::new();
    let mut folders: VecDeque<PathBuf> = roots.into();
    let mut names = 0;
    while let Some(folder) = folders.pop_front() {
        if found.iter().all(Option::is_some) || names > MOST_NAMES {
            return;
        }
        let Ok(own) = fs::symlink_metadata(&folder) else { continue };
        if !own.is_dir() || !seen.insert((own.dev(), own.ino())) || is_made_up(&folder) {
            continue;
        }
        note(all, found, &folder, own.ino());
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            names += 1;
            note(all, found, &entry.path(), entry.ino());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push_back(entry.path());
            }
        }
    }
}

/// /proc changes while it is looked at, and nobody can watch it.
fn is_made_up(folder: &Path) -> bool {
    folder == Path::new("/proc")
}

fn note(all: &[Searched], found: &mut [Option<PathBuf>], path: &Path, inode: u64) {
    for (searched, found) in all.iter().zip(found) {
        if found.is_none() && searched.inode == inode && searched.is_at(path) {
            *found = Some(path.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "").unwrap();
        let searched = |path: &Path| {
            let own = fs::symlink_metadata(path).unwrap();
            let device = stat::major(own.dev()) << 20 | stat::minor(own.dev());
            Searched { number: 1, inode: own.ino(), device, mask: 0, handle: None }
        };
        let all = [searched(&deep.join("file")), searched(&deep), searched(folder.path())];
        let mut found = vec![None; 3];
        search(&all, &mut found, vec![folder.path().to_owned()]);
        let expected = [deep.join("file"), deep, folder.path().to_owned()].map(Some);
        assert_eq!(found, expected);
    }
}
