//! Makes segments again under their old numbers, in the job's init, and plans what processes attach.

use crate::sys::standing::acts_for_all;
use std::collections::BTreeMap;

use nix::errno::Errno;

use super::super::super::arch::calls;
use super::super::super::error::{EngineError, Result};
use super::super::super::graph::{Area, Backing, CarriedInode, InodeId, Origin};
use super::super::super::objects::RestoreContext;
use super::super::super::sys::{abi, segments};
use super::super::super::trace::ProcessMemory;
use super::{layout, number_of};

/// The number of the next segment of this IPC namespace, for one call (Documentation/admin-guide/sysctl/kernel.rst);
/// only in kernels with CONFIG_CHECKPOINT_RESTORE.
const NEXT_NUMBER: &str = "/proc/sys/kernel/shm_next_id";
/// Segments that are made and thrown away on the way to a number.
const MOST_TRIES: u32 = 1 << 20;

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
    create(number, key, inode.size, creator)?;
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

/// Asks the kernel for the number, else makes segments until it comes: the kernel counts up.
fn create(number: i32, key: i32, size: u64, creator: (u32, u32)) -> Result<()> {
    let unfit = |what: &str| EngineError::Unfit {
        what: format!("shared memory segment {number} {what}"),
        way_out: "use a kernel with CONFIG_CHECKPOINT_RESTORE".into(),
    };
    let make = || as_creator(creator, || segments::make(key, size as usize));
    if std::fs::write(NEXT_NUMBER, number.to_string()).is_ok() {
        let made = make().map_err(failed("shmget", number))?;
        return if made == number { Ok(()) } else { Err(unfit("is in use already")) };
    }
    for _ in 0..MOST_TRIES {
        let made = make().map_err(failed("shmget", number))?;
        if made == number {
            return Ok(());
        }
        let _ = segments::mark(made);
    }
    Err(unfit("cannot have its number again"))
}

/// A segment tells for ever who made it.
fn as_creator<T>(creator: (u32, u32), make: impl FnOnce() -> T) -> T {
    use nix::unistd::{Gid, Uid, getegid, geteuid, setegid, seteuid, setfsgid, setfsuid};
    let (user, group) = (geteuid(), getegid());
    if !acts_for_all() || creator == (user.as_raw(), group.as_raw()) {
        return make();
    }
    // An impossible number changes nothing and tells what is: whose files are made meanwhile.
    let (file_user, file_group) =
        (setfsuid(Uid::from_raw(u32::MAX)), setfsgid(Gid::from_raw(u32::MAX)));
    // Whoever may not be this user makes it as himself.
    let _ = setegid(Gid::from_raw(creator.1));
    let _ = seteuid(Uid::from_raw(creator.0));
    let made = make();
    let _ = seteuid(user);
    let _ = setegid(group);
    setfsgid(file_group);
    setfsuid(file_user);
    made
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
    all.filter_map(|(index, inode)| Some((InodeId(index as u32), (number_of(inode)?, inode.size))))
        .collect()
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
