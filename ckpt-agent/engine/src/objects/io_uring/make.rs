//! A ring as it was: the kernel's own counts begin at zero, and go up only by requests.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::super::super::error::{EngineError, Result};
use super::super::super::sys::uring::{
    self, NO_ARRAY, Places, REQUESTS_AT, RINGS_AT, SUBMIT_ALL, Shape, Shared, WAKE, enter,
};
use super::super::RestoreContext;
use super::Ring;

/// IOSQE_CQE_SKIP_SUCCESS, since Linux 5.17: without a completion.
const SILENT: u8 = 1 << 6;
/// How long a thread of the kernel's may take for one round of requests that do nothing.
const LONGEST: Duration = Duration::from_secs(10);

/// Makes one.
pub(super) fn make(shape: Shape) -> Result<(OwnedFd, Places)> {
    let made = match uring::make(shape) {
        // Before Linux 5.18.
        Err(Errno::EINVAL) => uring::make(Shape { flags: shape.flags & !SUBMIT_ALL, ..shape }),
        made => made,
    };
    made.map_err(unfit)
}

/// This machine has none for the job.
pub(super) fn unfit(errno: Errno) -> EngineError {
    EngineError::Unfit {
        what: format!("the job has an io_uring, which can't be made here ({})", errno.desc()),
        way_out:
            "restart it where io_uring is allowed (sysctl kernel.io_uring_disabled), and no older"
                .into(),
    }
}

/// Counts up and puts the content in.
pub(super) fn fill(
    saved: &Ring,
    ring: BorrowedFd<'_>,
    places: Places,
    context: &RestoreContext<'_>,
) -> Result<()> {
    let shape = saved.shape();
    if places != saved.places {
        return Err(EngineError::Unfit {
            what: "the job has an io_uring, whose memory this kernel lays out in another way"
                .into(),
            way_out: "restart it under the kernel that it ran under".into(),
        });
    }
    let (content, queue) = (context.blob(saved.content)?, context.blob(saved.queue)?);
    let first = places.completions as usize;
    let bytes = shape.request() * shape.requests as usize;
    if content.len() != places.length(shape) - first || queue.len() != bytes {
        return Err(EngineError::Damaged("the content of a ring has not its length".into()));
    }
    let map = |offset, length| {
        Shared::of(ring, offset, length)
            .map_err(|errno| EngineError::system("mmap", "the memory of a ring", errno))
    };
    let requests = map(REQUESTS_AT, bytes)?;
    let counter =
        Counter { saved, ring, places, shape, rings: map(RINGS_AT, places.length(shape))? };
    counter.place_requests(&requests, 0);
    counter.count(saved.completed)?;
    if saved.skipped() > 0 {
        counter.place_requests(&requests, SILENT);
        counter.count(saved.skipped())?;
    }
    let rings = &counter.rings;
    let reached = [rings.get(places.request_head), rings.get(places.completion_tail)];
    if reached != [saved.taken, saved.completed] {
        let found = format!("{reached:?} instead of {} and {}", saved.taken, saved.completed);
        return Err(EngineError::odd("what a ring has counted", found));
    }
    requests.write(0, &queue);
    rings.write(first, &content);
    rings.set(places.dropped, saved.dropped);
    rings.set(places.overflow, saved.overflow);
    rings.set(places.completion_flags, saved.completion_flags);
    rings.set(places.completion_head, saved.head);
    rings.set(places.request_tail, saved.tail);
    Ok(())
}

/// Has a ring take requests that do nothing (IORING_OP_NOP, 0).
struct Counter<'a> {
    saved: &'a Ring,
    ring: BorrowedFd<'a>,
    places: Places,
    shape: Shape,
    rings: Shared,
}

impl Counter<'_> {
    fn place_requests(&self, requests: &Shared, flags: u8) {
        let size = self.shape.request();
        for place in 0..self.shape.requests {
            let mut request = vec![0; size];
            request[1] = flags;
            requests.write(place as usize * size, &request);
            if self.shape.flags & NO_ARRAY == 0 {
                let at = self.places.array + place * size_of::<u32>() as u32;
                self.rings.set(at, place);
            }
        }
    }

    /// The program's place among completions goes along, but never beyond where it was: the kernel takes as many
    /// places at once as are free, and remembers them (io_uring/io_uring.c, io_cqe_cache_refill()). Beyond it, it
    /// would write over completions that are not read yet.
    fn count(&self, requests: u32) -> Result<()> {
        let (rings, places) = (&self.rings, self.places);
        let mut left = requests;
        while left > 0 {
            let batch = left.min(self.shape.requests);
            let tail = rings.get(places.request_tail).wrapping_add(batch);
            rings.set(places.request_tail, tail);
            self.hand_over(batch, tail)?;
            left -= batch;
            let completed = rings.get(places.completion_tail);
            let unread = self.saved.completed.wrapping_sub(self.saved.head);
            let beyond = self.saved.completed.wrapping_sub(completed) < unread;
            let read = if beyond { self.saved.head } else { completed };
            rings.set(places.completion_head, read);
        }
        Ok(())
    }

    fn hand_over(&self, batch: u32, tail: u32) -> Result<()> {
        let failed =
            |errno| EngineError::system("io_uring_enter", "requests that do nothing", errno);
        if !self.saved.is_polled() {
            let taken = enter(self.ring, batch, 0).map_err(failed)?;
            return match taken == batch {
                true => Ok(()),
                false => Err(EngineError::odd("requests taken", format!("{taken} of {batch}"))),
            };
        }
        enter(self.ring, batch, WAKE).map_err(failed)?;
        let begun = Instant::now();
        while self.rings.get(self.places.request_head) != tail {
            if begun.elapsed() > LONGEST {
                let limit_ms = LONGEST.as_millis() as u64;
                let what = "requests that a thread of the kernel's takes".into();
                return Err(EngineError::TooLong { what, limit_ms });
            }
            std::hint::spin_loop();
        }
        Ok(())
    }
}
