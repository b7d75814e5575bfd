//! From lines of maps to the areas of an image. What must be read while the job stands still
//! (memory that processes share) is found by [`plan`]; everything else waits until it runs again.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::{
    Advice, Area, Backing, BlobId, CarriedInode, InodeId, MappedFile, Origin, to_hex,
};
use super::super::inodes::{self, segments};
use super::super::objects::{BlobData, DumpContext};
use super::super::proc::Mapping;

/// How an area's content is had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// The kernel's own; only its place is kept.
    Kernel,
    /// Private pages over zeros.
    Anonymous,
    /// Private pages over a file, or a file shared through the page cache.
    File,
    /// An inode whose content travels and was read while the job stood still.
    Shared(InodeId),
    /// A private mapping of a file that has no name any more: every page is stored.
    Whole,
}

/// A mapping and what becomes of it.
#[derive(Debug, Clone)]
pub struct Planned {
    /// As maps told it.
    pub mapping: Mapping,
    /// What becomes of it.
    pub plan: Plan,
}

/// A part of a shared inode that some process has mapped: where its bytes can be read.
#[derive(Debug, Clone)]
pub struct Window {
    /// The inode.
    pub inode: InodeId,
    /// A process that has it mapped, as this machine numbers it.
    pub host_pid: i32,
    /// Where.
    pub mapping: Mapping,
}

/// Sorts the mappings of a process. Inodes not met before are added to the context with an empty
/// content; their windows are appended to `windows`.
///
/// # Errors
/// Refusals of mappings that no image can hold.
pub fn plan(
    host_pid: i32,
    mappings: Vec<Mapping>,
    context: &mut DumpContext,
    windows: &mut Vec<Window>,
) -> Result<Vec<Planned>> {
    let mut planned = Vec::with_capacity(mappings.len());
    for mapping in mappings {
        if mapping.is_above_user_space() {
            continue;
        }
        let plan = if mapping.is_kernel() {
            Plan::Kernel
        } else if mapping.inode == 0 && !mapping.shared {
            Plan::Anonymous
        } else {
            plan_file(host_pid, &mapping, context, windows)?
        };
        planned.push(Planned { mapping, plan });
    }
    Ok(planned)
}

fn plan_file(
    host_pid: i32,
    mapping: &Mapping,
    context: &mut DumpContext,
    windows: &mut Vec<Window>,
) -> Result<Plan> {
    let (path, deleted) = mapping.path();
    if let Some(inode) = segments::number(mapping).and_then(|at| segments::inode(context, at)) {
        windows.push(Window { inode, host_pid, mapping: mapping.clone() });
        return Ok(Plan::Shared(inode));
    }
    if path.starts_with("anon_inode:") || path.starts_with("socket:") {
        return Err(refuse(mapping, "cannot be checkpointed"));
    }
    // Shared memory of the kernel's own tmpfs has no path below which it could be found again.
    let kernel_memory = path.starts_with("/memfd:") || (path == "/dev/zero" && mapping.shared);
    if path.starts_with("/dev/") && !path.starts_with("/dev/shm/") && !kernel_memory {
        return match path {
            "/dev/zero" => Ok(Plan::Anonymous),
            _ => Err(refuse(mapping, "is a device, which cannot be checkpointed")),
        };
    }
    if !mapping.shared {
        return Ok(if deleted || kernel_memory { Plan::Whole } else { Plan::File });
    }
    if !(deleted || kernel_memory || context.is_session_file(path)) {
        return Ok(Plan::File);
    }
    let key = (mapping.device, mapping.inode);
    let inode = match context.inode_index.get(&key) {
        Some(inode) => *inode,
        None => add_inode(mapping, key, context),
    };
    windows.push(Window { inode, host_pid, mapping: mapping.clone() });
    Ok(Plan::Shared(inode))
}

fn add_inode(mapping: &Mapping, key: (u64, u64), context: &mut DumpContext) -> InodeId {
    let (path, deleted) = mapping.path();
    let origin = if deleted || path.starts_with("/memfd:") || path == "/dev/zero" {
        inodes::pathless_origin(&mapping.name, 0)
    } else {
        Origin::Named { path: path.to_owned() }
    };
    let content = context.keep_blob(BlobData::default());
    context.inodes.push(CarriedInode {
        origin,
        size: 0,
        mode: 0o600,
        owner: None,
        modified_ns: None,
        read_only: false,
        content,
    });
    let inode = InodeId((context.inodes.len() - 1) as u32);
    context.inode_index.insert(key, inode);
    inode
}

fn refuse(mapping: &Mapping, why: &str) -> EngineError {
    EngineError::Refused(Refusal::new(
        format!("the mapping of {} at {:#x} {why}", mapping.name, mapping.start),
        "unmap it while checkpoints are taken, or run without it",
    ))
}

/// Whether an inode's content was already read through a descriptor of it.
pub fn has_content(context: &DumpContext, inode: InodeId) -> bool {
    let BlobId(blob) = context.inodes[inode.0 as usize].content;
    context.blobs[blob as usize].length > 0
}

/// The area of an image: mapping, plan and the flags that smaps tells.
///
/// # Errors
/// Flags that no image can hold.
pub fn area(ghost_pid: i32, planned: &Planned, flags: Option<&Mapping>) -> Result<(Area, bool)> {
    let mapping = &planned.mapping;
    let mut whole = planned.plan == Plan::Whole;
    let may_write = flags.map_or(mapping.protection.writable(), |smaps| smaps.has(b"mw"));
    let backing = match &planned.plan {
        Plan::Kernel => Backing::Kernel { name: mapping.name.clone() },
        Plan::Anonymous | Plan::Whole => Backing::Anonymous,
        Plan::Shared(inode) => {
            Backing::Carried { inode: *inode, offset: mapping.offset, writable: may_write }
        }
        Plan::File => match identify(ghost_pid, mapping)? {
            Some(file) => Backing::File {
                file,
                offset: mapping.offset,
                writable: mapping.shared && may_write,
            },
            None => {
                whole = true;
                Backing::Anonymous
            }
        },
    };
    let advice = match flags {
        Some(smaps) if planned.plan != Plan::Kernel => advice(smaps)?,
        _ => Advice::default(),
    };
    let shared = mapping.shared && !whole;
    let area = Area {
        start: mapping.start,
        end: mapping.end,
        protection: mapping.protection,
        shared,
        backing,
        advice,
    };
    Ok((area, whole))
}

/// The file behind a mapping, if its path still leads to it.
fn identify(ghost_pid: i32, mapping: &Mapping) -> Result<Option<MappedFile>> {
    let (path, _) = mapping.path();
    // The ghost sees the same files, and is there for certain.
    let reached = format!("/proc/{ghost_pid}/root{path}");
    let Ok(metadata) = std::fs::metadata(&reached) else { return Ok(None) };
    if metadata.ino() != mapping.inode {
        return Ok(None);
    }
    Ok(Some(describe(path, &reached, &metadata)))
}

/// What a file must look like at restart.
pub fn describe(path: &str, reached: &str, metadata: &std::fs::Metadata) -> MappedFile {
    MappedFile {
        path: path.to_owned(),
        size: metadata.size(),
        modified_ns: metadata
            .mtime()
            .saturating_mul(1_000_000_000)
            .saturating_add(metadata.mtime_nsec()),
        build_id: build_id(reached),
    }
}

/// madvise(2) values by their letters in VmFlags (Documentation/filesystems/proc.rst).
const ADVICE: &[(&[u8; 2], i32)] = &[
    (b"sr", libc::MADV_SEQUENTIAL),
    (b"rr", libc::MADV_RANDOM),
    (b"dc", libc::MADV_DONTFORK),
    (b"dd", libc::MADV_DONTDUMP),
    (b"hg", libc::MADV_HUGEPAGE),
    (b"nh", libc::MADV_NOHUGEPAGE),
    (b"mg", libc::MADV_MERGEABLE),
    (b"wf", libc::MADV_WIPEONFORK),
];

fn advice(smaps: &Mapping) -> Result<Advice> {
    for (flag, what) in [
        (b"ht", "has huge pages of hugetlbfs"),
        (b"io", "is device memory"),
        (b"pf", "is device memory"),
        (b"um", "is watched by userfaultfd"),
        (b"uw", "is watched by userfaultfd"),
        (b"ss", "is a shadow stack"),
    ] {
        if smaps.has(flag) {
            return Err(refuse(smaps, &format!("{what}, which cannot be checkpointed")));
        }
    }
    Ok(Advice {
        grows_down: smaps.has(b"gd"),
        no_reserve: smaps.has(b"nr"),
        locked: smaps.has(b"lo"),
        advise: ADVICE
            .iter()
            .filter(|(flag, _)| smaps.has(flag))
            .map(|(_, advice)| *advice)
            .collect(),
        guards: Vec::new(),
    })
}

/// The GNU build ID of an ELF file, hex. `None` where it is no ELF file or has none.
pub fn build_id(path: &str) -> Option<String> {
    /// As much as holds the headers and notes of any executable that linkers make.
    const HEAD: u64 = 64 * 1024;
    let mut head = Vec::new();
    File::open(path).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
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
}
