//! The files behind mappings: what they must look like at a restart.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

use protocol::launch::FileCheck;

use super::super::file_check;
use super::super::graph::{MappedFile, to_hex};
use super::super::names;
use super::super::objects::DumpContext;
use super::super::proc::Mapping;
use super::super::sys::stat::modified_ns_of;

/// Build IDs that are remembered from checkpoint to checkpoint.
const MOST_REMEMBERED: usize = 4096;

/// Device, inode, size, and time of modification in nanoseconds.
type Version = (u64, u64, u64, i64);

/// Files that were looked at for one checkpoint. Ranks have the same fifty libraries mapped five times each: each is looked
/// at once.
#[derive(Debug, Default)]
pub struct MappedFiles {
    check: FileCheck,
    seen: HashMap<Place, Option<MappedFile>>,
}

/// A mapped file, and from where its path was followed.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Place {
    view: View,
    device: u64,
    inode: u64,
    path: String,
}

/// What a process sees of the file system: its root directory and its mount namespace, as /proc names them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct View {
    pid: i32,
    names: Option<[std::path::PathBuf; 2]>,
}

impl View {
    /// That of everybody whose paths are followed from this folder.
    pub fn from(root: &str) -> Self {
        Self { pid: 0, names: Some([root.into(), std::path::PathBuf::new()]) }
    }

    /// That of a process. Where the kernel does not tell, it is like nobody else's.
    pub fn of(pid: i32) -> Self {
        let link = |name| std::fs::read_link(format!("/proc/{pid}/{name}")).ok();
        match (link("root"), link("ns/mnt")) {
            (Some(root), Some(mounts)) => Self { pid: 0, names: Some([root, mounts]) },
            _ => Self { pid, names: None },
        }
    }
}

impl MappedFiles {
    /// With nothing looked at.
    pub fn new(check: FileCheck) -> Self {
        Self { check, seen: HashMap::new() }
    }

    /// The file behind a mapping of a process, if its path still leads to it from this folder, as this process or the job's user
    /// sees it.
    pub fn identify(
        &mut self,
        root: &str,
        view: &View,
        mapping: &Mapping,
        context: &DumpContext,
    ) -> Option<MappedFile> {
        let (path, _) = mapping.path();
        let (device, inode) = (mapping.device, mapping.inode);
        let place = Place { view: view.clone(), device, inode, path: path.to_owned() };
        let check = self.check;
        let look = || {
            let reached = format!("{root}{path}");
            let found = context.for_user(|| std::fs::metadata(names::path(&reached)));
            let (_acting, found) = found.ok()?;
            let metadata = found.ok()?;
            (metadata.ino() == inode).then(|| describe(path, &reached, &metadata, check))
        };
        self.seen.entry(place).or_insert_with(look).clone()
    }
}

/// What a file must look like at restart. `reached` is the path by which it is found here.
fn describe(path: &str, reached: &str, metadata: &Metadata, check: FileCheck) -> MappedFile {
    let read = || file_check::hash(&File::open(names::path(reached)).ok()?).ok();
    let wanted = check == FileCheck::Hash && metadata.is_file();
    let modified_ns = modified_ns_of(metadata);
    let version = (metadata.dev(), metadata.ino(), metadata.size(), modified_ns);
    MappedFile {
        path: path.to_owned(),
        size: metadata.size(),
        modified_ns,
        build_id: remembered(version, || build_id(reached)),
        hash: wanted.then(read).flatten(),
    }
}

/// The executable of a process as it must be found at restart; only its path where it is gone already. `link`: the one in /proc,
/// which leads there from anywhere, if it shows the program, and not what has restored it. `root`: where its path begins.
pub fn executable(link: Option<String>, root: &str, path: &str, check: FileCheck) -> MappedFile {
    let leads_there =
        |link: &String| std::fs::read_link(link).is_ok_and(|shown| shown == names::path(path));
    let by_link = link.filter(leads_there).and_then(|link| {
        let metadata = std::fs::metadata(&link).ok().filter(|metadata| metadata.nlink() > 0)?;
        Some((link, metadata))
    });
    let found = match by_link {
        Some(found) => Ok(found),
        None => {
            let reached = format!("{root}{path}");
            std::fs::metadata(names::path(&reached)).map(|metadata| (reached, metadata))
        }
    };
    match found {
        Ok((reached, metadata)) => describe(path, &reached, &metadata, check),
        Err(_) => MappedFile {
            path: path.to_owned(),
            size: 0,
            modified_ns: 0,
            build_id: None,
            hash: None,
        },
    }
}

/// The build ID of a version of a file, read once: checkpoint after checkpoint finds the same files.
fn remembered(version: Version, read: impl FnOnce() -> Option<String>) -> Option<String> {
    static KNOWN: Mutex<Option<HashMap<Version, Option<String>>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_with(HashMap::new);
    if known.len() >= MOST_REMEMBERED && !known.contains_key(&version) {
        known.clear();
    }
    known.entry(version).or_insert_with(read).clone()
}

/// The GNU build ID of an ELF file, hex. `None` where it is no ELF file or has none.
pub fn build_id(path: &str) -> Option<String> {
    /// As much as holds the headers and notes of any executable that linkers make.
    const HEAD: u64 = 64 * 1024;
    let mut head = Vec::new();
    File::open(names::path(path)).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
    find_build_id(&head)
}

fn find_build_id(head: &[u8]) -> Option<String> {
    // PT_NOTE and NT_GNU_BUILD_ID of elf(5).
    const NOTE: u32 = 4;
    const BUILD_ID: u32 = 3;
    let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    if head.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let (table, size, count) = (long(32)? as usize, half(54)? as usize, half(56)? as usize);
    for index in 0..count {
        let entry = table.checked_add(index.checked_mul(size)?)?;
        if word(entry)? != NOTE {
            continue;
        }
        let (mut at, length) = (long(entry + 8)? as usize, long(entry + 32)? as usize);
        let end = at.checked_add(length)?.min(head.len());
        while at + 12 <= end {
            let (name, description) = (word(at)? as usize, word(at + 4)? as usize);
            let body = at + 12 + name.next_multiple_of(4);
            if word(at + 8)? == BUILD_ID && head.get(at + 12..at + 16)? == b"GNU\0" {
                return Some(to_hex(head.get(body..body.checked_add(description)?)?));
            }
            at = body.checked_add(description.next_multiple_of(4))?;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_build_id() {
        let id = build_id("/bin/sh").unwrap();
        assert!(id.len() >= 32, "{id}");
        assert_eq!(build_id("/etc/passwd"), None);
        assert_eq!(find_build_id(b"\x7fELF\x02"), None);
    }

    #[test]
    fn a_file_is_read_once_in_each_of_its_versions() {
        let reads = std::cell::Cell::new(0);
        let read = |size| {
            remembered((u64::MAX, 1, size, 3), || {
                reads.set(reads.get() + 1);
                Some("ab".to_owned())
            })
        };
        assert_eq!(read(1).as_deref(), Some("ab"));
        assert_eq!(read(1).as_deref(), Some("ab"));
        assert_eq!(reads.get(), 1);
        read(2);
        assert_eq!(reads.get(), 2);
    }
}
