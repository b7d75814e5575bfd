//! From lines of maps to the areas of an image. What must be read while the job stands still
//! (memory that processes share) is found by [`plan`]; everything else waits until it runs again.

use std::os::unix::fs::MetadataExt;

use super::super::aio;
use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::{
    Advice, Area, Backing, BlobId, CarriedInode, FileId, InodeId, MappedFile, Origin, Protection,
    Watched,
};
use super::super::inodes::{self, segments};
use super::super::objects::{
    BlobData, DumpContext, in_place, interconnect, is_watched, is_write_watched, reopen,
};
use super::super::proc::Mapping;
use super::super::sys::stat::{major, modified_ns_of};
use super::mapped_file;

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
    /// Private pages over an inode whose content travels.
    Private(InodeId),
    /// Memory of an io_uring.
    Ring(FileId),
    /// The ring of a context of asynchronous input and output.
    Aio {
        /// The program's place.
        head: u32,
        /// The kernel's.
        tail: u32,
        /// Events that the program has not taken.
        events: BlobId,
    },
    /// A private mapping of a file that has no name any more: every page is stored, unless its content is found.
    Whole,
}

impl Plan {
    /// Whether a page that is not stored shows a file's content.
    pub fn is_over_file(&self) -> bool {
        matches!(self, Self::File | Self::Private(_))
    }
}

/// A mapping and what becomes of it.
#[derive(Debug, Clone)]
pub struct Planned {
    /// As maps told it.
    pub mapping: Mapping,
    /// What becomes of it.
    pub plan: Plan,
    /// Somebody fills its missing pages.
    pub watched: Option<Watched>,
}

/// Whether a page at this address, if it is not stored, shows a file's content.
pub fn is_over_file(planned: &[Planned], address: u64) -> bool {
    let above = planned.partition_point(|planned| planned.mapping.start <= address);
    planned[..above].last().is_some_and(|planned| planned.plan.is_over_file())
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
        } else if mapping.is_ring() {
            Plan::Ring(context.rings.of(host_pid, &mapping)?)
        } else if mapping.is_aio() {
            let aio::Settled { head, tail, events } = context.aio.of(host_pid, &mapping)?.clone();
            Plan::Aio { head, tail, events: context.keep(events) }
        } else if !mapping.shared && (mapping.inode == 0 || mapping.is_anonymous_huge()) {
            Plan::Anonymous
        } else {
            plan_file(host_pid, &mapping, context, windows)?
        };
        let of_process = context.watched.get(&host_pid).into_iter().flatten();
        let watched = of_process.into_iter().find(|(start, _)| *start == mapping.start);
        let watched = watched.map(|(_, watched)| watched.clone());
        planned.push(Planned { mapping, plan, watched });
    }
    Ok(planned)
}

/// Refuses memory of huge pages of which the content can't be had, by what smaps told of it.
///
/// # Errors
/// The refusal.
pub fn check_huge(host_pid: i32, smaps: &Mapping, context: &DumpContext) -> Result<()> {
    if !smaps.has(b"ht") || smaps.is_segment() || smaps.is_anonymous_huge() {
        return Ok(());
    }
    if context.huge_page_on(smaps.device).is_none() {
        let what = "has huge pages of a file system that the job does not see";
        return Err(refuse(smaps, what));
    }
    let is_known = context.inode_index.contains_key(&(smaps.device, smaps.inode));
    if smaps.shared || is_known || mapped_file::open(host_pid, smaps, context)?.is_some() {
        return Ok(());
    }
    let what = "has huge pages of a file that the process has not open, and that only root can read therefore";
    Err(refuse(smaps, what))
}

/// Refuses memory whose faults a process is told of that has no userfaultfd itself: the ranges of that descriptor are
/// not told.
///
/// # Errors
/// The refusal.
pub fn check_watched(host_pid: i32, smaps: &Mapping, context: &DumpContext) -> Result<()> {
    let is_known = context.watched.contains_key(&host_pid);
    let what = "is watched by a userfaultfd of another process";
    let is_ours = is_write_watched(smaps) && context.tracking.watches(host_pid);
    if is_watched(smaps) && !is_known && !is_ours { Err(refuse(smaps, what)) } else { Ok(()) }
}

/// Why a mapped device is refused.
const DEVICE: &str = "is a device, which cannot be checkpointed";

/// Refuses a mapping that no image can hold.
///
/// # Errors
/// The refusal.
pub fn check(host_pid: i32, mapping: &Mapping, context: &DumpContext) -> Result<()> {
    let (path, _) = mapping.path();
    if mapping.is_ring() {
        return context.rings.of(host_pid, mapping).map(drop);
    }
    if path.starts_with("anon_inode:") || path.starts_with("socket:") {
        return Err(refuse(mapping, "cannot be checkpointed"));
    }
    if path == "/secretmem" && major(mapping.device) == 0 {
        return Err(refuse(mapping, "is secret memory (memfd_secret), which cannot be read"));
    }
    if mapping.is_aio() {
        return context.aio.of(host_pid, mapping).map(drop);
    }
    if path.starts_with("/dev/") && !path.starts_with("/dev/shm/") && path != "/dev/zero" {
        return Err(match interconnect::way_out(path) {
            Some(way_out) => refuse_with(mapping, DEVICE, way_out),
            None => refuse(mapping, DEVICE),
        });
    }
    Ok(())
}

fn plan_file(
    host_pid: i32,
    mapping: &Mapping,
    context: &mut DumpContext,
    windows: &mut Vec<Window>,
) -> Result<Plan> {
    let (path, deleted) = mapping.path();
    if let Some(inode) =
        segments::number(mapping).and_then(|at| segments::inode(context, host_pid, at))
    {
        windows.push(Window { inode, host_pid, mapping: mapping.clone() });
        return Ok(Plan::Shared(inode));
    }
    check(host_pid, mapping, context)?;
    // Shared memory of the kernel's own tmpfs has no path below which it could be found again. The device of
    // that name is never deleted there.
    let kernel_memory =
        path.starts_with("/memfd:") || (path == "/dev/zero" && (mapping.shared || deleted));
    if path == "/dev/zero" && !kernel_memory {
        return Ok(Plan::Anonymous);
    }
    let nameless = deleted || kernel_memory;
    let huge = context.huge_page_on(mapping.device).is_some();
    if huge && !mapping.shared {
        return Ok(Plan::Private(private_of_huge(host_pid, mapping, context, windows)));
    }
    if !mapping.shared && !nameless {
        return Ok(Plan::File);
    }
    if !mapping.shared {
        // Who has the file itself, too, sees in the one what is written to the other. Of others, and of code, the
        // content is found when the job runs again.
        let known = context.inode_index.get(&(mapping.device, mapping.inode));
        let data = mapping.protection.0 & Protection::EXEC == 0;
        return Ok(known.filter(|_| data).map_or(Plan::Whole, |inode| Plan::Private(*inode)));
    }
    let key = (mapping.device, mapping.inode);
    let is_written_elsewhere = !nameless && !huge && !context.is_session_file(path);
    if is_written_elsewhere && !context.inode_index.contains_key(&key) {
        let Some(inode) = add_written(host_pid, mapping, context) else {
            return Ok(Plan::File);
        };
        context.inode_index.insert(key, inode);
    }
    let inode = match context.inode_index.get(&key) {
        Some(inode) => *inode,
        None => add_inode(mapping, key, context),
    };
    let mut mapping = mapping.clone();
    mapping.page_size = context.inodes[inode.0 as usize].huge.unwrap_or(mapping.page_size);
    windows.push(Window { inode, host_pid, mapping });
    Ok(Plan::Shared(inode))
}

/// The file of huge pages that a process has mapped privately. Its pages are memory, too, which nobody else keeps.
fn private_of_huge(
    host_pid: i32,
    mapping: &Mapping,
    context: &mut DumpContext,
    windows: &mut Vec<Window>,
) -> InodeId {
    let key = (mapping.device, mapping.inode);
    if let Some(known) = context.inode_index.get(&key) {
        return *known;
    }
    let inode = add_inode(mapping, key, context);
    windows.push(Window { inode, host_pid, mapping: mapping.clone() });
    inode
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
        accessed_ns: None,
        number: None,
        read_only: false,
        executed: false,
        huge: context.huge_page_on(mapping.device),
        links: Vec::new(),
        attributes: None,
        content,
    });
    let inode = InodeId((context.inodes.len() - 1) as u32);
    context.inode_index.insert(key, inode);
    inode
}

/// A file outside of the session directories that is written through a mapping: its content travels. `None`: it stays
/// where it is.
fn add_written(host_pid: i32, mapping: &Mapping, context: &mut DumpContext) -> Option<InodeId> {
    if !mapping.protection.writable() {
        return None;
    }
    let (path, _) = mapping.path();
    let reached = format!("{}{path}", context.root_of(host_pid));
    let flags = libc::O_RDONLY | libc::O_NONBLOCK;
    let open = || Ok(std::fs::File::from(reopen::open_as_owner(&reached, flags)?));
    let (_, opened) = context.for_user(open).ok()?;
    let file = opened.ok()?;
    let found = file.metadata().ok()?;
    let is_it = found.is_file() && found.ino() == mapping.inode;
    if !is_it || inodes::belongs_to_another(host_pid, found.uid()) {
        return None;
    }
    let content = match context.in_place.get(&(found.dev(), found.ino())) {
        Some(known) => (*known)?,
        None => {
            let shared = in_place::is_on_shared(&file);
            let admitted = in_place::admit(path, found.size(), shared, context);
            let content = admitted.then(|| context.keep_blob(BlobData::default()));
            context.in_place.insert((found.dev(), found.ino()), content);
            content?
        }
    };
    context.inodes.push(CarriedInode {
        origin: Origin::Named { path: path.to_owned() },
        size: found.size(),
        mode: found.mode() & 0o7777,
        owner: Some((found.uid(), found.gid())),
        modified_ns: Some(modified_ns_of(&found)),
        accessed_ns: None,
        number: Some(found.ino()),
        read_only: false,
        executed: false,
        huge: None,
        links: Vec::new(),
        attributes: None,
        content,
    });
    Some(InodeId((context.inodes.len() - 1) as u32))
}

fn refuse(mapping: &Mapping, why: &str) -> EngineError {
    refuse_with(mapping, why, "unmap it while checkpoints are taken, or run without it")
}

fn refuse_with(mapping: &Mapping, why: &str, way_out: &str) -> EngineError {
    let what = format!("the mapping of {} at {:#x} {why}", mapping.name, mapping.start);
    EngineError::Refused(Refusal::new(what, way_out))
}

/// Whether an inode's content was already read through a descriptor of it.
pub fn has_content(context: &DumpContext, inode: InodeId) -> bool {
    let BlobId(blob) = context.inodes[inode.0 as usize].content;
    context.blobs[blob as usize].length > 0
}

/// The area of an image: mapping, plan and the flags that smaps tells. `identify` finds the file behind a mapping.
///
/// # Errors
/// Flags that no image can hold.
pub fn area(
    planned: &Planned,
    flags: Option<&Mapping>,
    identify: impl FnOnce(&Mapping) -> Option<MappedFile>,
) -> Result<(Area, bool)> {
    let mapping = &planned.mapping;
    let mut whole = planned.plan == Plan::Whole;
    let may_write = flags.map_or(mapping.protection.writable(), |smaps| smaps.has(b"mw"));
    let backing = match &planned.plan {
        Plan::Kernel => Backing::Kernel { name: mapping.name.clone() },
        Plan::Anonymous | Plan::Whole => Backing::Anonymous,
        Plan::Shared(inode) => {
            Backing::Carried { inode: *inode, offset: mapping.offset, writable: may_write }
        }
        Plan::Ring(file) => Backing::Ring { file: *file, offset: mapping.offset },
        Plan::Aio { head, tail, events } => {
            Backing::Aio { head: *head, tail: *tail, events: *events }
        }
        Plan::Private(inode) => {
            Backing::Carried { inode: *inode, offset: mapping.offset, writable: false }
        }
        Plan::File => match identify(mapping) {
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
    let mut advice = match flags {
        Some(smaps) if planned.plan != Plan::Kernel => advice(smaps, &planned.plan)?,
        _ => Advice::default(),
    };
    advice.watched.clone_from(&planned.watched);
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

fn advice(smaps: &Mapping, plan: &Plan) -> Result<Advice> {
    if smaps.has(b"ht") && matches!(plan, Plan::File | Plan::Whole) {
        return Err(refuse(smaps, "has become one of huge pages"));
    }
    for (flag, what) in
        [(b"io", "is device memory"), (b"pf", "is device memory"), (b"ss", "is a shadow stack")]
    {
        // Of rings older kernels say so.
        if smaps.has(flag) && !smaps.is_ring() {
            return Err(refuse(smaps, &format!("{what}, which cannot be checkpointed")));
        }
    }
    // Memory that can only be executed has a key of the kernel's, which it gets again.
    let own_key = smaps.protection.0 != Protection::EXEC;
    Ok(Advice {
        name: smaps.given.clone(),
        policy: smaps.policy.clone(),
        watched: None,
        key: if own_key { smaps.key } else { 0 },
        grows_down: smaps.has(b"gd"),
        no_reserve: smaps.has(b"nr"),
        locked: smaps.has(b"lo"),
        locked_on_fault: smaps.has(b"lf"),
        sealed: smaps.has(b"sl"),
        droppable: smaps.has(b"dp"),
        huge: (smaps.has(b"ht") && !smaps.shared).then_some(smaps.page_size),
        advise: ADVICE
            .iter()
            .filter(|(flag, _)| smaps.has(flag))
            .map(|(_, advice)| *advice)
            .collect(),
        guards: Vec::new(),
    })
}
