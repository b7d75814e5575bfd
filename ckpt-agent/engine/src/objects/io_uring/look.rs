//! What a dump finds out about a ring, without any call in a process of the job.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::super::super::error::{EngineError, Refusal, Result};
use super::super::super::proc::{is_io_worker, thread_numbers};
use super::super::super::sys::page::page_size;
use super::super::super::sys::uring::{
    self, NO_ARRAY, POLLED, Places, REQUESTS_AT, RINGS_AT, Shape, Shared, WIDE_COMPLETIONS,
    WIDE_REQUESTS, ask_for_event, enter, has_group,
};
use super::super::super::trace::{RunningThread, StoppedThread};
use super::super::probe::FdInfo;
use super::super::{DumpContext, Probe};
use super::{MOST_BUFFERS, Ring, names};

/// IORING_CQE_F_MORE and IORING_CQE_F_NOTIF: of a request that has more than one completion.
const ONE_OF_MORE: u32 = 1 << 1 | 1 << 3;
/// IOSQE_CQE_SKIP_SUCCESS: a request that has none.
const SILENT: u8 = 1 << 6;
/// IORING_OP_MSG_RING: a request that makes a completion in another ring.
const MESSAGE: u8 = 40;

/// How long a ring is waited for whose requests are with the kernel's own threads, which run while the job stands.
const LINGER: Duration = Duration::from_millis(5);
/// Pause before it is looked at again.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// Reads a ring that has nothing in flight.
pub(super) fn look(probe: &Probe, context: &mut DumpContext) -> Result<Ring> {
    check_state(probe)?;
    let (_, places) = sample(Shape { requests: 1, completions: 2, flags: 0 })?;
    let (info, counts) = settle(probe, places)?;
    if info.get("Personalities").is_some() {
        let what = "an io_uring with registered credentials (IORING_REGISTER_PERSONALITY)";
        return Err(Refusal::new(what, CLOSE).into());
    }
    let number = |key: &str| info.number(key, 10).map(|number| number as u32);
    let mask = |key: &str| info.number(key, 16).map(|mask| (mask as u32).wrapping_add(1));
    let flags = if info.need("SqThread")?.starts_with('-') { 0 } else { POLLED };
    let shape = Shape { requests: mask("SqMask")?, completions: mask("CqMask")?, flags };
    let tail = number("SqTail")?;
    if flags & POLLED != 0 && tail != counts.taken {
        return Err(Refusal::passing("an io_uring that is just being used", "try again").into());
    }
    let shape = tell_flags(probe, shape, places, context)?;
    let (_, places) = sample(shape)?;
    let rings = map(probe, RINGS_AT, places.length(shape))?;
    let queue = map(probe, REQUESTS_AT, shape.request() * shape.requests as usize)?;
    let queue = queue.bytes(0, shape.request() * shape.requests as usize);
    let first = places.completions as usize;
    let content = rings.bytes(first, places.length(shape) - first);
    check_countable(shape, &content, &queue)?;
    let read = rings.get(places.completion_head);
    let waits = counts.completed.wrapping_sub(read);
    if waits > shape.completions || tail.wrapping_sub(counts.taken) > shape.requests {
        let what = "an io_uring whose program has lost its place in it";
        return Err(Refusal::new(what, CLOSE).into());
    }
    Ok(Ring {
        requests: shape.requests,
        completions: shape.completions,
        flags: shape.flags,
        places,
        taken: counts.taken,
        completed: counts.completed,
        tail,
        head: read,
        dropped: counts.dropped,
        overflow: counts.overflow,
        completion_flags: rings.get(places.completion_flags),
        content: context.keep(content),
        queue: context.keep(queue),
        files: Vec::new(),
        buffers: buffers(&info)?,
        event: None,
        names: file_names(&info)?,
        has_event: ask_for_event(probe.copy.as_fd()) == Errno::EBUSY,
        is_single: ask_for_event(probe.copy.as_fd()) == Errno::EEXIST,
        perhaps: None,
    })
}

/// What the user can do about most of it.
pub(super) const CLOSE: &str = "close it while checkpoints are taken, or run without it";

/// What is refused of provided buffers.
pub(super) const PROVIDED: &str =
    "with provided buffers (IORING_REGISTER_PBUF_RING, IORING_OP_PROVIDE_BUFFERS)";
/// Up to which number groups of provided buffers are looked for. All 65536 would take 16 ms for each ring.
pub const MOST_GROUPS: u16 = 4096;

/// Waits a moment for a ring to come to rest. What fdinfo tells is from then: while somebody uses the ring, it leaves
/// out what takes the ring's lock (io_uring/fdinfo.c).
fn settle(probe: &Probe, places: Places) -> Result<(FdInfo, Counts)> {
    let begun = Instant::now();
    let head = map(probe, RINGS_AT, page_size() as usize)?;
    let look = || -> Result<(FdInfo, Counts)> {
        let info = FdInfo::of_own(probe.copy.as_fd())?;
        if info.get("CachedSqHead").is_none() {
            let what = "an io_uring, of which this kernel tells too little";
            return Err(Refusal::new(what, CLOSE).into());
        }
        let number = |key: &str| info.number(key, 10).map(|number| number as u32);
        let counts = Counts {
            taken: number("CachedSqHead")?,
            completed: number("CachedCqTail")?,
            dropped: head.get(places.dropped),
            overflow: head.get(places.overflow),
        };
        check_at_rest(&info, &counts)?;
        let seen = [number("SqHead")?, number("CqTail")?];
        if seen != [counts.taken, counts.completed] || info.get("UserFiles").is_none() {
            return Err(Refusal::passing("an io_uring that is just being used", "try again").into());
        }
        Ok((info, counts))
    };
    loop {
        match look() {
            Ok(_) => return look(),
            Err(error) if error.passes() && begun.elapsed() < LINGER => {
                std::thread::sleep(LOOK_AGAIN);
            }
            Err(error) => return Err(error),
        }
    }
}

struct Counts {
    taken: u32,
    completed: u32,
    dropped: u32,
    overflow: u32,
}

fn map(probe: &Probe, offset: u64, length: usize) -> Result<Shared> {
    Shared::of(probe.copy.as_fd(), offset, length).map_err(|errno| match errno {
        Errno::EINVAL => {
            let what = "an io_uring whose memory is the program's own (IORING_SETUP_NO_MMAP)";
            Refusal::new(what, CLOSE).into()
        }
        errno => EngineError::system("mmap", "the memory of an io_uring", errno),
    })
}

/// A ring of this process's own, which shows where this kernel has things.
fn sample(shape: Shape) -> Result<(std::os::fd::OwnedFd, Places)> {
    let shape = Shape { flags: shape.flags & !POLLED, ..shape };
    uring::make(shape).map_err(|errno| {
        let what = format!("an io_uring, which ckptd may not make here ({})", errno.desc());
        Refusal::new(what, CLOSE).into()
    })
}

/// Refuses what a new ring could not be given.
fn check_state(probe: &Probe) -> Result<()> {
    let ring = probe.copy.as_fd();
    let refuse = |what: &str| Err(Refusal::new(format!("an io_uring {what}"), CLOSE).into());
    match enter(ring, 0, 0) {
        Err(Errno::EBADFD) => return refuse("that is not enabled yet (IORING_SETUP_R_DISABLED)"),
        Err(Errno::EOWNERDEAD) => return refuse("whose thread of the kernel's has ended"),
        _ => {}
    }
    match ask_for_event(ring) {
        Errno::EACCES => return refuse("with restrictions (IORING_REGISTER_RESTRICTIONS)"),
        // The one thread that may ask is asked later.
        Errno::EEXIST => return Ok(()),
        _ => {}
    }
    // A group of buffers is told by its number alone. Of a kernel that tells none the last number is unlikely to be
    // used.
    let groups = || (0..MOST_GROUPS).any(|group| has_group(ring, group) != Some(false));
    if has_group(ring, u16::MAX).is_some_and(|last| last || groups()) {
        return refuse(
            "with provided buffers (IORING_REGISTER_PBUF_RING, IORING_OP_PROVIDE_BUFFERS)",
        );
    }
    Ok(())
}

/// Every request has one completion: where there are as many of one as of the other, nothing is in flight. What
/// breaks that rule is looked for elsewhere ([`check_countable`]).
fn check_at_rest(info: &FdInfo, counts: &Counts) -> Result<()> {
    const WAIT: &str = "wait for them, or cancel them, while checkpoints are taken";
    if info.below("CqOverflowList").next().is_some() {
        let what = "an io_uring with completions for which there is no room in it";
        return Err(Refusal::passing(what, "read them: try again").into());
    }
    let waiting: Vec<u8> = info.below("PollList").filter_map(operation).collect();
    let completed = counts.completed.wrapping_add(counts.overflow).wrapping_add(counts.dropped);
    let missing = counts.taken.wrapping_sub(completed) as i32;
    if missing < 0 {
        let what = "an io_uring with more completions than requests (multishot, IORING_OP_MSG_RING), where \
                    requests in flight can't be told";
        return Err(Refusal::new(what, CLOSE).into());
    }
    let missing = usize::try_from(missing).unwrap_or(0).max(waiting.len());
    if missing > 0 {
        let what = format!(
            "an io_uring with {missing} requests in flight{} (or whose completions were left out, IOSQE_CQE_SKIP_SUCCESS)",
            names::waiting(&waiting)
        );
        return Err(Refusal::passing(what, WAIT).into());
    }
    Ok(())
}

/// `op=6, task_works=0` (io_uring/fdinfo.c): what a request does that waits for a descriptor.
fn operation(line: &str) -> Option<u8> {
    line.strip_prefix("op=")?.split(',').next()?.trim().parse().ok()
}

/// Refuses a ring where as many completions as requests prove nothing, as far as its memory shows: requests with
/// several completions or with none, or for completions elsewhere.
fn check_countable(shape: Shape, content: &[u8], queue: &[u8]) -> Result<()> {
    let places = content.chunks_exact(shape.completion()).take(shape.completions as usize);
    let flags = places.filter_map(|one| one.get(12..16)?.try_into().ok().map(u32::from_ne_bytes));
    let several = flags.into_iter().any(|flags| flags & ONE_OF_MORE != 0);
    let odd = queue
        .chunks_exact(shape.request())
        .any(|one| one.first() == Some(&MESSAGE) || one.get(1).is_some_and(|f| f & SILENT != 0));
    if several || odd {
        let what = "an io_uring with requests of several completions or of none (multishot, IOSQE_CQE_SKIP_SUCCESS, \
                    IORING_OP_MSG_RING), where requests in flight can't be told";
        return Err(Refusal::new(what, CLOSE).into());
    }
    Ok(())
}

/// Finds out how large requests and completions are, and whether there is an array of places. fdinfo shows what lies
/// between heads and tails, which are in the shared memory: so these are moved for a moment, while nobody looks at
/// them.
fn tell_flags(
    probe: &Probe,
    shape: Shape,
    places: Places,
    context: &mut DumpContext,
) -> Result<Shape> {
    let mut shape = shape;
    let _standing = match shape.flags & POLLED {
        0 => Vec::new(),
        _ => stop_pollers(probe.host_pid)?,
    };
    let again = || FdInfo::of_own(probe.copy.as_fd());
    {
        let rings = map(probe, RINGS_AT, page_size() as usize)?;
        let tail = rings.get(places.completion_tail);
        let mut moved = Moved::of(&rings);
        if tail == rings.get(places.completion_head) {
            moved.set(places.completion_tail, tail.wrapping_add(1));
        }
        let shown = again()?;
        if shown.below("CQEs").any(|line| line.contains("extra1:")) {
            shape.flags |= WIDE_COMPLETIONS;
        }
    }
    let (_, places) = sample(shape)?;
    let shown = {
        let first = map(probe, RINGS_AT, page_size() as usize)?;
        let (head, tail) = (first.get(places.request_head), first.get(places.request_tail));
        let place = places.array + (head & (shape.requests - 1)) * size_of::<u32>() as u32;
        // Older kernels map no more than there is.
        let rings = map(probe, RINGS_AT, places.length(shape)).ok();
        let Some(rings) = rings.filter(|rings| rings.has(place as usize)) else {
            shape.flags |= NO_ARRAY;
            return tell_width(probe, shape, context);
        };
        let mut moved = Moved::of(&rings);
        if rings.get(place) >= shape.requests {
            moved.set(place, 0);
        }
        if tail == head {
            moved.set(places.request_tail, tail.wrapping_add(1));
        }
        again()?
    };
    let mut lines = shown.below("SQEs").filter(|line| line.contains("opcode:")).peekable();
    if lines.peek().is_none() {
        // Without an array nothing is shown (io_uring/fdinfo.c).
        shape.flags |= NO_ARRAY;
        return tell_width(probe, shape, context);
    }
    if lines.any(|line| line.contains(", e0:")) {
        shape.flags |= WIDE_REQUESTS;
    }
    Ok(shape)
}

/// How large requests are where the kernel does not tell: by the memory that there is for them, or, where that is
/// less than a page either way, by what has ever been written to it.
fn tell_width(probe: &Probe, shape: Shape, context: &mut DumpContext) -> Result<Shape> {
    let wide = Shape { flags: shape.flags | WIDE_REQUESTS, ..shape };
    let page = page_size() as usize;
    let lengths = [shape, wide].map(|shape| shape.request() * shape.requests as usize);
    let pages = lengths.map(|length| length.div_ceil(page));
    if pages[0] != pages[1] {
        // Older kernels map no more than there is.
        let whole = map(probe, REQUESTS_AT, lengths[1]);
        return Ok(if whole.is_ok_and(|whole| whole.has(lengths[1] - 1)) { wide } else { shape });
    }
    let queue = map(probe, REQUESTS_AT, lengths[1])?.bytes(0, lengths[1]);
    if queue[lengths[0]..].iter().any(|byte| *byte != 0) {
        return Ok(wide);
    }
    if probe.info.number("SqTail", 10)? <= u64::from(shape.requests / 2) {
        context.warn(format!(
            "process {} ({}), descriptor {}: an io_uring that has hardly been used does not tell whether its \
             requests have 128 bytes (IORING_SETUP_SQE128); they are taken to have 64",
            probe.pid, probe.comm, probe.fd
        ));
    }
    Ok(shape)
}

/// Numbers in the memory of a ring that are as they were when this is dropped.
struct Moved<'a> {
    rings: &'a Shared,
    before: Vec<(u32, u32)>,
}

impl<'a> Moved<'a> {
    fn of(rings: &'a Shared) -> Self {
        Self { rings, before: Vec::new() }
    }

    fn set(&mut self, offset: u32, value: u32) {
        self.before.push((offset, self.rings.get(offset)));
        self.rings.set(offset, value);
    }
}

impl Drop for Moved<'_> {
    fn drop(&mut self) {
        for (offset, value) in self.before.iter().rev() {
            self.rings.set(*offset, *value);
        }
    }
}

/// Stops the threads of a process that take requests from rings. They are no threads of the program's, which stand
/// already, and run on when these are dropped.
fn stop_pollers(host_pid: i32) -> Result<Vec<StoppedThread>> {
    let mut stopped = Vec::new();
    for tid in thread_numbers(host_pid)? {
        if tid == host_pid || !is_io_worker(host_pid, tid)? {
            continue;
        }
        let Some(thread) = RunningThread::seize(tid)? else { continue };
        thread.interrupt()?;
        stopped.extend(thread.wait_stopped()?);
    }
    Ok(stopped)
}

/// `    2: /some/path` (io_uring/fdinfo.c): the places of registered files that are taken.
pub(super) fn file_names(info: &FdInfo) -> Result<Vec<Option<String>>> {
    let count = info.number("UserFiles", 10)? as usize;
    let mut names = vec![None; count.min(uring::MOST_ENTRIES as usize + 1)];
    for line in info.below("UserFiles") {
        let odd = || EngineError::odd("a registered file in fdinfo", line);
        let (place, name) = line.split_once(':').ok_or_else(odd)?;
        let slot = place.parse().ok().and_then(|place: usize| names.get_mut(place));
        let name = name.trim_start();
        *slot.ok_or_else(odd)? = (name != "<none>").then(|| name.to_owned());
    }
    if names.len() > uring::MOST_ENTRIES as usize {
        let what = format!("an io_uring with more than {} registered files", uring::MOST_ENTRIES);
        return Err(Refusal::new(what, CLOSE).into());
    }
    Ok(names)
}

/// `    0: 0x7f0012340000/4096` (io_uring/fdinfo.c).
pub(super) fn buffers(info: &FdInfo) -> Result<Vec<Option<(u64, u64)>>> {
    let count = info.number("UserBufs", 10)? as usize;
    if count > MOST_BUFFERS {
        let what = format!("an io_uring with more than {MOST_BUFFERS} registered buffers");
        return Err(Refusal::new(what, CLOSE).into());
    }
    let mut buffers = vec![None; count];
    for line in info.below("UserBufs") {
        let odd = || EngineError::odd("a registered buffer in fdinfo", line);
        let (place, range) = line.split_once(": ").ok_or_else(odd)?;
        let slot = place.parse().ok().and_then(|place: usize| buffers.get_mut(place));
        let slot = slot.ok_or_else(odd)?;
        if let Some((address, length)) = range.split_once('/') {
            let address = u64::from_str_radix(address.trim_start_matches("0x"), 16);
            *slot = Some((address.map_err(|_| odd())?, length.parse().map_err(|_| odd())?));
        }
    }
    Ok(buffers)
}
