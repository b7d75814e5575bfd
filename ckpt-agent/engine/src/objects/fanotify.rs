//! fanotify(7): groups with their marks, of which /proc/PID/fdinfo shows all but paths (fs/notify/fdinfo.c); those are
//! found as inotify's are.
//!
//! Events that nobody has read can't be put back: they name the process that has done something. Permission events are
//! refused: whoever opens a marked file waits for the job's answer, ckptd as well, while the job stands.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::from_hex;
use super::super::names;
use super::super::proc::mounts::Mount;
use super::super::proc::read_text;
use super::super::sys::restrained::{self, Restrained, SYS_ADMIN};
use super::super::sys::{fanotify, inotify};
use super::inotify::find::{self, Searched};
use super::{DumpContext, Fate, ObjectKind, Probe, RestoreContext, Saved, reopen};

/// What fanotify_init(2) takes: FAN_CLOEXEC, FAN_NONBLOCK, the class of a group, FAN_UNLIMITED_*, FAN_ENABLE_AUDIT,
/// FAN_REPORT_* (include/uapi/linux/fanotify.h, Linux 6.18).
const FLAGS: u32 = 0x3fff;
/// FAN_REPORT_FID and FAN_REPORT_DIR_FID: events without descriptors, which users may have.
const BY_HANDLE: u32 = 0x600;
/// Class, unlimited queue and marks, FAN_ENABLE_AUDIT, FAN_REPORT_PIDFD, FAN_REPORT_TID, FAN_REPORT_FD_ERROR.
const FOR_ROOT: u32 = 0x0c | 0x10 | 0x20 | 0x40 | 0x80 | 0x100 | 0x2000;
/// FAN_REPORT_MNT: what is mounted in a mount namespace.
const OF_MOUNTS: u32 = 0x4000;
/// FAN_OPEN_PERM, FAN_ACCESS_PERM, FAN_OPEN_EXEC_PERM, FAN_PRE_ACCESS.
const PERMISSION: u64 = 0x17_0000;
/// FAN_MARK_IGNORED_SURV_MODIFY
const SURVIVES: u32 = 0x40;
/// FAN_MARK_EVICTABLE
const EVICTABLE: u32 = 0x200;
/// FAN_MARK_IGNORE
const IGNORE: u32 = 0x400;
/// Marks of a group that are looked at.
const MOST_MARKS: usize = 1 << 20;

/// A fanotify group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fanotify {
    /// FAN_* as fanotify_init(2) takes them.
    pub flags: u32,
    /// O_* of the descriptors that come with events.
    pub event_flags: u32,
    /// It was made with CAP_SYS_ADMIN.
    pub privileged: bool,
    /// Its marks, in the order in which they were made.
    pub marks: Vec<Mark>,
}

/// A mark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// What of it is marked.
    pub of: Marked,
    /// What is marked, or a place where it is mounted.
    pub path: String,
    /// FAN_MARK_*, without command and kind.
    pub flags: u32,
    /// Events that are told.
    pub mask: u64,
    /// Events that are not.
    pub ignored: u64,
}

/// Kinds of marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Marked {
    /// A file or folder.
    Inode,
    /// All that is reached by a mount.
    Mount,
    /// All of a file system.
    FileSystem,
}

impl ObjectKind for Fanotify {
    fn recognise(probe: &Probe) -> bool {
        probe.is_anonymous("[fanotify]")
    }

    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        let odd = || EngineError::odd("fdinfo of fanotify", "no list of marks");
        let (flags, event_flags) =
            probe.info.get("fanotify flags").and_then(settings).ok_or_else(odd)?;
        if flags & OF_MOUNTS != 0 {
            let what = "is fanotify that tells of mounts (FAN_REPORT_MNT)";
            return Err(Refusal::new(what, "run the program without it").into());
        }
        let lines = lines(probe).ok_or_else(odd)?;
        if lines.iter().any(|line| (line.mask | line.ignored) & PERMISSION != 0) {
            let what = "is fanotify that is asked for permission (FAN_OPEN_PERM and the like): \
                        ckptd would wait for its answer while the job stands";
            let way_out = "take the marks away while checkpoints are taken, or run without them";
            return Err(Refusal::new(what, way_out).into());
        }
        let waiting = inotify::unread(probe.copy.as_fd())
            .map_err(|errno| EngineError::system("ioctl", "FIONREAD of fanotify", errno))?;
        if waiting > 0 {
            return Err(Refusal::passing(
                format!("is fanotify with {waiting} bytes of events that are not read yet"),
                "it is taken once the program has read them",
            )
            .into());
        }
        let marks = marks(lines, probe, context)?;
        let needs_root = flags & BY_HANDLE == 0
            || flags & FOR_ROOT != 0
            || marks.iter().any(|mark| mark.of != Marked::Inode);
        let has_right = restrained::has(&[SYS_ADMIN]).unwrap_or(false) && context.user.is_none();
        if needs_root && !has_right {
            let what = "is fanotify that takes CAP_SYS_ADMIN to make, in an ordinary user's job";
            return Err(Refusal::new(what, "run the job as root, or the program without it").into());
        }
        let privileged = has_right && fanotify::is_privileged(probe.copy.as_fd());
        Ok(Self { flags, event_flags, privileged, marks })
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        for saved in all {
            let object = saved.object;
            if object.privileged && context.user.is_some() {
                return Err(unprivileged());
            }
            // The right to mark more than files stays with whoever has such a group.
            let _restrained =
                if object.privileged { None } else { Some(Restrained::begin(&[SYS_ADMIN])?) };
            let made =
                fanotify::make(object.flags & FLAGS, object.event_flags).map_err(|errno| {
                    match errno {
                        Errno::EPERM => unprivileged(),
                        _ => EngineError::system("fanotify_init", "a group", errno),
                    }
                })?;
            context.park(saved.id, made)?;
        }
        Ok(())
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}

fn unprivileged() -> EngineError {
    EngineError::Unfit {
        what: "the job has a fanotify group that takes CAP_SYS_ADMIN to make".into(),
        way_out: "restart it as root".into(),
    }
}

/// `HEX event-flags:HEX`
fn settings(line: &str) -> Option<(u32, u32)> {
    let (flags, rest) = line.split_once(' ')?;
    let event_flags = rest.trim().strip_prefix("event-flags:")?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    Some((number(flags)? & (FLAGS | OF_MOUNTS), number(event_flags)?))
}

/// A mark as fdinfo shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    of: Marked,
    /// Number of the inode or of the mount.
    number: u64,
    device: u32,
    flags: u32,
    mask: u64,
    ignored: u64,
    handle: Option<(i32, Vec<u8>)>,
}

/// All marks in the order in which they were made: the kernel shows the newest first.
fn lines(probe: &Probe) -> Option<Vec<Line>> {
    let marks = probe.info.beginning("fanotify ").filter(|line| !line.starts_with("flags:"));
    let parsed = marks.take(MOST_MARKS).map(|line| {
        let (key, rest) = line.split_once(':')?;
        let of = match key {
            "ino" => Marked::Inode,
            "mnt_id" => Marked::Mount,
            "sdev" => Marked::FileSystem,
            _ => return None,
        };
        parse(of, rest)
    });
    let mut all: Vec<Line> = parsed.collect::<Option<_>>()?;
    all.reverse();
    Some(all)
}

/// What follows `ino:`, `mnt_id:` or `sdev:`.
fn parse(of: Marked, line: &str) -> Option<Line> {
    let mut words = line.split_ascii_whitespace();
    let number = u64::from_str_radix(words.next()?, 16).ok()?;
    let (mut device, mut flags, mut mask, mut ignored) = (0, None, None, None);
    let (mut kind, mut handle) = (None, None);
    for word in words {
        let (key, value) = word.split_once(':')?;
        let hexadecimal = || u64::from_str_radix(value, 16).ok();
        match key {
            "sdev" => device = hexadecimal()? as u32,
            "mflags" => flags = hexadecimal(),
            "mask" => mask = hexadecimal(),
            "ignored_mask" => ignored = hexadecimal(),
            "fhandle-type" => kind = hexadecimal(),
            "f_handle" => handle = from_hex(value).ok(),
            _ => {}
        }
    }
    if of == Marked::FileSystem {
        device = number as u32;
    }
    let handle = kind.zip(handle).map(|(kind, bytes)| (kind as i32, bytes));
    let flags = flags? as u32 & (SURVIVES | EVICTABLE | IGNORE);
    Some(Line { of, number, device, flags, mask: mask?, ignored: ignored?, handle })
}

/// The marks, with the paths of what they are about.
fn marks(lines: Vec<Line>, probe: &Probe, context: &DumpContext) -> Result<Vec<Mark>> {
    let is_inode = |line: &&Line| line.of == Marked::Inode;
    let searched: Vec<Searched> = lines
        .iter()
        .filter(is_inode)
        .map(|line| Searched {
            number: 0,
            inode: line.number,
            device: line.device,
            mask: 0,
            handle: line.handle.clone(),
        })
        .collect();
    let mut of_inodes = find::paths(&searched, probe.host_pid, context)?.into_iter();
    let text = read_text(&format!("/proc/{}/mountinfo", probe.host_pid))?.unwrap_or_default();
    let mounts: Vec<Mount> = text.lines().filter_map(Mount::parse).collect();
    let mut marks = Vec::with_capacity(lines.len());
    for line in lines {
        let path = match line.of {
            Marked::Inode => of_inodes.next().flatten(),
            Marked::Mount => reached(&mounts, |mount| u64::try_from(mount.id) == Ok(line.number)),
            Marked::FileSystem => {
                let (major, minor) = (line.device >> 20, line.device & 0xf_ffff);
                let device = format!("{major}:{minor}");
                reached(&mounts, |mount| mount.device == device)
            }
        };
        let Line { of, flags, mask, ignored, number, .. } = line;
        let path = path.ok_or_else(|| {
            let what = match of {
                Marked::Inode => format!("inode {number}"),
                Marked::Mount => format!("mount {number}"),
                Marked::FileSystem => format!("file system {number:x}"),
            };
            Refusal::new(
                format!("is fanotify with a mark of {what}, whose path can't be found"),
                "close it while checkpoints are taken, or run the job as root",
            )
        })?;
        marks.push(Mark { of, path, flags, mask, ignored });
    }
    Ok(marks)
}

/// The mount point of such a mount over which nothing else is mounted.
fn reached(mounts: &[Mount], fits: impl Fn(&Mount) -> bool) -> Option<String> {
    let mut found = mounts.iter().enumerate().filter(|(_, mount)| fits(mount));
    let open = found.find(|(at, mount)| !mounts[at + 1..].iter().any(|later| later.at == mount.at));
    open.map(|(_, mount)| mount.at.clone())
}

/// Sets the marks of all groups: among the last acts of a restore, since it touches files itself.
///
/// # Errors
/// A file that is not there; failed calls.
pub fn watch_again(all: &[Saved<'_, Fanotify>], context: &mut RestoreContext<'_>) -> Result<()> {
    for saved in all {
        let group = context.parked(saved.id)?.try_clone_to_owned();
        let group = group.map_err(|error| EngineError::system("dup", "fanotify", error))?;
        for mark in &saved.object.marks {
            let failed = match set(group.as_fd(), mark) {
                Ok(()) => continue,
                Err(errno) => errno,
            };
            let what = format!("{} (fanotify): {}", mark.path, failed.desc());
            if context.force {
                context.warn(format!("the job does not watch {what}"));
            } else if !context.rehearsal {
                // In a rehearsal other file systems are laid over some, of which not all can be watched.
                return Err(EngineError::Unfit {
                    what: format!("the job can't watch {what}"),
                    way_out: "put it there, or use --force to do without".into(),
                });
            }
        }
    }
    Ok(())
}

fn set(group: BorrowedFd<'_>, mark: &Mark) -> nix::Result<()> {
    let target = open(&*names::path(&mark.path), OFlag::O_PATH | OFlag::O_NOFOLLOW, Mode::empty())?;
    let path = reopen::magic_link(&target);
    let of = match mark.of {
        Marked::Inode => mark.flags & EVICTABLE,
        Marked::Mount => fanotify::OF_MOUNT,
        Marked::FileSystem => fanotify::OF_FILE_SYSTEM,
    };
    if mark.mask != 0 {
        fanotify::mark(group, of, mark.mask, &path)?;
    }
    if mark.ignored != 0 {
        let ignored = match mark.flags & IGNORE {
            0 => fanotify::IGNORED,
            ignore => ignore,
        };
        fanotify::mark(group, of | ignored | mark.flags & SURVIVES, mark.ignored, &path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        assert_eq!(settings("c00 event-flags:88000"), Some((0xc00, 0x8_8000)));
        assert_eq!(settings("2 event-flags:8000"), Some((2, 0x8000)));
        let inode = "98c064 sdev:fe00000 mflags:40 mask:0 ignored_mask:20 fhandle-bytes:8 \
                     fhandle-type:1 f_handle:64c09800b0df7afd";
        let found = parse(Marked::Inode, inode).unwrap();
        assert_eq!((found.number, found.device, found.flags), (0x98_c064, 0xfe0_0000, SURVIVES));
        assert_eq!((found.mask, found.ignored), (0, 0x20));
        assert_eq!(found.handle.unwrap().0, 1);
        let device = "fe00000 mflags:0 mask:40000002 ignored_mask:0";
        let found = parse(Marked::FileSystem, device).unwrap();
        assert_eq!((found.device, found.mask), (0xfe0_0000, 0x4000_0002));
        let mount = parse(Marked::Mount, "1b mflags:0 mask:20 ignored_mask:0").unwrap();
        assert_eq!((mount.number, mount.mask), (0x1b, 0x20));
        assert!(parse(Marked::Mount, "1b mflags:0").is_none() && settings("2").is_none());
    }

    #[test]
    fn what_is_covered_is_not_reached() {
        let line = |id: i32, at: &str| {
            Mount::parse(&format!("{id} 1 8:1 / {at} rw - ext4 /dev/sda1 rw")).unwrap()
        };
        let mounts = [line(20, "/"), line(21, "/a"), line(22, "/b"), line(23, "/a")];
        let of = |id| reached(&mounts, |mount| mount.id == id);
        assert_eq!((of(20), of(21)), (Some("/".to_owned()), None));
        assert_eq!(of(23), Some("/a".to_owned()));
        assert_eq!(reached(&mounts[1..], |mount| mount.id != 23), Some("/b".to_owned()));
    }
}
