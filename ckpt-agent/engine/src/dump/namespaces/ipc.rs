//! What there is in an IPC namespace. Its lists show that of whoever opens them, so somebody has to enter it: a child of this
//! process, which also enters the user namespace that it belongs to, as only a process with one thread may. It copies the
//! lists, which number users as that namespace does.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use super::super::super::error::{EngineError, Result};
use super::super::super::ipc::Told;
use super::super::super::sys::related::{GET_USER, related, user_name};
use super::super::super::sys::{memfd, pidfd};
use super::{name_of, refuse};

/// The lists of SysV objects.
const LISTS: [&CStr; 3] = [c"/proc/sysvipc/shm", c"/proc/sysvipc/sem", c"/proc/sysvipc/msg"];
/// A folder over which the folder of message queues lies for a moment, in a mount namespace of the child's own.
const PASSING: &CStr = c"/proc";
/// How long a child may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The longest text of all lists that is read.
const LONGEST: u64 = 64 << 20;

/// What the child has found, by its exit status: lists, and beside what they name
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// nothing;
    Lists = 0,
    /// POSIX message queues.
    Queues = 1,
    /// It may not look.
    Unknown = 2,
}

/// What there is in the IPC namespace of a process, which is one of its own.
///
/// # Errors
/// A refusal of POSIX message queues there, and of one that can't be looked into.
pub(super) fn content(pid: i32) -> Result<Told> {
    match look(pid)? {
        (Found::Lists, told) => Ok(told),
        (Found::Queues, _) => {
            let what = "is in an IPC namespace of its own, in which there are POSIX message queues";
            Err(refuse(what.to_owned()))
        }
        (Found::Unknown, _) => Err(refuse("is in an IPC namespace of its own".to_owned())),
    }
}

/// What there is of System V objects in the job's, by its init.
///
/// # Errors
/// A refusal of one that can't be looked into.
pub(super) fn of_job(init: i32) -> Result<Told> {
    match look(init)? {
        (Found::Unknown, _) => {
            let what = "the job's IPC namespace can't be looked into, which others of its processes' own ask for";
            Err(refuse(what.to_owned()))
        }
        (_, told) => Ok(told),
    }
}

fn look(pid: i32) -> Result<(Found, Told)> {
    let failed = |errno| EngineError::system("memfd_create", "lists of IPC objects", errno);
    let lists = File::from(memfd::make(c"lists", libc::MFD_CLOEXEC).map_err(failed)?);
    let found = enter(pid, lists.as_raw_fd())?;
    match found {
        Found::Unknown => Ok((found, Told::default())),
        _ => Ok((found, Told::read(&text(&lists)?)?)),
    }
}

/// What the child has written.
fn text(lists: &File) -> Result<String> {
    let failed = |error| EngineError::system("read", "lists of IPC objects", error);
    let length = lists.metadata().map_err(failed)?.len();
    if length > LONGEST {
        return Err(refuse("is in an IPC namespace with more objects than are read".to_owned()));
    }
    let mut bytes = vec![0; length as usize];
    lists.read_exact_at(&mut bytes, 0).map_err(failed)?;
    String::from_utf8(bytes).map_err(|error| EngineError::odd("/proc/sysvipc", error.to_string()))
}

fn enter(pid: i32, lists: RawFd) -> Result<Found> {
    let path = format!("/proc/{pid}/ns/ipc");
    let namespace =
        File::open(&path).map_err(|error| EngineError::system("open", path.as_str(), error))?;
    let users = related(&namespace, GET_USER)?;
    let is_own = name_of(std::process::id() as i32, "user") == Some(user_name(&users)?);
    let users = (!is_own).then(|| users.as_raw_fd());
    let entered = (namespace.as_raw_fd(), users);
    // SAFETY: the child makes nothing but system calls, and leaves by _exit.
    match unsafe { fork() }.map_err(|errno| EngineError::system("fork", path.clone(), errno))? {
        ForkResult::Child => {
            let found = copy_lists(entered, lists).unwrap_or(Found::Unknown);
            // SAFETY: ends this process without running anything of its parent's.
            unsafe { libc::_exit(found as i32) }
        }
        ForkResult::Parent { child } => Ok(end(child)),
    }
}

/// What the child has found. Whoever has rights in the namespaces that it enters may stop it, and its alarm, too: it does not
/// outlive its time.
fn end(child: Pid) -> Found {
    let process = pidfd::open(child.as_raw(), 0);
    let in_time = process.as_ref().is_ok_and(|process| ends_in_time(process.as_fd()));
    if !in_time {
        // SAFETY: a child that was not waited for keeps its number.
        unsafe { libc::kill(child.as_raw(), libc::SIGKILL) };
    }
    loop {
        match waitpid(child, Some(WaitPidFlag::__WALL)) {
            Err(Errno::EINTR) => {}
            Ok(WaitStatus::Exited(_, 0)) => return Found::Lists,
            Ok(WaitStatus::Exited(_, 1)) => return Found::Queues,
            _ => return Found::Unknown,
        }
    }
}

fn ends_in_time(process: BorrowedFd<'_>) -> bool {
    let until = Instant::now() + LIMIT;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(process, PollFlags::POLLIN)], left) {
            Err(Errno::EINTR) => {}
            found => return found == Ok(1),
        }
    }
}

/// Whether a call has succeeded.
fn done(result: libc::c_int) -> Option<()> {
    (result == 0).then_some(())
}

/// Enters the namespace, and copies its lists. Runs in the child alone: nothing but system calls.
fn copy_lists((namespace, users): (RawFd, Option<RawFd>), lists: RawFd) -> Option<Found> {
    // SAFETY: numbers, and texts that end with a zero and live as long as the program.
    unsafe {
        // Should its parent end: this process's own handlers and mask are none of the child's.
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::alarm(LIMIT.as_secs() as libc::c_uint);
        if let Some(users) = users {
            done(libc::setns(users, libc::CLONE_NEWUSER))?;
        }
        done(libc::unshare(libc::CLONE_NEWNS))?;
        done(libc::setns(namespace, libc::CLONE_NEWIPC))?;
    }
    for list in LISTS {
        copy(list, lists)?;
    }
    let none = std::ptr::null();
    let (private, root) = (libc::MS_REC | libc::MS_PRIVATE, c"/".as_ptr());
    // SAFETY: as above; a null pointer stands for what mount(2) does not read.
    unsafe {
        done(libc::mount(none, root, none, private, none.cast()))?;
        let kind = c"mqueue".as_ptr();
        if libc::mount(kind, PASSING.as_ptr(), kind, 0, none.cast()) != 0 {
            // A kernel without them has none.
            let is_unknown = Errno::last() == Errno::ENODEV;
            return is_unknown.then_some(Found::Lists);
        }
    }
    Some(if is_empty(PASSING)? { Found::Lists } else { Found::Queues })
}

/// Copies a file to another; `None`: that can't be done. One that is not there has nothing.
fn copy(path: &CStr, to: RawFd) -> Option<()> {
    let mut buffer = [0_u8; 4096];
    // SAFETY: a text that ends with a zero, and a buffer of that length, of which as much is written as was read.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return (Errno::last() == Errno::ENOENT).then_some(());
        }
        loop {
            let length = libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len());
            let length = usize::try_from(length).ok()?;
            if length == 0 {
                break;
            }
            let written = libc::write(to, buffer.get(..length)?.as_ptr().cast(), length);
            done(libc::c_int::from(written != length as isize))?;
        }
        libc::close(fd);
    }
    Some(())
}

/// Whether a folder of message queues is empty: its size grows with each (ipc/mqueue.c, DIRENT_SIZE).
fn is_empty(path: &CStr) -> Option<bool> {
    // SAFETY: struct stat is plain data, for which zeros are a value.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a text that ends with a zero, and a struct that the kernel fills.
    done(unsafe { libc::stat(path.as_ptr(), &raw mut found) })?;
    // `.` and `..` count.
    Some(found.st_size <= 2 * DIRENT_SIZE)
}

/// What a queue adds to the size of the folder (ipc/mqueue.c).
const DIRENT_SIZE: libc::off_t = 20;
