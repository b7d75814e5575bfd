//! io_uring(7), with nothing in flight. What the kernel keeps of a ring beside the memory that it shares with the
//! program is told by /proc/PID/fdinfo (`look`), and made again by requests that do nothing (`make`).
//!
//! A ring that a thread of the kernel's serves (IORING_SETUP_SQPOLL) has that thread in the process that makes it: it
//! is made by that process, when this is there ([`super::super::restore`]).

mod known;
mod look;
mod make;
mod names;
mod registered;
#[cfg(test)]
mod tests;

pub use known::Rings;
pub use look::MOST_GROUPS;

use std::os::fd::{AsFd, BorrowedFd};

use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::{BlobId, FileId};
use super::super::sys::uring::{
    MOST_ENTRIES, NO_ARRAY, POLLED, Places, SUBMIT_ALL, Shape, WIDE_COMPLETIONS, WIDE_REQUESTS,
    event_of, files_of,
};
use super::{DumpContext, Fate, Found, ObjectKind, Probe, RestoreContext, Saved};

/// Flags that are told, and make a difference to what lies where.
const TOLD: u32 = POLLED | WIDE_REQUESTS | WIDE_COMPLETIONS | NO_ARRAY;
/// Most requests that all rings of a job may have had together: a restart counts up to them, some ten million in a
/// second.
const MOST_REQUESTS: u64 = 1 << 30;
/// Most buffers that one ring may have registered: what fits into the room for arguments.
const MOST_BUFFERS: usize = 4096;

/// A ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ring {
    /// Places for requests, a power of two.
    requests: u32,
    /// Places for completions, a power of two.
    completions: u32,
    /// IORING_SETUP_*, as far as they are told.
    flags: u32,
    /// Where the program expects things in the memory.
    places: Places,
    /// Requests that the kernel has taken since the ring was made.
    taken: u32,
    /// Completions that it has written.
    completed: u32,
    /// The program's place among requests.
    tail: u32,
    /// The program's place among completions.
    head: u32,
    /// Requests that were none.
    dropped: u32,
    /// Completions that were lost.
    overflow: u32,
    /// IORING_CQ_*
    completion_flags: u32,
    /// Completions, and which request is in which place.
    content: BlobId,
    /// Requests.
    queue: BlobId,
    /// Registered files by their places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    files: Vec<Option<FileId>>,
    /// Registered buffers by their places: address and bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    buffers: Vec<Option<(u64, u64)>>,
    /// The eventfd that is told of completions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<FileId>,
    /// While the dump looks for them: what the registered files are called, and whether there is an eventfd.
    #[serde(skip)]
    names: Vec<Option<String>>,
    #[serde(skip)]
    has_event: bool,
    /// Only one thread may ask it anything (IORING_SETUP_SINGLE_ISSUER).
    #[serde(skip)]
    is_single: bool,
    /// The eventfd that is registered, if one is.
    #[serde(skip)]
    perhaps: Option<FileId>,
}

impl Ring {
    /// Whether a thread of the kernel's serves it.
    pub fn is_polled(&self) -> bool {
        self.flags & POLLED != 0
    }

    /// What it is made with. A kernel that does not stop at a request that is wrong, which is not told, never leaves
    /// one waiting.
    pub fn shape(&self) -> Shape {
        let (requests, completions) = (self.requests, self.completions);
        Shape { requests, completions, flags: self.flags | SUBMIT_ALL }
    }

    /// Descriptions that are registered with it.
    pub fn registered(&self) -> impl Iterator<Item = FileId> + '_ {
        self.files.iter().flatten().copied()
    }

    /// Whether one thread of the job alone may ask it what is registered.
    pub fn is_single(&self) -> bool {
        self.is_single
    }

    /// That thread has been told that there is an eventfd.
    ///
    /// # Errors
    /// A refusal where it can't be told which.
    pub fn has_event(&mut self) -> Result<()> {
        self.event = self.perhaps;
        match self.event {
            Some(_) => Ok(()),
            None => {
                let what = "an io_uring with an eventfd registered, which its holders have not open, or not alone";
                Err(Refusal::new(what, "unregister it while checkpoints are taken").into())
            }
        }
    }

    /// That thread has been told that there are provided buffers.
    pub fn refuse_groups() -> EngineError {
        Refusal::new(format!("an io_uring {}", look::PROVIDED), look::CLOSE).into()
    }

    /// Registered buffers.
    pub fn buffers(&self) -> &[Option<(u64, u64)>] {
        &self.buffers
    }

    /// Counts up to where it was, and puts its content back: of a new ring of its shape.
    ///
    /// # Errors
    /// A kernel that has things elsewhere; damage.
    pub fn fill(
        &self,
        ring: BorrowedFd<'_>,
        places: Places,
        context: &RestoreContext<'_>,
    ) -> Result<()> {
        make::fill(self, ring, places, context)
    }

    /// Registers what was registered with it, but for buffers.
    ///
    /// # Errors
    /// Failed calls.
    pub fn register(&self, ring: BorrowedFd<'_>, context: &RestoreContext<'_>) -> Result<()> {
        let failed = |errno| EngineError::system("io_uring_register", "what a ring had", errno);
        let number = |id: FileId| {
            use std::os::fd::AsRawFd;
            context.parked(id).map(|fd| fd.as_raw_fd())
        };
        if !self.files.is_empty() {
            let one = |file: &Option<FileId>| file.map_or(Ok(-1), number);
            let numbers: Vec<i32> = self.files.iter().map(one).collect::<Result<_>>()?;
            files_of(ring, &numbers).map_err(failed)?;
        }
        match self.event {
            Some(event) => event_of(ring, number(event)?).map_err(failed),
            None => Ok(()),
        }
    }

    /// This machine has none for the job.
    pub fn unfit(errno: nix::errno::Errno) -> EngineError {
        make::unfit(errno)
    }

    fn check(&self) -> Result<()> {
        let fits = |entries: u32, most: u32| entries.is_power_of_two() && entries <= most;
        let whole = fits(self.requests, MOST_ENTRIES)
            && fits(self.completions, 2 * MOST_ENTRIES)
            && self.requests <= self.completions
            && self.flags & !TOLD == 0
            && self.completed.wrapping_sub(self.head) <= self.completions
            && self.tail.wrapping_sub(self.taken) <= self.requests
            && (!self.is_polled() || self.tail == self.taken)
            && u64::from(self.completed) + u64::from(self.skipped()) <= MOST_REQUESTS
            && self.buffers.len() <= MOST_BUFFERS
            && self.files.len() <= MOST_ENTRIES as usize;
        match whole {
            true => Ok(()),
            false => Err(EngineError::Damaged("a ring of a size or state that none has".into())),
        }
    }

    /// Requests without a completion.
    fn skipped(&self) -> u32 {
        self.taken.wrapping_sub(self.completed)
    }
}

impl ObjectKind for Ring {
    fn recognise(probe: &Probe) -> bool {
        probe.is_anonymous("[io_uring]")
    }

    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        look::look(probe, context)
    }

    fn finish(all: &mut [Found<'_, Self>], context: &mut DumpContext) -> Result<()> {
        let mut requests = 0;
        for found in all {
            let probe = found.probe;
            let named = |error: EngineError| error.at(probe.pid, &probe.comm, probe.fd);
            let ring = &mut *found.object;
            requests += u64::from(ring.completed) + u64::from(ring.skipped());
            if requests > MOST_REQUESTS {
                let what = format!(
                    "an io_uring that with the job's others has had more than {MOST_REQUESTS} requests, up to which a \
                     restart would have to count"
                );
                return Err(named(Refusal::new(what, "make a new one from time to time").into()));
            }
            let holders = context.holders(found.id);
            if ring.is_polled() && holders.len() != 1 {
                let what = "an io_uring with a thread of the kernel's (SQPOLL) that several processes hold";
                return Err(named(Refusal::new(what, "close it in all but one").into()));
            }
            registered::find(ring, &holders, context).map_err(named)?;
            let keeper = holders.first().copied().filter(|_| ring.is_polled());
            context.rings.add(probe.inode(), found.id, keeper);
        }
        Ok(())
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        let requests = |ring: &Self| u64::from(ring.completed) + u64::from(ring.skipped());
        if all.iter().map(|saved| requests(saved.object)).sum::<u64>() > MOST_REQUESTS {
            return Err(EngineError::Damaged("rings with more requests than are counted".into()));
        }
        for saved in all {
            saved.object.check()?;
            if saved.object.is_polled() {
                context.await_process(saved.id)?;
                continue;
            }
            let (ring, places) = make::make(saved.object.shape())?;
            saved.object.fill(ring.as_fd(), places, context)?;
            context.park(saved.id, ring)?;
        }
        Ok(())
    }

    fn wire(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        let made = all.iter().filter(|saved| !saved.object.is_polled());
        made.into_iter()
            .try_for_each(|saved| saved.object.register(context.parked(saved.id)?, context))
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}
