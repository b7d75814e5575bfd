//! Makes segments again under their old numbers, in the job's init, and plans what processes attach.

use std::cell::Cell;
use std::collections::BTreeMap;

use nix::errno::Errno;

use super::super::super::arch::calls;
use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{Area, Backing, CarriedInode, InodeId, IpcIdentity, Origin};
use super::super::super::ipc::number::{self, Kind};
use super::super::super::objects::RestoreContext;
use super::super::super::sys::{abi, segments};
use super::super::super::trace::ProcessMemory;
use super::{layout, number_of};

const KIND: Kind =
    Kind { name: "shared memory segment", call: "shmget", next: "/proc/sys/kernel/shm_next_id" };

fn failed(call: &'static str, number: i32) -> impl Fn(Errno) -> EngineError {
    move |errno| EngineError::system(call, format!("shared memory segment {number}"), errno)
}

/// Makes a segment with its content. It outlives its mark until [`destroy_marked`], when all have attached
/// it.
///
/// # Errors
/// A number that cannot be had; failed system calls.
pub fn make(inode: &CarriedInode, context: &mut RestoreContext<'_>) -> Result<()> {
    let Origin::Segment { number, key, creator, locked, .. } = inode.origin else {
        return Err(EngineError::odd("inode", "no shared memory segment"));
    };
    if inode.huge.is_some_and(|page| !page.is_power_of_two()) {
        return Err(EngineError::Damaged(format!("pages of shared memory segment {number}")));
    }
    let identity = IpcIdentity { number, key, creator, ..IpcIdentity::default() };
    let size = size(inode);
    let lacking = Cell::new(false);
    let create = || {
        if let (Some(page), false) = (inode.huge, lacking.get()) {
            match segments::make_huge(key, inode.size as usize, page) {
                Err(Errno::ENOMEM | Errno::EPERM | Errno::EINVAL) => lacking.set(true),
                made => return made,
            }
        }
        segments::make(key, size as usize)
    };
    number::create(KIND, &identity, create, segments::mark)?;
    if lacking.get() {
        context.warn(format!(
            "shared memory segment {number} has ordinary pages instead of {} MiB of huge ones (hugetlbfs), of which this \
             machine has not enough, or not for this user (vm.nr_hugepages, vm.hugetlb_shm_group)",
            size.div_ceil(1 << 20)
        ));
    }
    if let Err(errno) = describe(number, inode) {
        // Without privilege all are the user's own anyway.
        context.warn(format!(
            "shared memory segment {number} keeps this user as its owner ({})",
            errno.desc()
        ));
    }
    let at = segments::attach(number).map_err(failed("shmat", number))?;
    let mut own = ProcessMemory::of(std::process::id() as i32);
    let filled =
        context.for_each_span(inode.content, |offset, bytes| own.write(at + offset, bytes));
    // SAFETY: attached above; no reference into it is left.
    unsafe { segments::detach(at) };
    filled?;
    if locked && segments::lock(number).is_err() {
        context.warn(format!("shared memory segment {number} is not locked into memory any more"));
    }
    Ok(())
}

/// Owner and permissions.
fn describe(number: i32, inode: &CarriedInode) -> nix::Result<()> {
    let mut bytes = [0u8; layout::SIZE];
    let (user, group) = inode.owner.unwrap_or((0, 0));
    for (at, word) in [(layout::USER, user), (layout::GROUP, group), (layout::MODE, inode.mode)] {
        bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    let command = calls::ipc_command(abi::IPC_SET);
    // SAFETY: IPC_SET reads a struct shmid64_ds, whose size and layout the buffer has.
    let answer = unsafe { libc::syscall(calls::SHMCTL, number, command, bytes.as_mut_ptr()) };
    Errno::result(answer).map(drop)
}

/// Marks the segments that the job had marked: they end with their last holder.
///
/// # Errors
/// Failed shmctl(2).
pub fn destroy_marked(inode: &CarriedInode) -> Result<()> {
    let Origin::Segment { number, marked: true, .. } = inode.origin else { return Ok(()) };
    segments::mark(number).map_err(failed("shmctl", number))
}

/// One shmat(2) of a process, and the areas that are left of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The segment.
    pub number: i32,
    /// Where its first byte lies, or would.
    pub base: u64,
    /// Bytes, in whole pages.
    pub length: u64,
    /// Attached for writing.
    pub writable: bool,
    /// Start, end and protection (PROT_* bits) of each area, ascending.
    pub areas: Vec<(u64, u64, u8)>,
}

impl Attachment {
    /// Nothing of it has been unmapped.
    pub fn is_whole(&self) -> bool {
        let mut at = self.base;
        for (start, end, _) in &self.areas {
            if *start != at {
                return false;
            }
            at = *end;
        }
        at == self.base.wrapping_add(self.length)
    }
}

/// What a process with these areas had attached. `inodes`: of the segments among them.
pub fn attachments(
    areas: &[Area],
    inodes: &BTreeMap<InodeId, (i32, u64)>,
    page: u64,
) -> Vec<Attachment> {
    let mut found: BTreeMap<(InodeId, u64), Attachment> = BTreeMap::new();
    for area in areas {
        let Backing::Carried { inode, offset, writable } = area.backing else { continue };
        let Some((number, size)) = inodes.get(&inode) else { continue };
        let base = area.start.wrapping_sub(offset);
        let attachment = found.entry((inode, base)).or_insert_with(|| Attachment {
            number: *number,
            base,
            // One that can't be: there is no place for it, either.
            length: size.checked_next_multiple_of(page).unwrap_or(u64::MAX),
            writable: false,
            areas: Vec::new(),
        });
        attachment.writable |= writable;
        attachment.areas.push((area.start, area.end, area.protection.0));
    }
    found.into_values().collect()
}

/// Numbers and sizes of all segments.
pub fn known(inodes: &[CarriedInode]) -> BTreeMap<InodeId, (i32, u64)> {
    let all = inodes.iter().enumerate();
    all.filter_map(|(index, inode)| Some((InodeId(index as u32), (number_of(inode)?, size(inode)))))
        .collect()
}

/// How large it is as what processes attach: of huge pages there are whole ones.
fn size(inode: &CarriedInode) -> u64 {
    let whole = inode.huge.map(|page| inode.size.checked_next_multiple_of(page));
    // One that can't be: there is no place for it, either.
    whole.map_or(inode.size, |size| size.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::super::super::graph::{Advice, Protection};
    use super::*;

    fn area(start: u64, end: u64, offset: u64, protection: u8) -> Area {
        Area {
            start,
            end,
            protection: Protection(protection),
            shared: true,
            backing: Backing::Carried { inode: InodeId(0), offset, writable: protection & 2 != 0 },
            advice: Advice::default(),
        }
    }

    #[test]
    fn areas_of_one_attachment_come_together() {
        let inodes = BTreeMap::from([(InodeId(0), (7, 0x2f00))]);
        let areas = [
            area(0x10000, 0x11000, 0, 3),
            area(0x11000, 0x13000, 0x1000, 1),
            area(0x21000, 0x22000, 0x1000, 1),
        ];
        let found = attachments(&areas, &inodes, 0x1000);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].number, found[0].base, found[0].length), (7, 0x10000, 0x3000));
        assert!(found[0].is_whole() && found[0].writable);
        assert_eq!(found[0].areas, [(0x10000, 0x11000, 3), (0x11000, 0x13000, 1)]);
        assert!(!found[1].is_whole() && !found[1].writable);
        assert_eq!(found[1].base, 0x20000);
    }

    #[test]
    fn an_area_of_something_else_is_no_attachment() {
        let found = attachments(&[area(0x10000, 0x11000, 0, 3)], &BTreeMap::new(), 0x1000);
        assert_eq!(found, []);
    }
}
