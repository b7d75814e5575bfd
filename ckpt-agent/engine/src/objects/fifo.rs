//! mkfifo(3): pipes with a name. The FIFO itself is found by its path again, or made again;
//! what is in flight travels.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Result};
use super::super::names;
use super::super::sys::abi;
use super::aside::Aside;
use super::pipe_content::{self, Content, Reader};
use super::{DumpContext, Fate, Found, ObjectKind, Probe, RestoreContext, Saved, paths, reopen};

/// A description of a FIFO.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fifo {
    /// Descriptions with one number are of one FIFO.
    pub fifo: u32,
    /// Its path; the one that it had, where it is deleted.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Unlinked while it was open.
    #[serde(default)]
    pub deleted: bool,
    /// In a directory whose files travel: made again where it is missing.
    #[serde(default)]
    pub session: bool,
    /// A reader whose last writer has gone, which is not the same as one that never had any.
    #[serde(default)]
    pub hung_up: bool,
    /// F_GETPIPE_SZ, bytes.
    pub size: i32,
    /// What is in flight; kept with one description of each FIFO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
}

impl ObjectKind for Fifo {
    fn recognise(probe: &Probe) -> bool {
        probe.file_type() == abi::S_IFIFO && probe.link.starts_with('/')
    }

    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        let deleted = !paths::leads_to_place_for_user(probe, context)?;
        let path = if deleted { paths::without_mark(&probe.link) } else { &probe.link };
        Ok(Self {
            fifo: 0,
            path: path.to_owned(),
            mode: probe.stat.st_mode & 0o7777,
            deleted,
            session: context.is_session_file(path),
            hung_up: pipe_content::hung_up(probe.copy.as_fd())?,
            size: pipe_content::capacity(probe.copy.as_fd())?,
            content: None,
        })
    }

    fn finish(all: &mut [Found<'_, Self>], context: &mut DumpContext) -> Result<()> {
        let mut numbers: BTreeMap<(u64, u64), u32> = BTreeMap::new();
        let mut reader = Reader::default();
        let packets: Vec<(u64, u64)> = all
            .iter()
            .filter(|found| reopen::writable(found.flags) && found.flags & libc::O_DIRECT != 0)
            .map(|found| found.probe.inode())
            .collect();
        for found in all {
            let next = numbers.len() as u32;
            let inode = found.probe.inode();
            found.object.fifo = *numbers.entry(inode).or_insert(next);
            if found.object.fifo != next {
                continue;
            }
            let copy = found.probe.copy.as_fd();
            let packets = packets.contains(&inode);
            let named = |e: EngineError| e.at(found.probe.pid, &found.probe.comm, found.probe.fd);
            found.object.content = if reopen::readable(found.flags) {
                reader.read(copy, packets, context).map_err(named)?
            } else if pipe_content::unread(copy)? > 0 {
                // A later reader may still want it: a reader of our own for a moment, which
                // nobody sees while all stand still.
                let end = context.open_to_read(copy, &found.object.path).map_err(named)?;
                reader.read(end.as_fd(), packets, context).map_err(named)?
            } else {
                None
            };
        }
        Ok(())
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        let mut fifos: BTreeMap<u32, Vec<&Saved<'_, Self>>> = BTreeMap::new();
        for saved in all {
            fifos.entry(saved.object.fifo).or_default().push(saved);
        }
        for descriptions in fifos.into_values() {
            restore_one(&descriptions, context)?;
        }
        Ok(())
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}

fn restore_one(all: &[&Saved<'_, Fifo>], context: &mut RestoreContext) -> Result<()> {
    let first = all.first().expect("a FIFO is there by its descriptions");
    let fifo = first.object;
    let anchor = anchor(fifo)?;
    let open = |flags: i32| {
        reopen::reopen(&anchor, flags | libc::O_NONBLOCK)
            .map_err(|errno| EngineError::system("open", &fifo.path, errno))
    };
    let content = all.iter().find_map(|saved| saved.object.content.as_ref());
    let writers = all.iter().any(|saved| reopen::writable(saved.file.flags));
    // A description for both directions keeps the content and lets writers open; but a reader
    // that never had a writer must not see one come and go (pipe_poll's w_counter).
    let both = if content.is_some() || writers { Some(open(libc::O_RDWR)?) } else { None };
    if let Some(both) = &both {
        pipe_content::set_capacity(both.as_fd(), fifo.size, context);
        if let Some(content) = content {
            pipe_content::fill(both.as_fd(), content, context)?;
        }
    }
    let mut made = Vec::new();
    for saved in all {
        let fd = open(saved.file.flags)?;
        reopen::set_status(fd.as_fd(), saved.file.flags)?;
        made.push((saved.id, fd));
    }
    if both.is_none() {
        if let Some((_, fd)) = made.first() {
            pipe_content::set_capacity(fd.as_fd(), fifo.size, context);
        }
        if all.iter().any(|saved| saved.object.hung_up) {
            drop(open(libc::O_RDWR)?);
        }
    }
    made.into_iter().try_for_each(|(id, fd)| context.park(id, fd))
}

/// An O_PATH descriptor of the FIFO, found or made.
fn anchor(fifo: &Fifo) -> Result<OwnedFd> {
    let mode = Mode::from_bits_truncate(fifo.mode as libc::mode_t);
    let look = |path: &str| reopen::open(path, libc::O_PATH);
    let failed = |errno| EngineError::system("make the FIFO", &fifo.path, errno);
    if fifo.deleted {
        return unlinked(fifo).or_else(|_| {
            // Its folder may be gone, or not be ours to write to any more.
            let make = |path: &str| nix::unistd::mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR);
            let (path, ()) = paths::first_free("/tmp/ckptd-fifo", make).map_err(failed)?;
            reopen::without_name(&path, None, fifo.mode).map_err(failed)
        });
    }
    let found = nix::sys::stat::stat(&*names::path(&fifo.path));
    match found.map(|stat| stat.st_mode & abi::S_IFMT) {
        Ok(abi::S_IFIFO) => {}
        Ok(_) => return Err(unfit(fifo, "is no FIFO any more")),
        Err(_) if fifo.session => {
            if let Some(parent) = names::path(&fifo.path).parent() {
                std::fs::create_dir_all(parent)
                    .map_err(|error| EngineError::system("mkdir", &fifo.path, error))?;
            }
            nix::unistd::mkfifo(&*names::path(&fifo.path), mode)
                .and_then(|()| {
                    // The umask of whoever restores must not count.
                    let path = &*names::path(&fifo.path);
                    let follow = nix::sys::stat::FchmodatFlags::FollowSymlink;
                    nix::sys::stat::fchmodat(nix::fcntl::AT_FDCWD, path, mode, follow)
                })
                .map_err(failed)?;
        }
        Err(_) => return Err(unfit(fifo, "is missing")),
    }
    look(&fifo.path).map_err(failed)
}

/// A FIFO without a name where the recorded one was; what has its name now keeps it.
fn unlinked(fifo: &Fifo) -> Result<OwnedFd> {
    let path = fifo.path.as_str();
    let failed = |errno| EngineError::system("make the FIFO", path, errno);
    let aside = Aside::of(&names::path(path))?;
    let made = nix::unistd::mkfifo(&*names::path(path), Mode::S_IRUSR | Mode::S_IWUSR)
        .and_then(|()| reopen::without_name(path, None, fifo.mode));
    aside.back()?;
    made.map_err(failed)
}

fn unfit(fifo: &Fifo, what: &str) -> EngineError {
    EngineError::Unfit {
        what: format!("the FIFO {} {what}", fifo.path),
        way_out: format!("make it with mkfifo {}", fifo.path),
    }
}
