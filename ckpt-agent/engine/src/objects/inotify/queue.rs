//! An instance whose queue has given events.
//!
//! The kernel queues nothing but what happens, so it is made to happen to [stand-ins](super::standins) that have the watches'
//! numbers. What remains is that it queues one event more, IN_IGNORED, for each stand-in that is taken away. That one is lost
//! where the queue is full and already tells that events were lost (fsnotify_insert_event() in fs/notify/notification.c), and
//! the queue is read from its front. So:
//!
//! 1. fillers until the queue is full and IN_Q_OVERFLOW follows them: `f f f f O`
//! 2. as many fillers are read as room is needed, and the events happen: `f f O a b`
//! 3. the queue is full once more, and the stand-ins are removed: nothing is added
//! 4. fillers and IN_Q_OVERFLOW are read: `a b`
//!
//! Where IN_Q_OVERFLOW is one of the events itself, they are its place: those before it, until the queue is full, it, and
//! those after it in the room of fillers that were read.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use nix::errno::Errno;

use super::super::super::sys::inotify;
use super::events::{self, Event, HEADER};
use super::standins::{Scratch, StandIns, watch};

/// How many events the kernel queues for an instance made from now on.
const LIMIT: &str = "/proc/sys/fs/inotify/max_queued_events";
/// Fillers at most: 64 times what the kernel queues by default.
const MOST_FILLERS: usize = 1 << 20;
/// Fillers between two looks at how long the queue is, which is counted through.
const STEP: usize = 1024;
/// The watch of fillers has a number from here on: nobody gets so far by counting.
const FILLER: i32 = 0x7fff_0000;
/// Bytes that are read at once: room for any event.
const AT_ONCE: usize = 1 << 16;

/// Whether so many events are queued by an instance that is made now that filling its queue would take too long.
pub(super) fn is_too_long() -> bool {
    places().is_some_and(|places| places > MOST_FILLERS)
}

/// How many events an instance queues that is made now.
fn places() -> Option<usize> {
    std::fs::read_to_string(LIMIT).ok()?.trim().parse().ok()
}

/// Reads all events that are queued.
///
/// # Errors
/// As read(2).
pub(super) fn read_all(instance: BorrowedFd<'_>) -> nix::Result<Vec<Event>> {
    let mut all = Vec::new();
    loop {
        match inotify::unread(instance)? {
            0 => return Ok(all),
            bytes => all.extend(read(instance, bytes)?),
        }
    }
}

/// Events of so many bytes at most. EAGAIN where there are none, also of an instance that waits.
fn read(instance: BorrowedFd<'_>, bytes: usize) -> nix::Result<Vec<Event>> {
    if inotify::unread(instance)? == 0 {
        return Err(Errno::EAGAIN);
    }
    let mut room = vec![0; bytes.min(AT_ONCE)];
    let length = nix::unistd::read(instance, &mut room)?;
    events::parse(&room[..length])
}

/// Has an empty queue have these events. The instance has no watches of their numbers, nor any that tells something
/// meanwhile. Where it fails, the queue is empty. If there are more of them than the instance queues, it has the first, and
/// tells that events were lost.
///
/// # Errors
/// Failed calls. EBADMSG: an event that can't be made to happen, or that is not one of these.
pub(super) fn fill(
    instance: BorrowedFd<'_>,
    scratch: &Scratch,
    wanted: &[Event],
) -> io::Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    let scratch = scratch.within()?;
    let done = Fillers::new(instance, &scratch)
        .and_then(|mut fillers| fillers.fill_around(&scratch, wanted));
    if done.is_err() {
        let numbers: BTreeSet<i32> = wanted.iter().map(|event| event.watch).collect();
        for number in numbers.into_iter().chain([FILLER]) {
            // Most of them are not there.
            let _ = inotify::remove(instance, number);
        }
        inotify::discard(instance)?;
    }
    done
}

/// In which order events are made to happen.
#[derive(Debug, PartialEq, Eq)]
struct Plan<'e> {
    /// Those before IN_Q_OVERFLOW, which fillers make.
    before: &'e [Event],
    /// Those behind it.
    after: &'e [Event],
    /// It stays.
    has_lost: bool,
}

impl<'e> Plan<'e> {
    /// For a queue of so many places besides that of IN_Q_OVERFLOW.
    fn new(wanted: &'e [Event], places: usize) -> Self {
        let lost = wanted.iter().position(Event::is_overflow);
        if lost.is_none() && wanted.len() < places {
            return Self { before: &[], after: wanted, has_lost: false };
        }
        let before = &wanted[..lost.unwrap_or(wanted.len()).min(places)];
        let after = lost.map_or(&[][..], |at| &wanted[at + 1..]);
        let room = (places - before.len()).saturating_sub(1);
        Self { before, after: &after[..after.len().min(room)], has_lost: true }
    }
}

struct Fillers<'a> {
    instance: BorrowedFd<'a>,
    file: PathBuf,
    /// Those in the queue, all at its front.
    queued: usize,
    /// The file while it is open: it tells once more when it is closed.
    opened: Option<File>,
}

impl<'a> Fillers<'a> {
    fn new(instance: BorrowedFd<'a>, scratch: &Scratch) -> io::Result<Self> {
        let file = scratch.path("filler");
        std::fs::write(&file, "")?;
        watch(instance, &file, libc::IN_OPEN | libc::IN_CLOSE_NOWRITE, FILLER)?;
        Ok(Self { instance, file, queued: 0, opened: None })
    }

    fn fill_around(&mut self, scratch: &Scratch, wanted: &[Event]) -> io::Result<()> {
        self.overflow()?;
        let plan = Plan::new(wanted, self.queued);
        let mut stand_ins = StandIns::new(self.instance, scratch, wanted)?;
        if plan.has_lost {
            let most = self.queued;
            inotify::discard(self.instance)?;
            self.queued = 0;
            self.add(most - plan.before.len())?;
            stand_ins.act(plan.before)?;
            // One too many.
            self.happen()?;
        }
        // What tells of the loss takes a place, too.
        let room = if plan.after.is_empty() { 0 } else { plan.after.len() + 1 };
        self.take(room)?;
        stand_ins.act(plan.after)?;
        stand_ins.remove()?;
        inotify::remove(self.instance, FILLER)?;
        self.take(self.queued)?;
        if !plan.has_lost && !read(self.instance, HEADER)?.iter().all(Event::is_overflow) {
            return Err(Errno::EBADMSG.into());
        }
        let events = plan.before.iter().chain(plan.after);
        let bytes: usize = events.map(Event::length).sum();
        let told = if plan.has_lost { HEADER } else { 0 };
        match inotify::unread(self.instance)? == bytes + told {
            true => Ok(()),
            // Something else has happened there, or the kernel had no memory for one of them.
            false => Err(Errno::EBADMSG.into()),
        }
    }

    /// Fills an empty queue until it tells that events were lost. How many go into it was the kernel's setting when the
    /// instance was made.
    fn overflow(&mut self) -> io::Result<()> {
        let mut step = places().unwrap_or(STEP).clamp(STEP, MOST_FILLERS);
        while self.queued <= MOST_FILLERS {
            self.add(step)?;
            step = STEP;
            let queued = inotify::unread(self.instance)? / HEADER;
            if queued < self.queued {
                // The last of them is not one of these.
                self.queued = queued - 1;
                return Ok(());
            }
        }
        Err(Errno::ENOBUFS.into())
    }

    fn add(&mut self, count: usize) -> io::Result<()> {
        (0..count).try_for_each(|_| self.happen())?;
        self.queued += count;
        Ok(())
    }

    /// One event: no two of the same follow each other, which the kernel would take for one.
    fn happen(&mut self) -> io::Result<()> {
        if self.opened.take().is_none() {
            self.opened = Some(File::open(&self.file)?);
        }
        Ok(())
    }

    /// Reads fillers from the front.
    fn take(&mut self, count: usize) -> io::Result<()> {
        let mut left = count;
        while left > 0 {
            let told = read(self.instance, left * HEADER)?;
            if told.is_empty() || told.iter().any(|event| event.watch != FILLER) {
                return Err(Errno::EBADMSG.into());
            }
            left -= told.len();
        }
        self.queued -= count;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn opened(watch: i32) -> Event {
        Event { watch, mask: libc::IN_OPEN, cookie: 0, name: String::new() }
    }

    #[test]
    fn what_does_not_fit_is_told_as_lost() {
        let all: Vec<Event> = (1..=4).map(opened).collect();
        let plan = |before, after, has_lost| Plan { before, after, has_lost };
        assert_eq!(Plan::new(&all, 5), plan(&[], &all, false));
        assert_eq!(Plan::new(&all, 4), plan(&all, &[], true));
        assert_eq!(Plan::new(&all, 3), plan(&all[..3], &[], true));
        let mut lost = all.clone();
        lost.insert(1, Event::overflow());
        assert_eq!(Plan::new(&lost, 5), plan(&all[..1], &all[1..], true));
        assert_eq!(Plan::new(&lost, 4), plan(&all[..1], &all[1..3], true));
        assert_eq!(Plan::new(&lost, 1), plan(&all[..1], &[], true));
    }

    #[test]
    fn a_queue_is_filled() {
        let instance = inotify::make(0).unwrap();
        let scratch = Scratch::new(&[]).unwrap();
        let wanted = [opened(3), Event { name: "name".into(), ..opened(7) }, opened(3)];
        fill(instance.as_fd(), &scratch, &wanted).unwrap();
        assert_eq!(read_all(instance.as_fd()).unwrap(), wanted);
        // Of a queue that can't be filled so, nothing is left.
        let wrong = [opened(3), Event { mask: libc::IN_UNMOUNT, ..opened(3) }];
        assert!(fill(instance.as_fd(), &scratch, &wrong).is_err());
        assert_eq!(read_all(instance.as_fd()).unwrap(), []);
        assert_eq!(read(instance.as_fd(), HEADER), Err(Errno::EAGAIN));
    }
}
