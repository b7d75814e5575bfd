//! Calls on a context in the process that has it. They submit one request again and again: to wait until an eventfd of ours
//! can be read (IOCB_CMD_POLL). While it can't, each request takes a place; once it can, each is complete at once.

use std::time::{Duration, Instant};

use super::super::arch::words::{WORD, to_words};
use super::super::error::{EngineError, Refusal, Result};
use super::super::sys::schedule::Visit;
use super::super::trace::Remote;
use super::ring::{EVENT, HEAD_AT, HEADER, Head, distance};

/// IOCB_CMD_POLL (include/uapi/linux/aio_abi.h), since Linux 4.18.
const POLL: u16 = 5;
/// Bytes of struct iocb.
const REQUEST: usize = 64;
/// What our events bear besides our request's address, which the job has nothing at.
const MARK: u64 = 0x6370_7464_6169_6f21;
/// Requests of one call, as many as there is room for in the scratch area.
const AT_ONCE: u32 = 8192;
/// Where the list of requests is in the room for data, behind the request and a number.
const LIST_AT: u64 = 128;
/// How long the ring is turned until the place is the right one.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long requests that are complete may take to show in the ring: far longer than they ever do.
const LONGEST: Duration = Duration::from_secs(10);
/// Pause before the ring is looked at again.
pub(super) const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// A context, and the process that has it.
#[derive(Debug)]
pub(super) struct Worker<'r, 't> {
    remote: &'r mut Remote<'t>,
    context: u64,
    length: u64,
    places: u32,
    eventfd: u64,
    /// Where our request is.
    request: u64,
    /// Requests of ours whose events were not taken out of the ring yet.
    under_way: u32,
}

impl<'r, 't> Worker<'r, 't> {
    /// Prepares requests for the context whose ring is at this address. `None`: it is not of this process.
    ///
    /// # Errors
    /// A process without room for a descriptor.
    pub(super) fn begin(
        remote: &'r mut Remote<'t>,
        context: u64,
        length: u64,
        places: u32,
    ) -> Result<Option<Self>> {
        if remote.raw(libc::SYS_io_submit, &[context, 0, 0])? != 0 {
            return Ok(None);
        }
        let request = remote.scratch_data()?;
        let listed = places.min(AT_ONCE) as usize;
        remote.memory().write(request + LIST_AT, &to_words(&vec![request; listed]))?;
        let made = remote.raw(libc::SYS_eventfd2, &[0, libc::EFD_CLOEXEC as u64])?;
        if made == -i64::from(libc::EMFILE) {
            let what = "has no descriptor free to look into a context of asynchronous input and output with";
            let way_out = "raise its limit of open files (RLIMIT_NOFILE)";
            return Err(Refusal::new(what, way_out).into());
        }
        let eventfd = remote.checked("eventfd2", made)?;
        let worker = Self { remote, context, length, places, eventfd, request, under_way: 0 };
        worker.remote.memory().write(request, &poll_for(eventfd as u32))?;
        Ok(Some(worker))
    }

    /// The ring as it is now.
    pub(super) fn head(&mut self) -> Result<Head> {
        let mut bytes = [0; HEADER];
        self.remote.memory().read(self.context, &mut bytes)?;
        let lost = || EngineError::odd("a ring of asynchronous input and output", "it is none");
        Head::parse(&bytes, self.length).ok_or_else(lost)
    }

    fn set_head(&mut self, head: u32) -> Result<()> {
        self.remote.memory().write(self.context + HEAD_AT, &head.to_ne_bytes())
    }

    /// So many events from a place on.
    pub(super) fn events(&mut self, from: u32, count: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize * EVENT];
        let (first, second) = bytes.split_at_mut(self.before_the_end(from, count));
        let base = self.context + HEADER as u64;
        self.remote.memory().read(base + u64::from(from) * EVENT as u64, first)?;
        self.remote.memory().read(base, second)?;
        Ok(bytes)
    }

    /// Writes events from a place on.
    pub(super) fn put(&mut self, from: u32, events: &[u8]) -> Result<()> {
        let count = (events.len() / EVENT) as u32;
        let (first, second) = events.split_at(self.before_the_end(from, count));
        let base = self.context + HEADER as u64;
        self.remote.memory().write(base + u64::from(from) * EVENT as u64, first)?;
        self.remote.memory().write(base, second)
    }

    /// Bytes of so many events that lie before the end of the ring.
    fn before_the_end(&self, from: u32, count: u32) -> usize {
        count.min(self.places - from) as usize * EVENT
    }

    /// Submits requests on the processor where the thread is; how many found a place.
    pub(super) fn submit(&mut self, count: u32) -> Result<u32> {
        let mut taken = 0;
        while taken < count {
            let some = (count - taken).min(AT_ONCE).min(self.places);
            let arguments = [self.context, u64::from(some), self.request + LIST_AT];
            let answer = self.remote.raw(libc::SYS_io_submit, &arguments)?;
            if answer == -i64::from(libc::EAGAIN) {
                break;
            }
            let done = self.remote.checked("io_submit", answer)? as u32;
            self.under_way += done;
            taken += done;
            if done < some {
                break;
            }
        }
        Ok(taken)
    }

    /// The same, and if places are lacking on other processors, too: each keeps some of its own. A thread that hardly gets a
    /// turn anywhere is not taken to all of them.
    pub(super) fn submit_anywhere(&mut self, count: u32) -> Result<u32> {
        let mut taken = self.submit(count)?;
        if taken == count {
            return Ok(taken);
        }
        // A machine of more processors than fit into such a set: what they keep can't be had.
        let Ok(visit) = Visit::begin(self.remote.thread().tid()) else { return Ok(taken) };
        let begun = Instant::now();
        for processor in visit.processors() {
            if taken < count && begun.elapsed() < PATIENCE && visit.go(processor as usize) {
                taken += self.submit(count - taken)?;
            }
        }
        Ok(taken)
    }

    /// Has our requests complete, those that wait and those that follow.
    pub(super) fn release(&mut self) -> Result<()> {
        let at = self.request + REQUEST as u64;
        self.remote.memory().write(at, &1_u64.to_ne_bytes())?;
        self.remote.call("write", libc::SYS_write, &[self.eventfd, at, 8]).map(drop)
    }

    /// Turns the ring until the program's place is this one and these events, and what else was in it or comes meanwhile,
    /// follow. Only after [`Worker::release`]. Where other requests end all the time, another place does as well: calls look
    /// for it in the ring.
    ///
    /// The kernel keeps a place of its own, which moves by an event alone, and counts the events that are not taken. So it
    /// has to write as many events as there will be; then others are written over them.
    ///
    /// # Errors
    /// Failed calls; a kernel that does not complete our requests. The events are in the ring all the same, as far as it lets.
    pub(super) fn turn(&mut self, head: u32, mut kept: Vec<u8>) -> Result<Head> {
        let turned = self.turn_to(head, &mut kept);
        // By now they are nowhere else.
        let filled = self.fill(kept);
        turned.and(filled)
    }

    /// Takes all events out of the ring, and turns it until the place for the next one is this one.
    fn turn_to(&mut self, head: u32, kept: &mut Vec<u8>) -> Result<()> {
        let begun = Instant::now();
        let mut tail = self.gather(kept)?;
        let first = kept.len();
        loop {
            let way = distance(tail, head, self.places);
            let others_come = kept.len() > first && begun.elapsed() > PATIENCE;
            if self.is_idle() && (way == 0 || others_come) {
                return Ok(());
            }
            if begun.elapsed() > LONGEST {
                return Err(lacking("events"));
            }
            if way == 0 || (self.submit(way)? == 0 && self.submit_anywhere(way)? == 0) {
                std::thread::sleep(LOOK_AGAIN);
            }
            tail = self.gather(kept)?;
        }
    }

    /// Puts events into the ring, behind which nothing is but what has come meanwhile.
    fn fill(&mut self, mut kept: Vec<u8>) -> Result<Head> {
        let begun = Instant::now();
        let wanted = (kept.len() / EVENT) as u32;
        let mut filled = 0;
        while filled < wanted {
            let more = self.submit_anywhere(wanted - filled)?;
            if more == 0 && begun.elapsed() > LONGEST {
                return Err(lacking("room"));
            }
            filled += more;
            if more == 0 {
                std::thread::sleep(LOOK_AGAIN);
            }
        }
        let now = self.head()?;
        let there = self.events(now.head, now.unread())?;
        kept.extend(there.chunks_exact(EVENT).filter(|event| !self.is_own(event)).flatten());
        self.put(now.head, &kept)?;
        Ok(now)
    }

    /// Takes all events out of the ring and keeps those that are not ours; the kernel's place.
    fn gather(&mut self, kept: &mut Vec<u8>) -> Result<u32> {
        let now = self.head()?;
        let events = self.events(now.head, now.unread())?;
        for event in events.chunks_exact(EVENT) {
            match self.is_own(event) {
                true => self.under_way = self.under_way.saturating_sub(1),
                false => kept.extend(event),
            }
        }
        self.set_head(now.tail)?;
        Ok(now.tail)
    }

    /// Whether all requests of ours are over, and their events taken out.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    fn is_own(&self, event: &[u8]) -> bool {
        let (data, rest) = event.split_at(size_of::<u64>());
        data == MARK.to_ne_bytes() && rest.starts_with(&self.request.to_ne_bytes())
    }

    /// Gives the descriptor back.
    pub(super) fn end(self) -> Result<()> {
        self.remote.call("close", libc::SYS_close, &[self.eventfd]).map(drop)
    }
}

/// struct iocb: a request that waits until this descriptor can be read.
pub(super) fn poll_for(fd: u32) -> [u8; REQUEST] {
    let mut request = [0; REQUEST];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = request.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(0, &MARK.to_ne_bytes());
    put(16, &POLL.to_ne_bytes());
    put(20, &fd.to_ne_bytes());
    put(24, &u64::from(libc::POLLIN as u16).to_ne_bytes());
    request
}

fn lacking(what: &str) -> EngineError {
    EngineError::odd("a ring of asynchronous input and output", format!("it lacks {what}"))
}

/// What a kernel answers that has no such requests.
pub(super) fn is_unknown(error: &EngineError) -> bool {
    matches!(error, EngineError::System { source, .. } if source.raw_os_error() == Some(libc::EINVAL))
}

const _: () = assert!(LIST_AT as usize + AT_ONCE as usize * WORD < 120 * 1024);
