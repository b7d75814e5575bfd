//! Events that a program has not read yet: found out by reading them, and put back at once.
//!
//! While they are put back, the watches that they are of have to give way to stand-ins. A second instance watches the same
//! files meanwhile, so that nothing that happens there is missed: what it has seen is put behind the others, and all is done
//! once more.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;

use super::super::super::error::{EngineError, Refusal, Result};
use super::super::super::names;
use super::super::super::sys::inotify;
use super::super::{FdInfo, Probe, reopen};
use super::events::{self, Event};
use super::queue;
use super::standins::{QUIET, Scratch, watch};
use super::{Unread, Watch};

/// How often that is done before the instance tells that events were lost.
const ROUNDS: usize = 6;

/// What is watched, by an instance of which nobody reads meanwhile.
struct Watched<'a> {
    watch: &'a Watch,
    /// O_PATH.
    target: &'a OwnedFd,
}

/// The events of an instance, which has them afterwards as before. `targets`: what is watched, one for each watch.
///
/// # Errors
/// A refusal where they can't be put back, before they are touched; failed calls: the instance has its watches then and
/// tells that events were lost.
pub(super) fn take(probe: &Probe, watches: &[Watch], targets: &[OwnedFd]) -> Result<Unread> {
    let instance = probe.copy.as_fd();
    let refuse = |why: String| -> EngineError {
        let what = format!("is inotify with events that are not read yet, and {why}");
        Refusal::passing(what, "it is taken once the program has read them").into()
    };
    if probe.flags & libc::O_ASYNC != 0 {
        return Err(refuse("a signal for each (O_ASYNC)".into()));
    }
    if queue::is_too_long() {
        return Err(refuse("fs.inotify.max_queued_events is above a million".into()));
    }
    let failed = |error: io::Error| refuse(format!("they can't be put aside ({error})"));
    let paths: Vec<_> = watches.iter().map(|watch| names::path(&watch.path)).collect();
    let paths: Vec<&Path> = paths.iter().map(AsRef::as_ref).collect();
    let scratch = Scratch::new(&paths)?;
    let all: Vec<Watched<'_>> =
        watches.iter().zip(targets).map(|(watch, target)| Watched { watch, target }).collect();
    let guard = Guard::begin(&all).map_err(failed)?;
    if !guard.can_choose() {
        return Err(refuse("this kernel has no CONFIG_CHECKPOINT_RESTORE".into()));
    }
    if !shows_all_flags(&scratch).map_err(failed)? {
        return Err(refuse(
            "this kernel (before Linux 5.19) does not tell all flags of watches".into(),
        ));
    }
    let next = next_number(instance, &scratch).map_err(failed)?;
    let own = |event: &Event| event.watch == next && event.is_ignored();
    let taken = Taken { instance, scratch: &scratch, all: &all, next };
    let done = queue::read_all(instance).map_err(io::Error::from).and_then(|read| {
        taken.put_back(read.into_iter().filter(|event| !own(event)).collect(), &guard)
    });
    done.map(|events| Unread { events, next })
        .map_err(|error| EngineError::system("putting back", "events of inotify", error))
}

/// The number that the next watch would have, found out by one that is gone again.
fn next_number(instance: BorrowedFd<'_>, scratch: &Scratch) -> io::Result<i32> {
    let file = scratch.path("next");
    std::fs::write(&file, "")?;
    let next = inotify::add(instance, &file, QUIET)?;
    inotify::remove(instance, next)?;
    Ok(next)
}

/// Whether fdinfo shows that a watch is told of once alone (IN_ONESHOT), and not of files that are gone (IN_EXCL_UNLINK).
fn shows_all_flags(scratch: &Scratch) -> io::Result<bool> {
    let file = scratch.path("flags");
    std::fs::write(&file, "")?;
    let instance = inotify::make(libc::O_NONBLOCK)?;
    let flags = libc::IN_ONESHOT | libc::IN_EXCL_UNLINK;
    inotify::add(instance.as_fd(), &file, QUIET | libc::IN_ATTRIB | flags)?;
    let info = FdInfo::of_own(instance.as_fd()).map_err(io::Error::other)?;
    let shown = info.lines("inotify wd").next().and_then(super::parse);
    Ok(shown.is_some_and(|shown| shown.mask & flags == flags))
}

/// An instance whose events were read.
struct Taken<'a> {
    instance: BorrowedFd<'a>,
    scratch: &'a Scratch,
    all: &'a [Watched<'a>],
    next: i32,
}

impl Taken<'_> {
    /// All events that it has afterwards.
    fn put_back(&self, read: Vec<Event>, guard: &Guard) -> io::Result<Vec<Event>> {
        let mut events = events::possible(read);
        for round in 0..=ROUNDS {
            let is_last = round == ROUNDS;
            if is_last && !events.iter().any(Event::is_overflow) {
                // Something happens there without an end.
                events.push(Event::overflow());
            }
            let filled = self.fill(&mut events, round == 0);
            let seen = guard.read()?;
            match filled {
                Ok(()) if seen.is_empty() || is_last => return Ok(events),
                Err(error) if seen.is_empty() || is_last => {
                    let told = self.fill(&mut vec![Event::overflow()], false);
                    let all: Vec<_> = self.all.iter().collect();
                    // Those that are there are set as they are.
                    return self.watch_again(&all).and(told).and(Err(error));
                }
                _ => {}
            }
            events::join(&mut events, seen);
            events = events::possible(events);
        }
        Ok(events)
    }

    /// Has the instance have these events and nothing else, and its watches as before. What was queued since they were read
    /// is added to them where it `is_new`.
    fn fill(&self, events: &mut Vec<Event>, is_new: bool) -> io::Result<()> {
        let numbers: BTreeSet<i32> = events.iter().map(|event| event.watch).collect();
        let concerned: Vec<_> =
            self.all.iter().filter(|watched| numbers.contains(&watched.watch.number)).collect();
        let removed = concerned
            .iter()
            .try_for_each(|watched| inotify::remove(self.instance, watched.watch.number));
        let queued = removed.and_then(|()| queue::read_all(self.instance));
        let filled = queued.map_err(io::Error::from).and_then(|queued| {
            if is_new {
                let is_own = |event: &Event| event.is_ignored() && numbers.contains(&event.watch);
                let new = queued.into_iter().filter(|event| !is_own(event)).collect();
                events.extend(events::possible(new));
            }
            queue::fill(self.instance, self.scratch, events)
        });
        let again = self.watch_again(&concerned);
        filled.and(again)
    }

    /// Sets watches as they were, all that can be: the first error.
    fn watch_again(&self, watches: &[&Watched<'_>]) -> io::Result<()> {
        let set = |watched: &&Watched<'_>| {
            let path = reopen::magic_link(watched.target);
            watch(self.instance, path.as_ref(), watched.watch.mask, watched.watch.number)
        };
        let set: Vec<io::Result<()>> = watches.iter().map(set).collect();
        inotify::ask_for_number(self.instance, self.next);
        set.into_iter().collect()
    }
}

/// A second instance with the same watches.
struct Guard {
    instance: OwnedFd,
    /// The numbers of the first one's watches, by its own.
    numbers: BTreeMap<i32, i32>,
}

impl Guard {
    fn begin(all: &[Watched<'_>]) -> io::Result<Self> {
        let instance = inotify::make(libc::O_NONBLOCK)?;
        let mut numbers = BTreeMap::new();
        for watched in all {
            let mask = watched.watch.mask & (libc::IN_ALL_EVENTS | libc::IN_EXCL_UNLINK);
            let path = reopen::magic_link(watched.target);
            let number = inotify::add(instance.as_fd(), path, mask)?;
            numbers.insert(number, watched.watch.number);
        }
        Ok(Self { instance, numbers })
    }

    /// Whether the number of a watch can be chosen.
    fn can_choose(&self) -> bool {
        inotify::ask_for_number(self.instance.as_fd(), i32::MAX / 2)
    }

    /// What has happened since the last time.
    fn read(&self) -> nix::Result<Vec<Event>> {
        let read = queue::read_all(self.instance.as_fd())?;
        read.into_iter()
            .map(|event| {
                if event.is_overflow() {
                    return Ok(event);
                }
                let watch = *self.numbers.get(&event.watch).ok_or(Errno::EBADMSG)?;
                Ok(Event { watch, ..event })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};

    use nix::fcntl::{OFlag, open};
    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn nothing_is_missed_that_happens_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let instance = inotify::make(libc::O_NONBLOCK).unwrap();
        let mask = libc::IN_CREATE;
        let number = inotify::add(instance.as_fd(), folder.path(), mask).unwrap();
        let path = names::text(folder.path());
        let watch = Watch { number, path, mask, file: None, held: None };
        let target = open(folder.path(), OFlag::O_PATH, Mode::empty()).unwrap();
        let all = [Watched { watch: &watch, target: &target }];
        let scratch = Scratch::new(&[]).unwrap();
        let ended = AtomicBool::new(false);
        fs::write(folder.path().join("0"), "").unwrap();
        let made = std::thread::scope(|scope| {
            let maker = scope.spawn(|| {
                let mut made = 1;
                while !ended.load(Ordering::Relaxed) && made < 2000 {
                    fs::write(folder.path().join(made.to_string()), "").unwrap();
                    made += 1;
                    std::thread::sleep(std::time::Duration::from_millis(made % 40));
                }
                made
            });
            let guard = Guard::begin(&all).unwrap();
            let taken = Taken { instance: instance.as_fd(), scratch: &scratch, all: &all, next: 2 };
            let read = queue::read_all(instance.as_fd()).unwrap();
            taken.put_back(read, &guard).unwrap();
            ended.store(true, Ordering::Relaxed);
            maker.join().unwrap()
        });
        let events = queue::read_all(instance.as_fd()).unwrap();
        let is_told = |name: u64| events.iter().any(|event| event.name == name.to_string());
        let missed = (0..made).filter(|name| !is_told(*name)).count();
        assert!(missed == 0 || events.iter().any(Event::is_overflow), "{missed} of {made}");
        fs::write(folder.path().join("after"), "").unwrap();
        let last = queue::read_all(instance.as_fd()).unwrap();
        assert_eq!(last.len(), 1);
        assert_eq!((last[0].watch, &*last[0].name), (number, "after"));
    }
}
