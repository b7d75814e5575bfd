//! Replaces a helper's memory by that of the image.

use super::super::arch::words::WORD;
use super::super::arch::{Architecture, Call, Current, calls as numbers};
use super::super::error::{EngineError, Result};
use super::super::graph::{Area, Backing, ProcessImage, Protection, StoredWindow, too_short};
use super::super::inodes::segments;
use super::super::proc::{Mapping, read_maps};
use super::super::sys::memory_map::Means;
use super::super::sys::prctl::option;
use super::super::sys::{abi, trial};
use super::super::trace::{
    Batch, ProcessMemory, Remote, SCRATCH_SIZE, StoppedThread, find_kernel_entry,
};
use super::common::{Common, on_all_cores};
use super::huge_pages::{self, Made};
use super::layout::{Occupied, gaps};
use super::mapped::MappedFiles;
use super::memory_map::{self, move_break};

/// MADV_GUARD_INSTALL (include/uapi/asm-generic/mman-common.h), since Linux 6.13.
const MADV_GUARD_INSTALL: u64 = 102;

/// A helper whose memory has the image's layout; its pages are not filled yet.
#[derive(Debug)]
pub struct Laid {
    /// Where calls enter the kernel: in the vdso at its final place.
    pub entry_point: u64,
    /// Whether its heap ends where the image has it, or will when it is complete.
    pub break_moved: bool,
    /// Bytes of huge pages that are ordinary ones here.
    pub ordinary: u64,
}

/// A named call of a batch whose failure matters.
struct Calls<'p> {
    batch: Batch,
    names: Vec<(&'static str, String)>,
    image: &'p ProcessImage,
}

impl<'p> Calls<'p> {
    fn new(image: &'p ProcessImage) -> Self {
        Self { batch: Batch::new(), names: Vec::new(), image }
    }

    fn add(&mut self, name: &'static str, what: String, number: impl Into<i64>, arguments: &[u64]) {
        self.batch.add(number, arguments);
        self.names.push((name, what));
    }

    /// Runs all; the first failure becomes the error.
    fn run(self, remote: &mut Remote<'_>) -> Result<()> {
        let answers = remote.run(&self.batch)?;
        for (answer, (name, what)) in answers.iter().zip(self.names) {
            if (-4095..0).contains(answer) {
                return Err(EngineError::system(
                    name,
                    format!("{what} in process {}", self.image.pid),
                    nix::errno::Errno::from_raw(-*answer as i32),
                ));
            }
        }
        Ok(())
    }
}

/// Gives a stopped helper the image's mappings; those that it has inherited stay. The scratch area stays, for what
/// follows.
///
/// # Errors
/// Where a mapping cannot be made; a kernel whose vdso is of another shape.
pub fn lay_out(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    files: &MappedFiles,
    common: &Common,
    page: u64,
) -> Result<Laid> {
    let current = read_maps(remote.thread().tid())?;
    let mut occupied = taken_by(&current, image);
    let by_hand = files.means() == Means::Nothing;
    if by_hand {
        // The heap's end goes there through all that is below.
        occupied.prefer_above(memory_map::end_of_heap(image));
    }
    let scratch = remote.make_scratch(Some(occupied.take(SCRATCH_SIZE)?))?;
    if !scratch.executable {
        return Err(no_executable_memory());
    }
    allocate_keys(remote, image.attributes.keys)?;
    let foreign = files.foreign_vdso();
    let mut kernel = match foreign {
        None => KernelAreas::new(&current, image)?,
        Some(_) => KernelAreas::apart(&current)?,
    };
    if foreign.is_some() {
        // They stay there: far from heaps, which they would keep from growing, and from where the kernel puts mappings.
        occupied.prefer_above(Current::user_top() / 2);
    }
    let parking = occupied.take(kernel.length())?;

    // First of all: where the C library is linked statically, what it has registered lies in the heap.
    let mut calls = Calls::new(image);
    forget_registrations(remote.thread(), &mut calls)?;
    calls.run(remote)?;
    if by_hand {
        memory_map::empty_heap(remote, image)?;
    }
    let mut calls = Calls::new(image);
    kernel.park(parking, &mut calls);
    let mut keep =
        vec![(scratch.base, scratch.base + SCRATCH_SIZE), (parking, parking + kernel.length())];
    let inherited = image.areas.iter().filter(|area| common.has(area));
    keep.extend(inherited.map(|area| (area.start, area.end)));
    for (start, end) in gaps(keep) {
        calls.add("munmap", format!("{start:#x}"), libc::SYS_munmap, &[start, end - start]);
    }
    match foreign {
        None => kernel.put_in_place(parking, &mut calls),
        Some(_) => kernel.stay(parking),
    }
    calls.run(remote)?;

    let entry = kernel.entry()?;
    let mut code = vec![0; entry.length as usize];
    remote.memory().read(entry.then, &mut code)?;
    let entry_point = find_kernel_entry(entry.then, &code)?;
    remote.set_entry_point(entry_point);

    let break_moved = if by_hand {
        let mut in_the_way = kernel.places();
        in_the_way.push((scratch.base, scratch.base + SCRATCH_SIZE));
        move_break(remote, image, &in_the_way, page)?
    } else {
        true
    };
    let ordinary = put_areas(remote, image, files, common, page, &mut occupied)?;
    if let Some(foreign) = foreign {
        foreign.put(remote, image, kernel.vdso_at())?;
    }
    Ok(Laid { entry_point, break_moved, ordinary })
}

fn no_executable_memory() -> EngineError {
    EngineError::Unfit {
        what: "this machine forbids memory that is both data and code".into(),
        way_out: "allow execmem for ckptd".into(),
    }
}

/// Addresses that are in use now, or will be.
fn taken_by(current: &[Mapping], image: &ProcessImage) -> Occupied {
    let mut occupied = Occupied::default();
    for mapping in current {
        occupied.add(mapping.start, mapping.end);
    }
    for area in &image.areas {
        occupied.add(area.start, area.end);
    }
    occupied
}

/// Maps the image's areas that were not inherited, and takes away what was inherited and is not the image's; how many bytes of huge
/// pages are ordinary ones here.
fn put_areas(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    files: &MappedFiles,
    common: &Common,
    page: u64,
    occupied: &mut Occupied,
) -> Result<u64> {
    let mut calls = Calls::new(image);
    let (mut advice, mut ordinary) = (Batch::new(), 0);
    if let Some((fd, length)) = files.identity(image.pid) {
        use std::os::fd::AsRawFd;
        // Far from heaps, which it would keep from growing, and from where the kernel puts mappings.
        occupied.prefer_above(Current::user_top() / 2);
        let (at, fd) = (occupied.take(length)?, fd.as_raw_fd() as u64);
        let flags = (libc::MAP_PRIVATE | abi::MAP_FIXED_NOREPLACE) as u64;
        let read = u64::from(Protection::READ);
        let Call { number, arguments } = numbers::map(at, length, read, flags, fd, 0);
        calls.add("mmap", "its identity".into(), number, &arguments);
    }
    for (start, length) in common.surplus(image) {
        let arguments = [start, length, libc::MADV_DONTNEED as u64];
        calls.add("madvise", format!("{start:#x}"), libc::SYS_madvise, &arguments);
    }
    let made = image.areas.iter().filter(|area| !files.is_segment(area) && !common.has(area));
    for area in made {
        if files.is_inner_segment(area) {
            hold(area, &mut calls);
            continue;
        }
        if let Some(huge) = area.advice.huge {
            let made = huge_pages::map(remote, area, files.of(area)?, image, huge, page)?;
            if made == Made::Huge {
                continue;
            }
            ordinary += area.end - area.start;
            if made == Made::Copied {
                continue;
            }
            map(area, image, files, page, &mut calls)?;
            let arguments = [area.start, area.end - area.start, libc::MADV_HUGEPAGE as u64];
            advice.add(libc::SYS_madvise, &arguments);
            continue;
        }
        map(area, image, files, page, &mut calls)?;
        // How large its pages are is decided when each is first written: by the content, before all other advice is given.
        // A process that is to have no huge ones at all (PR_SET_THP_DISABLE) is told so later.
        let is_due = |value: &&i32| match **value {
            libc::MADV_HUGEPAGE => !image.thp_disable,
            value => value == libc::MADV_NOHUGEPAGE,
        };
        for value in area.advice.advise.iter().filter(is_due) {
            let arguments = [area.start, area.end - area.start, *value as u64];
            advice.add(libc::SYS_madvise, &arguments);
        }
    }
    for attachment in segments::attachments(&image.areas, files.segments(), page) {
        attach(&attachment, 0, occupied, &mut calls)?;
    }
    calls.run(remote)?;
    // A kernel without large pages has ordinary ones.
    remote.run(&advice)?;
    Ok(ordinary)
}

/// What the C library of the helper has registered with the kernel and that must not be written
/// to any more.
fn forget_registrations(thread: &StoppedThread, calls: &mut Calls<'_>) -> Result<()> {
    /// RSEQ_FLAG_UNREGISTER
    const UNREGISTER: u64 = 1;
    let (address, size, signature) = thread.rseq()?;
    if address != 0 {
        let arguments = [address, u64::from(size), UNREGISTER, u64::from(signature)];
        calls.add("rseq", "unregister".into(), abi::SYS_RSEQ, &arguments);
    }
    /// sizeof(struct robust_list_head): three words
    const ROBUST_LIST: u64 = 3 * WORD as u64;
    // Where a sandbox forbids it, the helper has registered none either.
    if trial::Call::SetRobustList.may_be_made() {
        calls.add("set_robust_list", String::new(), libc::SYS_set_robust_list, &[0, ROBUST_LIST]);
    }
    calls.add("set_tid_address", String::new(), libc::SYS_set_tid_address, &[0]);
    Ok(())
}

/// [vvar], [vvar_vclock] and [vdso], moved together, since the vdso finds its data by distance; and on 32-bit ARM
/// [sigpage], which may lie anywhere.
struct KernelAreas {
    parts: Vec<KernelArea>,
}

/// One of them.
struct KernelArea {
    name: String,
    now: u64,
    then: u64,
    length: u64,
}

impl KernelAreas {
    fn new(current: &[Mapping], image: &ProcessImage) -> Result<Self> {
        let unfit = |what: &str| EngineError::Unfit {
            what: format!("this kernel's vdso {what}"),
            way_out: "restart the job under the kernel that it ran under".into(),
        };
        let here = current
            .iter()
            .filter(|mapping| mapping.is_kernel() && !mapping.is_above_user_space())
            .map(|mapping| (mapping.name.as_str(), mapping.start, mapping.length()));
        let wanted = image.areas.iter().filter_map(|area| match &area.backing {
            Backing::Kernel { name } => Some((name.as_str(), area.start, area.end - area.start)),
            _ => None,
        });
        let together = |name: &str| name.starts_with("[v");
        let (mut here, mut wanted): (Vec<_>, Vec<_>) = (here.collect(), wanted.collect());
        // Those that keep their distance first, in their order.
        here.sort_by_key(|(name, ..)| !together(name));
        wanted.sort_by_key(|(name, ..)| !together(name));
        if here.is_empty() {
            return Err(unfit("is missing"));
        }
        let base = (here[0].1, wanted.first().ok_or_else(|| unfit("has no place in the image"))?.1);
        let same = here.len() == wanted.len()
            && here.iter().zip(&wanted).all(|((name, now, length), (wanted, then, size))| {
                name == wanted
                    && length == size
                    && (!together(name) || now.wrapping_sub(base.0) == then.wrapping_sub(base.1))
            });
        if !same {
            return Err(unfit("is laid out in another way"));
        }
        let parts = here.into_iter().zip(wanted).map(|((name, now, length), (_, then, _))| {
            KernelArea { name: name.to_owned(), now, then, length }
        });
        Ok(Self { parts: parts.collect() })
    }

    /// Those of this kernel, whatever the image has.
    fn apart(current: &[Mapping]) -> Result<Self> {
        let here =
            current.iter().filter(|mapping| mapping.is_kernel() && !mapping.is_above_user_space());
        let mut parts: Vec<KernelArea> = here
            .map(|mapping| KernelArea {
                name: mapping.name.clone(),
                now: mapping.start,
                then: mapping.start,
                length: mapping.length(),
            })
            .collect();
        parts.sort_by_key(|part| !part.name.starts_with("[v"));
        match parts.is_empty() {
            true => Err(EngineError::odd("areas of the kernel", "none")),
            false => Ok(Self { parts }),
        }
    }

    /// They are where they were parked, for good.
    fn stay(&mut self, parking: u64) {
        let offsets = self.parked();
        for (part, offset) in self.parts.iter_mut().zip(offsets) {
            part.then = parking + offset;
        }
    }

    /// Where the vdso is in the end.
    fn vdso_at(&self) -> u64 {
        self.parts.iter().find(|part| part.name == "[vdso]").map_or(0, |part| part.then)
    }

    /// Offset of each part while they are parked: those that belong together touch each other, or nearly.
    fn parked(&self) -> Vec<u64> {
        let mut next = 0;
        let mut offsets = Vec::new();
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 && part.name.starts_with("[v") {
                next = offsets[0] + (part.now - self.parts[0].now);
            }
            offsets.push(next);
            next += part.length;
        }
        offsets
    }

    fn length(&self) -> u64 {
        self.parked().iter().zip(&self.parts).map(|(at, part)| at + part.length).max().unwrap_or(0)
    }

    /// Where they are in the end.
    fn places(&self) -> Vec<(u64, u64)> {
        self.parts.iter().map(|part| (part.then, part.then + part.length)).collect()
    }

    /// To the parking place.
    fn park(&self, parking: u64, calls: &mut Calls<'_>) {
        for (part, offset) in self.parts.iter().zip(self.parked()) {
            part.move_to(parking + offset, part.now, calls);
        }
    }

    /// From there to where the image has them.
    fn put_in_place(&self, parking: u64, calls: &mut Calls<'_>) {
        for (part, offset) in self.parts.iter().zip(self.parked()) {
            part.move_to(part.then, parking + offset, calls);
        }
    }

    /// The one through which calls enter the kernel.
    fn entry(&self) -> Result<&KernelArea> {
        self.parts
            .iter()
            .find(|part| part.name == Current::ENTRY_MAPPING)
            .ok_or_else(|| EngineError::odd("areas of the kernel", "no way into it"))
    }
}

impl KernelArea {
    fn move_to(&self, to: u64, from: u64, calls: &mut Calls<'_>) {
        let arguments = [from, self.length, self.length, abi::MREMAP_TO, to];
        calls.add("mremap", self.name.clone(), libc::SYS_mremap, &arguments);
    }
}

fn map(
    area: &Area,
    image: &ProcessImage,
    files: &MappedFiles,
    page: u64,
    calls: &mut Calls<'_>,
) -> Result<()> {
    use std::os::fd::AsRawFd;
    if area.is_kernels() || area.is_shared_with_kernel() {
        return Ok(());
    }
    let mut protection = area.protection.0;
    if image.fills_unwritable(area, page) {
        protection |= Protection::WRITE;
    }
    let mut flags = abi::MAP_FIXED_NOREPLACE;
    flags |= match area.shared {
        true => libc::MAP_SHARED,
        // Elsewhere it is memory that begins as zeros, which a kernel that never drops anything would do as well.
        false if area.advice.droppable && files.can_drop() => abi::MAP_DROPPABLE,
        false => libc::MAP_PRIVATE,
    };
    if area.advice.no_reserve {
        flags |= libc::MAP_NORESERVE;
    }
    if area.advice.grows_down {
        flags |= libc::MAP_GROWSDOWN;
    }
    let (fd, offset) = match (&area.backing, files.of(area)?) {
        (Backing::File { offset, .. } | Backing::Carried { offset, .. }, Some(fd)) => {
            (fd.as_raw_fd() as u64, *offset)
        }
        _ => {
            flags |= libc::MAP_ANONYMOUS;
            (u64::MAX, 0)
        }
    };
    let what = format!("{:#x}-{:#x}", area.start, area.end);
    let length = area.end - area.start;
    let Call { number, arguments } =
        numbers::map(area.start, length, u64::from(protection), flags as u64, fd, offset);
    calls.add("mmap", what, number, &arguments);
    Ok(())
}

/// Keeps the place of a segment that is attached later.
fn hold(area: &Area, calls: &mut Calls<'_>) {
    let flags =
        abi::MAP_FIXED_NOREPLACE | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let length = area.end - area.start;
    let Call { number, arguments } =
        numbers::map(area.start, length, libc::PROT_NONE as u64, flags as u64, u64::MAX, 0);
    calls.add("mmap", format!("{:#x}", area.start), number, &arguments);
}

/// Attaches a SysV segment where it was. One that had been taken apart since is attached elsewhere, and what is
/// left of it moved to its place. `more`: further flags of shmat(2).
fn attach(
    attachment: &segments::Attachment,
    more: i32,
    occupied: &mut Occupied,
    calls: &mut Calls<'_>,
) -> Result<()> {
    let segments::Attachment { number, base, length, writable, ref areas } = *attachment;
    let what = || format!("shared memory segment {number} at {base:#x}");
    let whole = attachment.is_whole();
    let at = if whole { base } else { occupied.take(length)? };
    let (flags, given) = match writable {
        true => (0, Protection::READ | Protection::WRITE),
        false => (abi::SHM_RDONLY as u64, Protection::READ),
    };
    let flags = flags | if whole { more as u64 } else { 0 };
    calls.add("shmat", what(), numbers::SHMAT, &[number as u64, at, flags]);
    for (start, end, protection) in areas {
        let (length, from) = (end - start, at.wrapping_add(start.wrapping_sub(base)));
        if !whole {
            let arguments = [from, length, length, abi::MREMAP_TO, *start];
            calls.add("mremap", what(), libc::SYS_mremap, &arguments);
        }
        if *protection != given {
            let arguments = [*start, length, u64::from(*protection)];
            calls.add("mprotect", what(), libc::SYS_mprotect, &arguments);
        }
    }
    if !whole {
        calls.add("munmap", what(), libc::SYS_munmap, &[at, length]);
    }
    Ok(())
}

/// Once the pages are filled: final protections, advice, guard regions, and what the process shows of
/// itself in /proc.
///
/// # Errors
/// Failed calls.
pub fn finish(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    files: &MappedFiles,
    common: &Common,
    page: u64,
) -> Result<()> {
    let scratch = remote.scratch().ok_or_else(|| EngineError::odd("scratch area", "missing"))?;
    let areas =
        image.areas.iter().filter(|area| !area.is_kernels() && !area.is_shared_with_kernel());
    settle(remote, image, areas.filter(|area| !files.is_inner_segment(area)), common, page)?;
    name_areas(remote, image, scratch.data())?;
    memory_map::set(remote, image, files, scratch.data())
}

/// Attaches the segments of a process's own IPC namespace, in which it is by now.
///
/// # Errors
/// Failed calls.
pub fn attach_inner(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    files: &MappedFiles,
    common: &Common,
    page: u64,
) -> Result<()> {
    let mut occupied = taken_by(&read_maps(remote.thread().tid())?, image);
    let mut calls = Calls::new(image);
    for attachment in segments::attachments(&image.areas, files.inner_segments(), page) {
        attach(&attachment, abi::SHM_REMAP, &mut occupied, &mut calls)?;
    }
    calls.run(remote)?;
    let areas = image.areas.iter().filter(|area| files.is_inner_segment(area));
    settle(remote, image, areas, common, page)
}

/// Final protections, advice and guard regions of areas.
fn settle<'i>(
    remote: &mut Remote<'_>,
    image: &'i ProcessImage,
    areas: impl Iterator<Item = &'i Area>,
    common: &Common,
    page: u64,
) -> Result<()> {
    let mut calls = Calls::new(image);
    let mut advice = Batch::new();
    for area in areas {
        let length = area.end - area.start;
        const BOTH: u8 = Protection::READ | Protection::WRITE;
        let inherited = area.protection.0 != BOTH && common.has(area);
        if area.advice.key != 0 {
            let protection = u64::from(area.protection.0);
            let arguments = [area.start, length, protection, u64::from(area.advice.key)];
            let what = format!("{:#x}", area.start);
            calls.add("pkey_mprotect", what, libc::SYS_pkey_mprotect, &arguments);
        } else if inherited || image.fills_unwritable(area, page) {
            let arguments = [area.start, length, u64::from(area.protection.0)];
            calls.add("mprotect", format!("{:#x}", area.start), libc::SYS_mprotect, &arguments);
        }
        for value in &area.advice.advise {
            advice.add(libc::SYS_madvise, &[area.start, length, *value as u64]);
        }
        for (start, end) in &area.advice.guards {
            let arguments = [*start, end - start, MADV_GUARD_INSTALL];
            calls.add("madvise", format!("guard at {start:#x}"), libc::SYS_madvise, &arguments);
        }
        if area.advice.locked_on_fault {
            advice.add(libc::SYS_mlock2, &[area.start, length, libc::MLOCK_ONFAULT as u64]);
        } else if area.advice.locked {
            advice.add(libc::SYS_mlock, &[area.start, length]);
        }
    }
    calls.run(remote)?;
    // Advice that this kernel does not know changes no content.
    remote.run(&advice).map(drop)
}

/// Gives anonymous memory the names that the program gave it, where the kernel has names for it. `at`: the room for data.
fn name_areas(remote: &mut Remote<'_>, image: &ProcessImage, at: u64) -> Result<()> {
    /// PR_SET_VMA_ANON_NAME
    const ANON_NAME: u64 = 0;
    /// More than the kernel takes of one name.
    const LONGEST: usize = 128;
    let named: Vec<&Area> =
        image.areas.iter().filter(|area| !area.advice.name.is_empty()).collect();
    for part in named.chunks(256) {
        let mut names = vec![0; part.len() * LONGEST];
        let mut batch = Batch::new();
        for (area, (slot, place)) in
            part.iter().zip(names.chunks_exact_mut(LONGEST).zip((at..).step_by(LONGEST)))
        {
            let name = area.advice.name.as_bytes();
            let length = name.len().min(LONGEST - 1);
            slot[..length].copy_from_slice(&name[..length]);
            let arguments = [option::SET_VMA, ANON_NAME, area.start, area.end - area.start, place];
            batch.add(libc::SYS_prctl, &arguments);
        }
        remote.memory().write(at, &names)?;
        remote.run(&batch)?;
    }
    Ok(())
}

/// Allocates the protection keys that the process had, before anything else asks for one: the kernel hands out the lowest that
/// is free.
fn allocate_keys(remote: &mut Remote<'_>, keys: u32) -> Result<()> {
    if keys == 0 {
        return Ok(());
    }
    let end = u32::BITS - keys.leading_zeros();
    let mut batch = Batch::new();
    for _ in 1..end {
        batch.add(libc::SYS_pkey_alloc, &[0, 0]);
    }
    for key in (1..end).filter(|key| keys & 1 << key == 0) {
        batch.add(libc::SYS_pkey_free, &[u64::from(key)]);
    }
    let may = trial::Call::PkeyMprotect.may_be_made();
    let answers = if may { remote.run(&batch)? } else { Vec::new() };
    let mut handed_out = answers.iter().zip(1..end);
    if may && handed_out.all(|(answer, key)| *answer == i64::from(key)) {
        return Ok(());
    }
    Err(EngineError::Unfit {
        what: "the job's processes have protection keys, which this machine has not".into(),
        way_out: "restart it on a machine whose processor has them (pku)".into(),
    })
}

/// Which pages of a window that were inherited are as the image has them.
fn unchanged(
    own: &mut ProcessMemory,
    window: &StoredWindow,
    inherited: u64,
    bytes: &[u8],
    here: &mut Vec<u8>,
    page: u64,
) -> Result<u64> {
    let size = page as usize;
    let mut pages = 0;
    for (address, length) in window.only(inherited).runs(page) {
        here.resize(length as usize, 0);
        own.read(address, here)?;
        let first = (address - window.address) / page;
        for (index, content) in (first..).zip(here.chunks_exact(size)) {
            let place = window.place(index, page);
            if bytes.get(place..place + size) == Some(content) {
                pages |= 1 << index;
            }
        }
    }
    Ok(pages)
}

/// Whether any of these pages can be executed.
fn has_code(image: &ProcessImage, address: u64, length: u64) -> bool {
    image.areas.iter().any(|area| {
        area.protection.0 & Protection::EXEC != 0
            && area.start < address + length
            && address < area.end
    })
}

/// Fills these pages of processes from the store, with as many threads as there are cores. Every chunk is
/// checked against its hash before its bytes reach a process.
///
/// # Errors
/// Damage; failed writes.
pub fn fill(
    windows: &[(i32, &ProcessImage, StoredWindow)],
    reader: &ckpt_store::ChunkReader,
    common: &Common,
    page: u64,
) -> Result<()> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let next = AtomicUsize::new(0);
    let run = || -> Result<()> {
        let (mut bytes, mut here) = (Vec::new(), Vec::new());
        let mut own = ProcessMemory::of_copy(std::process::id() as i32);
        loop {
            let Some((host_pid, image, window)) = windows.get(next.fetch_add(1, Ordering::Relaxed))
            else {
                return Ok(());
            };
            let (inherited, is_done) = common.inherited(image, window);
            if is_done {
                continue;
            }
            reader.read(&window.chunk, &mut bytes)?;
            let mut memory = ProcessMemory::of(*host_pid);
            let mut wanted = *window;
            if inherited != 0 {
                wanted.pages &= !unchanged(&mut own, window, inherited, &bytes, &mut here, page)?;
            }
            bytes = wanted.taken(bytes, page)?;
            let mut from = 0;
            for (address, length) in wanted.runs(page) {
                let part = bytes.get(from..from + length as usize).ok_or_else(too_short)?;
                if Current::CODE_IS_CACHED && has_code(image, address, length) {
                    memory.write_code(address, part)?;
                } else {
                    memory.write(address, part)?;
                }
                from += length as usize;
            }
        }
    };
    on_all_cores(windows.len(), run)
}
