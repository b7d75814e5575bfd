//! SysV shared memory (shmget(2)). A segment belongs to the IPC namespace, which the job has for itself:
//! all that are there travel, attached or not, under their own numbers.
//!
//! * `survey`: which segments there are, asked from inside of the job;
//! * `restore`: made again in the job's init, and what each process attaches.

mod restore;
mod survey;

pub use restore::{Attachment, attachments, destroy_marked, known, make};
pub use survey::{add, read_detached, refuse_attached, survey};

use std::collections::BTreeSet;

use super::super::graph::{CarriedInode, InodeId, Origin};
use super::super::ipc::ListedSegment;
use super::super::objects::DumpContext;
use super::super::proc::Mapping;

/// In place of a device in the index of inodes: the kernel gives a segment its own number as inode number, on
/// the device of all its memory without a name.
const NO_DEVICE: u64 = u64::MAX;
/// SHM_DEST: the last one to detach it destroys it (include/linux/shm.h).
const MARKED: u32 = 0o1000;
/// SHM_LOCKED
const LOCKED: u32 = 0o2000;

/// What include/uapi/asm-generic/shmbuf.h and ipcbuf.h define; x86 has the same.
mod layout {
    /// sizeof(struct shmid64_ds)
    pub const SIZE: usize = if cfg!(target_pointer_width = "64") { 112 } else { 84 };
    /// Offsets within.
    pub const KEY: usize = 0;
    pub const USER: usize = 4;
    pub const GROUP: usize = 8;
    pub const CREATOR: usize = 12;
    pub const CREATOR_GROUP: usize = 16;
    pub const MODE: usize = 20;
    pub const BYTES: usize = if cfg!(target_pointer_width = "64") { 48 } else { 36 };
    pub const ATTACHED: usize = if cfg!(target_pointer_width = "64") { 88 } else { 72 };
}

/// The number of the segment that a mapping shows.
pub fn number(mapping: &Mapping) -> Option<i32> {
    mapping.is_segment().then(|| i32::try_from(mapping.inode).ok()).flatten()
}

/// Whether a mapping can show this segment: it has the name of the segment's key, which a marked one has lost.
pub fn may_show(mapping: &Mapping, segment: &ListedSegment) -> bool {
    let name = format!("/SYSV{:08x}", segment.identity.key);
    segment.mode & MARKED != 0 || mapping.name.starts_with(&name)
}

/// The inode of a segment that [`survey`] has found, or [`add`] was told of: of that number in the IPC namespace of a process, as
/// this machine numbers it, else in the job's.
pub fn inode(context: &DumpContext, host_pid: i32, number: i32) -> Option<InodeId> {
    let own = context.ipc_namespaces.get(&host_pid).map(|place| key(Some(*place), number));
    let of = |key| context.inode_index.get(&key).copied();
    own.and_then(of).or_else(|| of(key(None, number)))
}

/// Tells of a segment how large its pages are, where they are huge ones: `smaps` is what has attached it.
pub fn tell_huge(inode: &mut CarriedInode, smaps: &Mapping) {
    inode.huge = smaps.has(b"ht").then_some(smaps.page_size);
}

fn key(namespace: Option<u32>, number: i32) -> (u64, u64) {
    (NO_DEVICE - namespace.map_or(0, |place| u64::from(place) + 1), number as u64)
}

/// Whether it ends with its last holder.
pub fn is_marked(inode: &CarriedInode) -> bool {
    matches!(inode.origin, Origin::Segment { marked: true, .. })
}

/// The IPC namespace that a segment is in, where it is not the job's.
pub fn namespace_of(inode: &CarriedInode) -> Option<u32> {
    match inode.origin {
        Origin::Segment { namespace, .. } => namespace,
        _ => None,
    }
}

/// The number of a segment.
pub fn number_of(inode: &CarriedInode) -> Option<i32> {
    match inode.origin {
        Origin::Segment { number, .. } => Some(number),
        _ => None,
    }
}

/// Segments that no process has attached, out of the inodes that processes map: any process may attach them
/// yet.
pub fn unattached(inodes: &[CarriedInode], mapped: &BTreeSet<InodeId>) -> Vec<InodeId> {
    let all = inodes.iter().enumerate().map(|(index, inode)| (InodeId(index as u32), inode));
    all.filter(|(id, inode)| number_of(inode).is_some() && !mapped.contains(id))
        .map(|(id, _)| id)
        .collect()
}
