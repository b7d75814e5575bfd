//! Who is told of a descriptor's events, and leases on files (fcntl(2): F_SETOWN_EX, O_ASYNC, F_SETLEASE): what comes last of a
//! description, once the processes are there and nothing of a restore has files open any more.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::Mode;

use super::super::error::{EngineError, Result};
use super::super::graph::{FileId, LeaseBreak, LockKind, OpenFile};
use super::super::objects::RestoreContext;
use super::super::sys::dup3::dup3;
use super::super::sys::owner::{FileOwner, set_file_owner};
use super::image::{Image, Processes};
use super::numbers::Numbers;

/// The owner of nobody: a process that is none.
const NOBODY: FileOwner = FileOwner { kind: 1, pid: 0 };

/// A rehearsal opens files of a job that may be running: who has leases for writing would be told of it.
///
/// # Errors
/// [`EngineError::NotRehearsable`].
pub fn refuse_rehearsal(files: &[OpenFile]) -> Result<()> {
    let mut locks = files.iter().flat_map(|file| &file.locks);
    match locks.any(|lock| lock.kind == LockKind::Lease && lock.exclusive) {
        true => Err(EngineError::NotRehearsable(
            "the job has leases for writing (F_SETLEASE), which opening the files would break"
                .to_owned(),
        )),
        false => Ok(()),
    }
}

/// Puts owners, O_ASYNC and leases on descriptions. Returns lines for the user about what is otherwise than it was.
///
/// # Errors
/// [`EngineError::Unfit`] where another process has a file open that a lease is for; failed calls.
pub(super) fn put_all(
    image: &Image,
    processes: &Processes,
    context: &RestoreContext<'_>,
    numbers: &Numbers,
) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for (index, file) in image.graph.files.iter().enumerate() {
        let id = FileId(index as u32);
        if !context.needs(id) {
            continue;
        }
        let fd = context.parked(id)?;
        let owner = file.owner.and_then(|owner| {
            // An owner that has ended since gets no signal anyway.
            let pid = numbers.here(owner.pid)?;
            Some((FileOwner { kind: owner.kind as i32, pid }, owner.signal))
        });
        if let Some((owner, signal)) = owner {
            let _ = set_file_owner(&fd, owner, signal);
        }
        let lease = file.locks.iter().find(|lock| lock.kind == LockKind::Lease);
        // In a rehearsal they are the job's.
        let lease = lease.filter(|_| !context.rehearsal);
        let tells = file.owner.is_some() && file.flags & libc::O_ASYNC != 0;
        if !tells && lease.is_none() {
            continue;
        }
        // In flight, it has none, and in a crowded process it may be parked there.
        let number = number_of(processes, id).filter(|number| *number != fd.as_raw_fd());
        let number = number.map(|number| Numbered::of(fd, number, context.first_free));
        let numbered = number.transpose()?;
        let numbered = numbered.as_ref().map_or(fd, Numbered::as_fd);
        if tells {
            tell(numbered)?;
        }
        if let Some(lease) = lease {
            take(numbered, lease.exclusive)?;
            if owner.is_none() || lease.broken.is_some() {
                // It was made this process's, where it was nobody's (fs/locks.c, lease_setup()).
                own(fd, (NOBODY, file.owner.map_or(0, |owner| owner.signal)))?;
            }
            broken.extend(lease.broken.map(|broken| Broken { fd, broken, owner }));
        }
    }
    break_all(&broken)
}

/// A lease that is to be broken again.
struct Broken<'f> {
    fd: BorrowedFd<'f>,
    broken: LeaseBreak,
    /// Who is told of its file's events, in the end.
    owner: Option<(FileOwner, i32)>,
}

/// Breaks leases once all have been taken: there is no new one on a file of which another is being broken (fs/locks.c,
/// generic_add_lease()). Their holders were told before the checkpoint, and whether they have heard is in their pending
/// signals: so none has its owner before the last one is broken, as one open may break several.
fn break_all(all: &[Broken<'_>]) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for one in all {
        lines.extend(break_again(one.fd, one.broken)?);
    }
    for one in all {
        one.owner.map_or(Ok(()), |owner| own(one.fd, owner))?;
    }
    Ok(lines)
}

fn own(fd: BorrowedFd<'_>, (owner, signal): (FileOwner, i32)) -> Result<()> {
    set_file_owner(&fd, owner, signal)
        .map_err(|errno| EngineError::system("fcntl", "F_SETOWN_EX", errno))
}

/// The number by which the first of its holders knows a description.
fn number_of(processes: &Processes, id: FileId) -> Option<RawFd> {
    let mut all = processes.values().flat_map(|process| &process.descriptors);
    all.find(|descriptor| descriptor.file == id).map(|descriptor| descriptor.fd)
}

/// A description under the number that its holder has it by: signals tell that one (si_fd), whoever asked for them. What this
/// process has under it is put aside for as long.
struct Numbered {
    number: RawFd,
    /// With its flags (FD_CLOEXEC).
    aside: Option<(OwnedFd, libc::c_int)>,
}

impl Numbered {
    fn of(parked: BorrowedFd<'_>, number: RawFd, above: RawFd) -> Result<Self> {
        let failed = |errno: Errno| EngineError::system("dup3", "a description", errno);
        // SAFETY: borrowed for two calls, which fail where nothing has the number.
        let own = unsafe { BorrowedFd::borrow_raw(number) };
        let aside = match fcntl(own, FcntlArg::F_GETFD) {
            Ok(flags) => {
                let copy = fcntl(own, FcntlArg::F_DUPFD_CLOEXEC(above)).map_err(failed)?;
                // SAFETY: fcntl just returned this number for us alone.
                Some((unsafe { OwnedFd::from_raw_fd(copy) }, flags))
            }
            Err(Errno::EBADF) => None,
            Err(errno) => return Err(failed(errno)),
        };
        // SAFETY: whatever has the number gets it back when this is dropped; this process has no other thread that could miss
        // it until then.
        unsafe { dup3(parked, number, libc::O_CLOEXEC) }.map_err(failed)?;
        Ok(Self { number, aside })
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open for as long as this lives.
        unsafe { BorrowedFd::borrow_raw(self.number) }
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        match &self.aside {
            Some((own, flags)) => {
                let kept = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
                // SAFETY: gives the number back to what had it.
                let _ = unsafe { dup3(own.as_fd(), self.number, kept) };
            }
            // SAFETY: nothing had the number.
            None => drop(unsafe { OwnedFd::from_raw_fd(self.number) }),
        }
    }
}

fn tell(fd: BorrowedFd<'_>) -> Result<()> {
    let failed = |what: &'static str| move |errno| EngineError::system("fcntl", what, errno);
    let flags = fcntl(fd, FcntlArg::F_GETFL).map_err(failed("F_GETFL"))?;
    let flags = OFlag::from_bits_retain(flags | libc::O_ASYNC);
    fcntl(fd, FcntlArg::F_SETFL(flags)).map_err(failed("F_SETFL")).map(drop)
}

/// Asks for the file of a lease as somebody did before the checkpoint, without waiting for an answer. The holder has all of
/// the machine's time for that again (/proc/sys/fs/lease-break-time). Returns a line for the user where that is forbidden here.
fn break_again(fd: BorrowedFd<'_>, broken: LeaseBreak) -> Result<Option<String>> {
    let access = match broken {
        LeaseBreak::ToShared => OFlag::O_RDONLY,
        LeaseBreak::ToNothing => OFlag::O_WRONLY,
    };
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = access | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    match nix::fcntl::open(path.as_str(), flags, Mode::empty()) {
        Err(Errno::EWOULDBLOCK) => Ok(None),
        Err(errno @ (Errno::EACCES | Errno::EPERM | Errno::EROFS | Errno::ETXTBSY)) => {
            let (path, why) = (shown(fd), errno.desc());
            Ok(Some(format!("the lease on {path}, which was being broken, is whole again ({why})")))
        }
        Err(errno) => Err(EngineError::system("open", shown(fd), errno)),
        Ok(_) => Err(EngineError::odd("a lease", "nobody has to wait for it")),
    }
}

/// The path of what a descriptor has open.
fn shown(fd: BorrowedFd<'_>) -> String {
    let shown = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    shown.map_or_else(|_| "a file".to_owned(), |path| path.display().to_string())
}

fn take(fd: BorrowedFd<'_>, exclusive: bool) -> Result<()> {
    let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    // SAFETY: takes numbers only.
    let answer = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, libc::c_int::from(kind)) };
    let Err(errno) = Errno::result(answer) else { return Ok(()) };
    let shown = shown(fd);
    Err(match errno {
        Errno::EAGAIN => EngineError::Unfit {
            what: format!("the lease on {shown} cannot be taken: another process has it open"),
            way_out: "end that process".to_owned(),
        },
        Errno::EACCES | Errno::EINVAL => EngineError::Unfit {
            what: format!("the lease on {shown} cannot be taken ({})", errno.desc()),
            way_out: "restart it as the file's owner, on a file system that has leases".to_owned(),
        },
        errno => EngineError::system("fcntl", "F_SETLEASE", errno),
    })
}
