//! inotify(7): watches of files and folders. The kernel tells a watched inode's number (/proc/PID/fdinfo), not its path:
//! [`find`] looks for that.
//!
//! Events that nobody has read are had by reading them. They are put back into the job's instance ([`unread`]), and into the
//! one that a restart makes ([`queue`]), by having them happen to files of ckptd's own ([`standins`]).

mod events;
pub(super) mod find;
mod queue;
mod standins;
mod unread;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::FileId;
use super::super::names;
use super::super::sys::inotify;
use super::{DumpContext, Fate, Found, ObjectKind, Probe, RestoreContext, Saved, reopen};
use find::Searched;
use standins::Scratch;

pub use events::Event;

/// IN_ALL_EVENTS, IN_EXCL_UNLINK and IN_ONESHOT: what inotify_add_watch(2) takes and fdinfo shows. The rest of what it shows
/// is the kernel's own.
const MASK: u32 = 0x0fff | 0x0400_0000 | 0x8000_0000;
/// Watches of an instance that are looked at.
const MOST_WATCHES: usize = 1 << 20;
/// Watches that are made and taken away on the way to a number.
const MOST_TRIES: u32 = 1 << 16;

/// An inotify instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inotify {
    /// Its watches, by rising numbers.
    pub watches: Vec<Watch>,
    /// Events that nobody has read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<Unread>,
}

/// What an instance has queued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// In the order in which they are read.
    pub events: Vec<Event>,
    /// The number that the next watch gets.
    pub next: i32,
}

/// A watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// Its number (watch descriptor).
    pub number: i32,
    /// What is watched.
    pub path: String,
    /// IN_*
    pub mask: u32,
    /// What is watched where it is deleted: a file that is still open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileId>,
    /// The number of such a file and of its device.
    #[serde(skip)]
    pub held: Option<(u64, u64)>,
}

impl ObjectKind for Inotify {
    fn recognise(probe: &Probe) -> bool {
        matches!(probe.link.as_str(), "anon_inode:inotify" | "anon_inode:[inotify]" | "inotify")
    }

    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        let waiting = inotify::unread(probe.copy.as_fd())
            .map_err(|errno| EngineError::system("ioctl", "FIONREAD of inotify", errno))?;
        let lines: Vec<Searched> = probe
            .info
            .lines("inotify wd")
            .take(MOST_WATCHES)
            .map(parse)
            .collect::<Option<_>>()
            .ok_or_else(|| EngineError::odd("fdinfo of inotify", "no list of watches"))?;
        let deleted = find::deleted(probe.host_pid);
        let held = |searched: &Searched| {
            let is_it =
                |(_, (inode, device)): &&(PathBuf, (u64, u64))| searched.is(*inode, *device);
            deleted.iter().find(is_it).map(|(_, held)| *held)
        };
        let (lines, gone): (Vec<_>, Vec<_>) =
            lines.into_iter().partition(|searched| held(searched).is_none());
        let paths = find::paths(&lines, probe.host_pid, context)?;
        let mut watches: Vec<Watch> = gone
            .iter()
            .map(|searched| Watch {
                number: searched.number,
                path: String::new(),
                mask: searched.mask & MASK,
                file: None,
                held: held(searched),
            })
            .collect();
        for (searched, path) in lines.iter().zip(paths) {
            let path = path.ok_or_else(|| {
                Refusal::new(
                    format!(
                        "is inotify with a watch of inode {} (device {:x}), whose path can't be found",
                        searched.inode, searched.device
                    ),
                    "close it while checkpoints are taken, or run the job as root",
                )
            })?;
            let mask = searched.mask & MASK;
            watches.push(Watch { number: searched.number, path, mask, file: None, held: None });
        }
        watches.sort_by_key(|watch| watch.number);
        let unread = match waiting {
            0 => None,
            _ => {
                // A path may lead elsewhere by now: with the rights of the job alone.
                let _acting = context.act_as_user()?;
                let mut searched: Vec<&Searched> = lines.iter().chain(&gone).collect();
                searched.sort_by_key(|searched| searched.number);
                let both = watches.iter().zip(searched);
                let targets = both.map(|(watch, searched)| target(watch, searched, probe.host_pid));
                let targets = targets.collect::<Result<Vec<_>>>()?;
                Some(unread::take(probe, &watches, &targets)?)
            }
        };
        Ok(Self { watches, unread })
    }

    /// Tells which of the job's files those are that are deleted.
    fn finish(all: &mut [Found<'_, Self>], context: &mut DumpContext) -> Result<()> {
        for found in all {
            let watches = &mut found.object.watches;
            for watch in watches.iter_mut().filter(|watch| watch.held.is_some()) {
                let is_it = |(pid, fd): &(i32, i32)| {
                    std::fs::metadata(format!("/proc/{pid}/fd/{fd}"))
                        .is_ok_and(|meta| Some((meta.ino(), meta.dev())) == watch.held)
                };
                let mut holders = context.descriptors.iter();
                let file = holders.find(|(holder, _)| is_it(holder)).map(|(_, file)| *file);
                let probe = found.probe;
                watch.file = Some(file.ok_or_else(|| {
                    EngineError::odd("what inotify watches", "its descriptor is gone")
                        .of(probe.pid, &probe.comm)
                })?);
            }
        }
        Ok(())
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        for saved in all {
            let made = inotify::make(saved.file.flags & libc::O_NONBLOCK)
                .map_err(|errno| EngineError::system("inotify_init1", "an instance", errno))?;
            context.park(saved.id, made)?;
        }
        Ok(())
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}

/// `HEX ino:HEX sdev:HEX mask:HEX ignored_mask:HEX fhandle-bytes:HEX fhandle-type:HEX f_handle:HEX` (fs/notify/fdinfo.c).
fn parse(line: &str) -> Option<Searched> {
    let mut words = line.split_ascii_whitespace();
    let number = i32::from_str_radix(words.next()?, 16).ok()?;
    let (mut inode, mut device, mut mask) = (None, None, None);
    let (mut kind, mut handle) = (None, None);
    for word in words {
        let (key, value) = word.split_once(':')?;
        let hexadecimal = || u64::from_str_radix(value, 16).ok();
        match key {
            "ino" => inode = hexadecimal(),
            "sdev" => device = hexadecimal(),
            "mask" => mask = hexadecimal(),
            "fhandle-type" => kind = hexadecimal(),
            "f_handle" => handle = super::super::graph::from_hex(value).ok(),
            _ => {}
        }
    }
    let handle = kind.zip(handle).map(|(kind, bytes)| (kind as i32, bytes));
    Some(Searched { number, inode: inode?, device: device? as u32, mask: mask? as u32, handle })
}

/// What is watched, found a moment ago.
fn target(watch: &Watch, searched: &Searched, host_pid: i32) -> Result<OwnedFd> {
    let opened = match watch.held {
        Some(held) => find::deleted(host_pid)
            .into_iter()
            .find(|(_, found)| *found == held)
            .map(|(path, _)| open(&path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())),
        None => Some(open(
            &*names::path(&watch.path),
            OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC,
            Mode::empty(),
        )),
    };
    let refuse = || {
        let what = format!("is inotify with a watch of {}, which changes just now", watch.path);
        Refusal::passing(what, "it is taken once that is over")
    };
    let opened = opened.and_then(nix::Result::ok).ok_or_else(refuse)?;
    match fstat(&opened) {
        Ok(stat) if searched.is(stat.st_ino, stat.st_dev) => Ok(opened),
        _ => Err(refuse().into()),
    }
}

/// Sets the watches of all instances: the last act of a restore, since it touches files itself.
///
/// # Errors
/// A file that is not there; failed calls.
pub fn watch_again(all: &[Saved<'_, Inotify>], context: &mut RestoreContext<'_>) -> Result<()> {
    for saved in all {
        let instance = context.parked(saved.id)?.try_clone_to_owned();
        let instance = instance.map_err(|error| EngineError::system("dup", "inotify", error))?;
        if let Some(unread) = &saved.object.unread {
            events::check(&unread.events)?;
            queue::fill(instance.as_fd(), &Scratch::new(&[])?, &unread.events).map_err(unfit)?;
        }
        for watch in &saved.object.watches {
            if let Some(file) = watch.file {
                set(instance.as_fd(), context.parked(file)?, watch)?;
                continue;
            }
            let target =
                open(&*names::path(&watch.path), OFlag::O_PATH | OFlag::O_NOFOLLOW, Mode::empty());
            match target {
                Ok(target) => set(instance.as_fd(), target.as_fd(), watch)?,
                Err(errno) if context.force => context.warn(format!(
                    "{} is not watched any more: it can't be opened ({})",
                    watch.path,
                    errno.desc()
                )),
                Err(errno) => {
                    return Err(EngineError::Unfit {
                        what: format!(
                            "the job watches {} (inotify), which can't be opened ({})",
                            watch.path,
                            errno.desc()
                        ),
                        way_out: "put it there, or use --force to do without".into(),
                    });
                }
            }
        }
        match &saved.object.unread {
            Some(unread) => _ = inotify::ask_for_number(instance.as_fd(), unread.next),
            // Of watches that were made on the way to a number, the kernel tells that they are gone.
            None => inotify::discard(instance.as_fd())
                .map_err(|errno| EngineError::system("read", "inotify", errno))?,
        }
    }
    Ok(())
}

/// Events that this machine does not take.
fn unfit(error: std::io::Error) -> EngineError {
    EngineError::Unfit {
        what: format!(
            "the job has events of inotify that it has not read, which can't be queued ({error})"
        ),
        way_out: "set fs.inotify.max_queued_events to what it was where the job ran".into(),
    }
}

fn set(instance: BorrowedFd<'_>, target: BorrowedFd<'_>, watch: &Watch) -> Result<()> {
    let path = reopen::magic_link(target);
    for _ in 0..MOST_TRIES {
        let set = inotify::add_as(instance, &path, watch.mask, watch.number);
        if set.map_err(|errno| EngineError::system("inotify_add_watch", &watch.path, errno))? {
            return Ok(());
        }
    }
    Err(EngineError::Unfit {
        what: format!("watch {} of {} cannot have its number again", watch.number, watch.path),
        way_out: "use a kernel with CONFIG_CHECKPOINT_RESTORE".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read() {
        let line = "3 ino:9e7e sdev:800013 mask:800afce ignored_mask:0 fhandle-bytes:8 fhandle-type:1 \
                    f_handle:7e9e0000640d1b6c";
        let found = parse(line).unwrap();
        assert_eq!((found.number, found.inode, found.device), (3, 0x9e7e, 0x80_0013));
        assert_eq!(found.mask & MASK, 0xfce);
        let (kind, bytes) = found.handle.unwrap();
        assert_eq!((kind, bytes.len(), bytes[0]), (1, 8, 0x7e));
        // A file system without handles.
        assert_eq!(parse("a ino:1 sdev:2 mask:3 ignored_mask:0").unwrap().handle, None);
        assert!(parse("").is_none() && parse("1 ino:1").is_none());
    }
}
