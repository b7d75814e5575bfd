//! Things that happen to files and folders of ckptd's own, so that an instance queues an event that was told of others.
//!
//! Each watch that has such events gets a stand-in of the same number. Only what is to be told is watched for while it
//! happens: a watch's mask can be changed as often as one likes (inotify_add_watch(2) of the same file).

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::super::super::error::{EngineError, Result};
use super::super::super::names;
use super::super::super::sys::inotify;
use super::events::Event;

/// A mask by which a stand-in is told nothing of what is prepared.
pub(super) const QUIET: u32 = libc::IN_UNMOUNT;

/// A folder that nobody watches; gone with this.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    /// Makes one where temporary files belong, but not directly in a folder of these.
    pub(super) fn new(watched: &[&Path]) -> Result<Self> {
        let places = [PathBuf::from("/dev/shm"), std::env::temp_dir(), PathBuf::from("/var/tmp")];
        let mut last = Errno::ENOENT;
        for place in places.iter().filter(|place| !watched.contains(&place.as_path())) {
            match nix::unistd::mkdtemp(&place.join(".ckptd-events-XXXXXX")) {
                Ok(folder) => return Ok(Self { folder }),
                Err(errno) => last = errno,
            }
        }
        Err(EngineError::system("mkdtemp", "a folder for events of inotify", last))
    }

    /// An empty folder in it.
    pub(super) fn within(&self) -> nix::Result<Self> {
        Ok(Self { folder: nix::unistd::mkdtemp(&self.folder.join("XXXXXX"))? })
    }

    /// A path in it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Another one can be made whether this one is gone or not.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The stand-ins of one instance.
#[derive(Debug)]
pub(super) struct StandIns<'a> {
    instance: BorrowedFd<'a>,
    scratch: &'a Scratch,
    all: BTreeMap<i32, StandIn>,
}

#[derive(Debug)]
struct StandIn {
    path: PathBuf,
    is_folder: bool,
    /// The instance has told, or is about to tell, that its watch is gone.
    is_gone: bool,
}

impl<'a> StandIns<'a> {
    /// Makes those that these events take, watched by an instance without watches of their numbers.
    pub(super) fn new(
        instance: BorrowedFd<'a>,
        scratch: &'a Scratch,
        events: &[Event],
    ) -> io::Result<Self> {
        let mut stand_ins = Self { instance, scratch, all: BTreeMap::new() };
        for event in events.iter().filter(|event| !event.is_overflow()) {
            let of_folder = !event.name.is_empty() || event.is_of_folder();
            let path = scratch.path(&format!("w{}", event.watch));
            let made = StandIn { path, is_folder: false, is_gone: false };
            let stand_in = stand_ins.all.entry(event.watch).or_insert(made);
            stand_in.is_folder |= of_folder;
        }
        fs::create_dir(scratch.path("aside"))?;
        for (number, stand_in) in &stand_ins.all {
            make(&stand_in.path, stand_in.is_folder)?;
            watch(instance, &stand_in.path, QUIET, *number)?;
        }
        Ok(stand_ins)
    }

    /// Has all events be queued in their order.
    pub(super) fn act(&mut self, events: &[Event]) -> io::Result<()> {
        let mut rest = events;
        while let [event, after @ ..] = rest {
            let told = match after.first().filter(|next| is_renaming(event, next)) {
                Some(next) => self.rename(event, next).map(|()| 2),
                None => self.act_one(event).map(|()| 1),
            };
            let told = told.map_err(|error| {
                let what = format!("{error}, of event {:x} of watch {}", event.mask, event.watch);
                io::Error::new(error.kind(), what)
            })?;
            rest = &rest[told..];
        }
        Ok(())
    }

    /// Removes all watches that are left: the kernel tells of each that it is gone, if there is room for it.
    pub(super) fn remove(self) -> io::Result<()> {
        let left = self.all.iter().filter(|(_, stand_in)| !stand_in.is_gone);
        left.map(|(number, _)| *number)
            .try_for_each(|number| Ok(inotify::remove(self.instance, number)?))
    }

    fn of(&self, event: &Event) -> io::Result<&StandIn> {
        // There is one for each event.
        self.all.get(&event.watch).ok_or_else(|| Errno::EBADMSG.into())
    }

    /// Watches for nothing but this event while it happens.
    fn told_only(&self, event: &Event, happen: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.watch_for(event, event.what())?;
        happen()?;
        self.watch_for(event, QUIET)
    }

    fn watch_for(&self, event: &Event, mask: u32) -> io::Result<()> {
        let stand_in = self.of(event)?;
        if stand_in.is_gone {
            return Ok(());
        }
        watch(self.instance, &stand_in.path, mask, event.watch)
    }

    fn act_one(&mut self, event: &Event) -> io::Result<()> {
        let stand_in = self.of(event)?;
        if stand_in.is_gone {
            // Where a watched file is deleted, the kernel tells at once that its watch is gone.
            return if event.is_ignored() { Ok(()) } else { Err(Errno::EBADMSG.into()) };
        }
        let path = match &*event.name {
            "" => stand_in.path.clone(),
            name => stand_in.path.join(names::path(name)),
        };
        let of_folder = match &*event.name {
            "" => stand_in.is_folder,
            _ => event.is_of_folder(),
        };
        match event.what() {
            libc::IN_IGNORED => {
                inotify::remove(self.instance, event.watch)?;
                return self.is_gone(event);
            }
            libc::IN_DELETE_SELF => {
                self.watch_for(event, libc::IN_DELETE_SELF)?;
                remove_all(&path, of_folder)?;
                return self.is_gone(event);
            }
            libc::IN_MOVE_SELF => {
                let other = self.scratch.path("moved");
                self.watch_for(event, libc::IN_MOVE_SELF)?;
                fs::rename(&path, &other)?;
                watch(self.instance, &other, QUIET, event.watch)?;
                return fs::rename(&other, &path);
            }
            _ => {}
        }
        self.prepare(event, &path, of_folder)?;
        let aside = self.scratch.path("aside").join("moved");
        match event.what() {
            libc::IN_ACCESS if of_folder => {
                self.told_only(event, || fs::read_dir(&path)?.try_for_each(|entry| entry.map(drop)))
            }
            libc::IN_ACCESS => self.told_only(event, || File::open(&path)?.read_exact(&mut [0])),
            libc::IN_MODIFY => self
                .told_only(event, || OpenOptions::new().append(true).open(&path)?.write_all(b"x")),
            libc::IN_ATTRIB => self
                .told_only(event, || fs::set_permissions(&path, fs::Permissions::from_mode(0o700))),
            libc::IN_CLOSE_WRITE => {
                self.told_only(event, || OpenOptions::new().append(true).open(&path).map(drop))
            }
            libc::IN_CLOSE_NOWRITE | libc::IN_OPEN => {
                self.told_only(event, || File::open(&path).map(drop))
            }
            libc::IN_CREATE => self.told_only(event, || make_empty(&path, of_folder)),
            libc::IN_DELETE => self.told_only(event, || remove(&path, of_folder)),
            libc::IN_MOVED_FROM => {
                self.told_only(event, || fs::rename(&path, &aside))?;
                remove(&aside, of_folder)
            }
            libc::IN_MOVED_TO => {
                make(&aside, of_folder)?;
                self.told_only(event, || fs::rename(&aside, &path))
            }
            // What is unmounted can't be made without rights; see [`super::queue`].
            _ => Err(Errno::EBADMSG.into()),
        }
    }

    fn is_gone(&mut self, event: &Event) -> io::Result<()> {
        let stand_in = self.all.get_mut(&event.watch).ok_or(Errno::EBADMSG)?;
        stand_in.is_gone = true;
        Ok(())
    }

    /// Has a file or folder be there, or not be there, before something happens to it.
    fn prepare(&self, event: &Event, path: &Path, of_folder: bool) -> io::Result<()> {
        if event.name.is_empty() {
            return Ok(());
        }
        if let Ok(found) = fs::symlink_metadata(path) {
            let stays = event.what() & (libc::IN_CREATE | libc::IN_MOVED_TO) == 0;
            let suffices = event.what() != libc::IN_ACCESS || found.is_dir() || found.len() > 0;
            if stays && suffices && found.is_dir() == of_folder {
                return Ok(());
            }
            remove_all(path, found.is_dir())?;
        }
        match event.what() {
            libc::IN_CREATE | libc::IN_MOVED_TO => Ok(()),
            _ => make(path, of_folder),
        }
    }

    /// The two events of one renaming share a cookie.
    fn rename(&self, from: &Event, to: &Event) -> io::Result<()> {
        let (of_folder, begin, end) = (from.is_of_folder(), self.of(from)?, self.of(to)?);
        let old = begin.path.join(names::path(&from.name));
        let new = end.path.join(names::path(&to.name));
        self.prepare(from, &old, of_folder)?;
        self.prepare(to, &new, of_folder)?;
        // A name may be that of another one before: it has to be there still.
        self.prepare(from, &old, of_folder)?;
        let both = if from.watch == to.watch { libc::IN_MOVE } else { libc::IN_MOVED_FROM };
        self.watch_for(from, both)?;
        if from.watch != to.watch {
            self.watch_for(to, libc::IN_MOVED_TO)?;
        }
        fs::rename(old, new)?;
        self.watch_for(from, QUIET)?;
        self.watch_for(to, QUIET)
    }
}

/// Whether two events that follow each other are of one renaming.
fn is_renaming(event: &Event, next: &Event) -> bool {
    let is_one = event.cookie == next.cookie && event.cookie != 0;
    let kinds = (event.what(), next.what()) == (libc::IN_MOVED_FROM, libc::IN_MOVED_TO);
    is_one && kinds && event.is_of_folder() == next.is_of_folder()
}

/// Watches, by this number.
pub(super) fn watch(
    instance: BorrowedFd<'_>,
    path: &Path,
    mask: u32,
    number: i32,
) -> io::Result<()> {
    // A link of that name would be followed; there are none here.
    match inotify::add_as(instance, path, mask, number)? {
        true => Ok(()),
        false => Err(Errno::EBUSY.into()),
    }
}

fn make(path: &Path, is_folder: bool) -> io::Result<()> {
    match is_folder {
        true => fs::create_dir(path),
        // Something to read.
        false => fs::write(path, "x"),
    }
}

fn make_empty(path: &Path, is_folder: bool) -> io::Result<()> {
    match is_folder {
        true => fs::create_dir(path),
        false => OpenOptions::new().write(true).create_new(true).mode(0o700).open(path).map(drop),
    }
}

fn remove(path: &Path, is_folder: bool) -> io::Result<()> {
    if is_folder { fs::remove_dir(path) } else { fs::remove_file(path) }
}

fn remove_all(path: &Path, is_folder: bool) -> io::Result<()> {
    if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}
