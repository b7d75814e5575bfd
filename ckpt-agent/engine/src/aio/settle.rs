//! A dump makes sure that nothing is in flight in a context. No interface tells it, but every request holds a place of the ring
//! from when it is submitted until its event is taken. So all places that are free are taken, by requests that wait: those that
//! are missing are the job's. Then the ring is turned until it is as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tracing::trace;

use super::super::arch::words::WORD;
use super::super::error::{EngineError, Refusal, Result};
use super::super::freeze::StoppedProcess;
use super::super::graph::Protection;
use super::super::proc::Mapping;
use super::super::sys::processors;
use super::super::trace::{ProcessMemory, Remote};
use super::ring::{EVENT, HEADER, Head, MOST_PLACES, left_over};
use super::worker::{LOOK_AGAIN, Worker, is_unknown};

/// How long the next of the requests in flight is waited for, and how long all of them: a disk has ended them by then.
const LINGER: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(1);

/// Contexts of a job in which nothing is in flight, by process (as this machine numbers it) and address.
#[derive(Debug, Default)]
pub struct Contexts {
    settled: BTreeMap<(i32, u64), Settled>,
    /// Rings that were met, by device and inode.
    met: BTreeSet<(u64, u64)>,
}

/// A context in which nothing is in flight.
#[derive(Debug, Clone)]
pub struct Settled {
    /// How far the program is.
    pub head: u32,
    /// How far the kernel is.
    pub tail: u32,
    /// Events that the program has not taken.
    pub events: Vec<u8>,
}

impl Contexts {
    /// The context whose ring this is.
    ///
    /// # Errors
    /// A refusal of one that was made just before the job stood.
    pub fn of(&self, host_pid: i32, mapping: &Mapping) -> Result<&Settled> {
        let settled = self.settled.get(&(host_pid, mapping.start));
        settled.ok_or_else(|| {
            let what = named(mapping.start, "that has just been made");
            Refusal::passing(what, "try again").into()
        })
    }
}

/// Refuses what can't be looked into, by what is seen from outside.
///
/// # Errors
/// The refusal.
pub fn check(host_pid: i32, rings: &[Mapping], contexts: &mut Contexts) -> Result<()> {
    for ring in rings {
        let refuse = |what: &str, way_out: &str| {
            Err(EngineError::from(Refusal::new(named(ring.start, what), way_out)))
        };
        if WORD != size_of::<u64>() {
            return refuse("of a 32-bit program, which is not kept", GIVE_UP);
        }
        if !contexts.met.insert((ring.device, ring.inode)) {
            return refuse(OF_ANOTHER, UNMAP);
        }
        let both = Protection::READ | Protection::WRITE;
        let head = head(host_pid, ring)?;
        if ring.protection.0 != both || ring.offset != 0 || head.is_none() {
            return refuse("whose ring the program has changed", GIVE_UP);
        }
        if head.is_some_and(|head| head.places > MOST_PLACES) {
            return refuse("for too many requests", "have it made for 16000 at most");
        }
    }
    Ok(())
}

/// Waits a moment until nothing is in flight in the contexts of a process, whose rings have been checked.
///
/// # Errors
/// Refusals of requests that do not end; the process's end. The contexts are as before.
pub fn settle(
    process: &mut StoppedProcess,
    entry_point: u64,
    rings: &[Mapping],
    contexts: &mut Contexts,
) -> Result<()> {
    let host_pid = process.host_pid;
    let found = {
        let mut remote = process.lend(entry_point)?;
        rings.iter().map(|ring| look(&mut remote, host_pid, ring)).collect::<Result<Vec<_>>>()
    };
    // What locks all memory to come shows by the scratch area of the snapshot alone.
    process.take_scratch_out()?;
    for (ring, settled) in rings.iter().zip(found?) {
        contexts.settled.insert((host_pid, ring.start), settled);
    }
    Ok(())
}

const GIVE_UP: &str = "give it up with io_destroy while checkpoints are taken, or run without it";
const OF_ANOTHER: &str = "that belongs to another process, from which this one has its memory";
const UNMAP: &str = "unmap it after fork(2), or have it kept from children (MADV_DONTFORK)";

fn named(at: u64, what: &str) -> String {
    format!("has a context of asynchronous input and output at {at:#x} {what}")
}

fn head(host_pid: i32, ring: &Mapping) -> Result<Option<Head>> {
    let mut bytes = [0; HEADER];
    ProcessMemory::of(host_pid).read(ring.start, &mut bytes)?;
    Ok(Head::parse(&bytes, ring.length()))
}

fn look(remote: &mut Remote<'_>, host_pid: i32, ring: &Mapping) -> Result<Settled> {
    let refuse = |what: &str, way_out: &str| {
        EngineError::from(Refusal::new(named(ring.start, what), way_out))
    };
    let before = head(host_pid, ring)?;
    let before = before.ok_or_else(|| refuse("whose ring the program has changed", GIVE_UP))?;
    let silent = || refuse("on a machine that does not tell its processors", GIVE_UP);
    let processors = processors::possible().ok_or_else(silent)?;
    let usable = (before.places - 1).saturating_sub(left_over(before.places, processors));
    let worker = Worker::begin(remote, ring.start, ring.length(), before.places)?;
    let mut worker = worker.ok_or_else(|| refuse(OF_ANOTHER, UNMAP))?;
    let counted = in_flight(&mut worker, before, usable);
    let turned = turn_back(&mut worker, before, counted.as_ref().is_ok_and(Count::is_none));
    let ended = worker.end();
    let count = counted.map_err(|error| match is_unknown(&error) {
        true => {
            refuse("on a kernel before Linux 4.18, which can't tell what is in flight", GIVE_UP)
        }
        false => error,
    });
    let (settled, count) = (turned?, count?);
    ended?;
    match count {
        Count::None => Ok(settled),
        Count::Some(count) => {
            let what = format!("with {count} requests in flight");
            let way_out = "wait for them, or cancel them, while checkpoints are taken";
            Err(Refusal::passing(named(ring.start, &what), way_out).into())
        }
        Count::Wrong => Err(refuse("whose program has lost its place in it", GIVE_UP)),
    }
}

/// What is in flight.
#[derive(Debug, PartialEq, Eq)]
enum Count {
    None,
    /// At most so many requests.
    Some(u32),
    /// More places are free than there can be.
    Wrong,
}

impl Count {
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// Counts what is in flight, and waits a moment until nothing is. All free places are taken meanwhile.
fn in_flight(worker: &mut Worker<'_, '_>, before: Head, usable: u32) -> Result<Count> {
    let Some(free) = usable.checked_sub(before.unread()) else { return Ok(Count::Wrong) };
    let held = worker.submit_anywhere(free)?;
    if held == free && worker.submit(1)? > 0 {
        return Ok(Count::Wrong);
    }
    let begun = Instant::now();
    let (mut last, mut since) = (None, begun);
    loop {
        let count = usable.saturating_sub(held).saturating_sub(worker.head()?.unread());
        if last.replace(count) != Some(count) {
            trace!(count, held, "in flight");
            since = Instant::now();
        }
        match count {
            0 => return Ok(Count::None),
            count if since.elapsed() > LINGER || begun.elapsed() > PATIENCE => {
                return Ok(Count::Some(count));
            }
            _ => std::thread::sleep(LOOK_AGAIN),
        }
    }
}

/// Gives the places back and brings the ring to where it was, with what has come to it meanwhile.
fn turn_back(worker: &mut Worker<'_, '_>, before: Head, at_rest: bool) -> Result<Settled> {
    if worker.is_idle() {
        let events = worker.events(before.head, before.unread())?;
        return Ok(Settled { head: before.head, tail: before.tail, events });
    }
    // What nobody reads any more is put back, too, but for what a request could write over.
    let whole = worker.events(before.head, before.places)?;
    worker.release()?;
    let now = worker.turn(before.head, Vec::new())?;
    if at_rest && now.head == before.head {
        let read = whole.get(now.unread() as usize * EVENT..).unwrap_or_default();
        worker.put(now.tail, read)?;
    }
    let events = worker.events(now.head, now.unread())?;
    Ok(Settled { head: now.head, tail: now.tail, events })
}
