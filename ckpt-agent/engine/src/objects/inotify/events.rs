//! Events of inotify(7): as the kernel hands them out, and as an image has them.

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use super::super::super::error::{EngineError, Result};
use super::super::super::names;

/// Bytes of a struct inotify_event without its name.
pub(super) const HEADER: usize = 16;
/// Names are filled up with zeros to a multiple of this (round_event_name_len() in fs/notify/inotify/inotify_user.c).
const NAME_UNIT: usize = 16;
/// The longest name (NAME_MAX).
const LONGEST_NAME: usize = 255;
/// Events of one instance that an image may have: 64 times what the kernel queues by default.
const MOST: usize = 1 << 20;
/// What an event can tell: exactly one of these.
const KINDS: u32 = libc::IN_ALL_EVENTS | libc::IN_UNMOUNT | libc::IN_Q_OVERFLOW | libc::IN_IGNORED;

/// An event that nobody has read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The number of its watch; -1 of an overflow.
    pub watch: i32,
    /// What has happened: one of IN_*, and IN_ISDIR.
    pub mask: u32,
    /// What the two events of one renaming share, else 0.
    #[serde(default, skip_serializing_if = "crate::graph::is_zero")]
    pub cookie: u32,
    /// Of whom in a watched folder; empty: of what is watched itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

impl Event {
    /// That events were lost: the instance's own.
    pub(super) fn overflow() -> Self {
        Self { watch: -1, mask: libc::IN_Q_OVERFLOW, cookie: 0, name: String::new() }
    }

    /// Whether it tells that events were lost.
    pub(super) fn is_overflow(&self) -> bool {
        self.mask & libc::IN_Q_OVERFLOW != 0
    }

    /// Whether it tells that its watch is gone.
    pub(super) fn is_ignored(&self) -> bool {
        self.mask & libc::IN_IGNORED != 0
    }

    /// What has happened: one of IN_*.
    pub(super) fn what(&self) -> u32 {
        self.mask & KINDS
    }

    /// Whether it has happened to a folder.
    pub(super) fn is_of_folder(&self) -> bool {
        self.mask & libc::IN_ISDIR != 0
    }

    /// Bytes of it in the queue.
    pub(super) fn length(&self) -> usize {
        match names::bytes(&self.name).len() {
            0 => HEADER,
            name => HEADER + (name + 1).next_multiple_of(NAME_UNIT),
        }
    }

    /// Whether both tell the same. Cookies are numbers of the machine's: they tell two of one instance apart at most.
    fn is_like(&self, other: &Self) -> bool {
        (self.watch, self.mask, &self.name) == (other.watch, other.mask, &other.name)
    }

    fn fits(&self) -> bool {
        let name = names::bytes(&self.name);
        let is_name =
            !matches!(&*name, b"." | b"..") && !name.iter().any(|byte| b"/\0".contains(byte));
        let is_one = self.what().is_power_of_two() && self.mask & !(KINDS | libc::IN_ISDIR) == 0;
        let of_watch = if self.is_overflow() { self.watch == -1 } else { self.watch > 0 };
        name.len() <= LONGEST_NAME && is_name && is_one && of_watch
    }
}

/// Whether the events of an image are such as the kernel tells.
///
/// # Errors
/// [`EngineError::Damaged`]
pub(super) fn check(events: &[Event]) -> Result<()> {
    if events.len() > MOST || !events.iter().all(Event::fits) {
        return Err(EngineError::Damaged("an event of inotify that no kernel tells".into()));
    }
    Ok(())
}

/// Takes apart what read(2) has brought.
///
/// # Errors
/// EBADMSG where it is not whole events.
pub(super) fn parse(mut bytes: &[u8]) -> nix::Result<Vec<Event>> {
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let (header, rest) = bytes.split_first_chunk::<HEADER>().ok_or(Errno::EBADMSG)?;
        let word = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
        let number = |at: usize| u32::from_ne_bytes(word(at));
        let name = rest.get(..number(12) as usize).ok_or(Errno::EBADMSG)?;
        let ended = name.split(|byte| *byte == 0).next().unwrap_or_default();
        events.push(Event {
            watch: i32::from_ne_bytes(word(0)),
            mask: number(4),
            cookie: number(8),
            name: names::of_bytes(ended),
        });
        bytes = &rest[name.len()..];
    }
    Ok(events)
}

/// Events that can be made to happen: one for each thing that one tells of. Of what can't be, such as that a file system was
/// unmounted, the instance tells instead that events were lost.
pub(super) fn possible(events: Vec<Event>) -> Vec<Event> {
    let mut lost = false;
    let mut possible = Vec::with_capacity(events.len());
    for event in events {
        let bits = (0..u32::BITS).map(|bit| 1 << bit).filter(|bit| event.mask & KINDS & bit != 0);
        let of_folder = event.mask & libc::IN_ISDIR;
        let each = bits.map(|bit| Event { mask: bit | of_folder, ..event.clone() });
        let (fit, others): (Vec<_>, Vec<_>) =
            each.partition(|one| one.fits() && one.what() != libc::IN_UNMOUNT);
        lost |= !others.is_empty();
        possible.extend(fit);
    }
    if lost && !possible.iter().any(Event::is_overflow) {
        possible.push(Event::overflow());
    }
    possible
}

/// Adds what a second instance has seen of the same watches. What was seen by both, the end of the one and the beginning of
/// the other, is there once.
pub(super) fn join(events: &mut Vec<Event>, seen: Vec<Event>) {
    /// How far back that is looked for.
    const MOST_SHARED: usize = 1024;
    let most = events.len().min(seen.len()).min(MOST_SHARED);
    let shared = (1..=most).rev().find(|count| {
        let end = &events[events.len() - count..];
        end.iter().zip(&seen).all(|(one, other)| one.is_like(other))
    });
    events.extend(seen.into_iter().skip(shared.unwrap_or(0)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(watch: i32, mask: u32, name: &str) -> Event {
        Event { watch, mask, cookie: 0, name: name.into() }
    }

    #[test]
    fn events_are_taken_apart() {
        let mut bytes = Vec::new();
        for word in [3, libc::IN_CREATE, 0, 16] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(b"name\0\0\0\0\0\0\0\0\0\0\0\0");
        for word in [u32::MAX, libc::IN_Q_OVERFLOW, 0, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        let events = parse(&bytes).unwrap();
        assert_eq!(events, [event(3, libc::IN_CREATE, "name"), Event::overflow()]);
        assert!(check(&events).is_ok());
        assert_eq!(parse(&bytes[..20]), Err(Errno::EBADMSG));
    }

    #[test]
    fn an_event_is_made_of_one_thing() {
        let both = event(2, libc::IN_MODIFY | libc::IN_ATTRIB, "x");
        let each = [event(2, libc::IN_MODIFY, "x"), event(2, libc::IN_ATTRIB, "x")];
        assert_eq!(possible(vec![both]), each);
        let gone = vec![event(2, libc::IN_UNMOUNT, ""), event(2, libc::IN_IGNORED, "")];
        assert_eq!(possible(gone), [event(2, libc::IN_IGNORED, ""), Event::overflow()]);
        let long = vec![event(2, libc::IN_OPEN, &"x".repeat(300))];
        assert_eq!(possible(long), [Event::overflow()]);
        let lengths = [0, 1, 15, 16, 255].map(|bytes| event(1, 1, &"x".repeat(bytes)).length());
        assert_eq!(lengths, [16, 32, 32, 48, 272]);
    }

    #[test]
    fn what_no_kernel_tells_is_damage() {
        let wrong = [
            event(1, libc::IN_CREATE, "../x"),
            event(1, libc::IN_CREATE, ".."),
            event(1, libc::IN_CREATE | libc::IN_DELETE, "x"),
            event(1, 0, "x"),
            event(0, libc::IN_CREATE, "x"),
            event(1, libc::IN_Q_OVERFLOW, ""),
            event(1, libc::IN_OPEN | 1 << 20, ""),
            event(1, libc::IN_OPEN, &"x".repeat(256)),
        ];
        for event in wrong {
            assert!(check(std::slice::from_ref(&event)).is_err(), "{event:?}");
        }
    }

    #[test]
    fn what_both_have_seen_is_there_once() {
        let all = ["a", "b", "c", "d"].map(|name| event(1, libc::IN_CREATE, name));
        let mut events = all[..3].to_vec();
        join(&mut events, all[1..].to_vec());
        assert_eq!(events, all);
        join(&mut events, vec![event(2, libc::IN_OPEN, "")]);
        assert_eq!(events.len(), 5);
        join(&mut events, Vec::new());
        assert_eq!(events.len(), 5);
    }
}
