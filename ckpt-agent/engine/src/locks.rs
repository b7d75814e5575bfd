//! File locks: flock(2), and fcntl(2)'s of open file descriptions and of processes.
//!
//! /proc/PID/fdinfo/N tells the locks that were set through that description by that process
//! (fs/locks.c, show_fd_locks).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::error::{EngineError, Refusal, Result};
use super::graph::{LeaseBreak, Lock, LockKind};
use super::objects::FdInfo;

/// Limit of locks through one description.
const LIMIT: usize = 100_000;

/// All locks that a descriptor's fdinfo shows. Those of [`LockKind::Process`] belong to the
/// process (one descriptor of each description is enough to find them), the others to the
/// description. A holder has its number on this machine.
///
/// # Errors
/// A refusal of delegations; lines that are not understood.
pub fn read(info: &FdInfo) -> Result<Vec<Lock>> {
    let parse = |line| parse(line, info);
    let locks: Result<Vec<Lock>> = info.lines("lock").take(LIMIT + 1).map(parse).collect();
    let locks = locks?;
    if locks.len() > LIMIT {
        let what = format!("it has more than {LIMIT} file locks");
        return Err(Refusal::new(what, "lock larger ranges").into());
    }
    Ok(locks)
}

/// Sets a lock of a description again, through any descriptor of it (in the job's init).
///
/// # Errors
/// [`EngineError::Unfit`] where somebody else holds it; failed system calls.
pub fn restore_of_description(fd: BorrowedFd<'_>, lock: &Lock) -> Result<()> {
    match lock.kind {
        LockKind::Flock => {
            let operation = if lock.exclusive { libc::LOCK_EX } else { libc::LOCK_SH };
            // SAFETY: a descriptor and a number.
            let answer = unsafe { libc::flock(fd.as_raw_fd(), operation | libc::LOCK_NB) };
            checked(answer, fd)
        }
        LockKind::Description => set(fd, libc::F_OFD_SETLK, lock),
        // Set by the process, and when nothing is open any more.
        LockKind::Process | LockKind::Lease => Ok(()),
    }
}

fn set(fd: BorrowedFd<'_>, command: libc::c_int, lock: &Lock) -> Result<()> {
    let offset = |value: u64| {
        libc::off_t::try_from(value).map_err(|_| EngineError::Damaged(format!("a lock at {value}")))
    };
    let wanted = libc::flock {
        l_type: if lock.exclusive { libc::F_WRLCK } else { libc::F_RDLCK } as _,
        l_whence: libc::SEEK_SET as _,
        l_start: offset(lock.start)?,
        l_len: offset(lock.length)?,
        l_pid: 0,
    };
    // SAFETY: the kernel reads the structure, which outlives the call.
    let answer = unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw const wanted) };
    checked(answer, fd)
}

fn checked(answer: libc::c_int, fd: BorrowedFd<'_>) -> Result<()> {
    let name = || {
        std::fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
            .map_or_else(|_| "a file".to_owned(), |path| path.to_string_lossy().into_owned())
    };
    match Errno::result(answer) {
        Ok(_) => Ok(()),
        Err(Errno::EAGAIN | Errno::EACCES) => Err(EngineError::Unfit {
            what: format!("another process has locked {}", name()),
            way_out: "end that process".to_owned(),
        }),
        Err(errno) => Err(EngineError::system("lock", name(), errno)),
    }
}

/// `1: POSIX  ADVISORY  WRITE 8107 fe:00:10010793 5 14` (proc_locks(5)).
fn parse(line: &str, info: &FdInfo) -> Result<Lock> {
    let odd = || EngineError::odd("a lock in fdinfo", line);
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, kind, state, access, holder, _, start, end] = fields.as_slice() else {
        return Err(odd());
    };
    let kind = match *kind {
        "FLOCK" => LockKind::Flock,
        "OFDLCK" => LockKind::Description,
        "POSIX" => LockKind::Process,
        "LEASE" => LockKind::Lease,
        "DELEG" => {
            return Err(Refusal::new("a delegation of a file", "give it up with F_UNLCK").into());
        }
        _ => return Err(odd()),
    };
    // Of a lease that is being broken, this is what its holder is asked to keep.
    let (exclusive, broken) = match (kind, *state, *access) {
        (LockKind::Lease, "BREAKING", "READ") => (true, Some(LeaseBreak::ToShared)),
        (LockKind::Lease, "BREAKING", "UNLCK") => (may_write(info), Some(LeaseBreak::ToNothing)),
        (LockKind::Lease, state, _) if state != "ACTIVE" => return Err(odd()),
        (_, _, "WRITE") => (true, None),
        (_, _, "READ") => (false, None),
        _ => return Err(odd()),
    };
    let start: u64 = start.parse().map_err(|_| odd())?;
    let length = match *end {
        "EOF" => 0,
        end => end
            .parse::<u64>()
            .ok()
            .and_then(|end| (end + 1).checked_sub(start))
            .filter(|length| *length > 0)
            .ok_or_else(odd)?,
    };
    // 0: it has ended (locks_translate_pid()).
    let holder =
        (kind == LockKind::Flock).then(|| holder.parse().map_err(|_| odd())).transpose()?;
    let holder = holder.filter(|holder| *holder > 0);
    Ok(Lock { kind, exclusive, start, length, holder, broken })
}

/// Whether a description may write: then its lease is one for writing (fs/locks.c, check_conflicting_open()). One that may
/// only read has either kind; as it is about to lose it, that makes no difference any more.
fn may_write(info: &FdInfo) -> bool {
    let flags = info.get("flags").and_then(|flags| libc::c_int::from_str_radix(flags, 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let info = FdInfo::parse(
            "pos:\t0\nlock:\t1: FLOCK  ADVISORY  WRITE 8107 fe:00:10010793 0 EOF\n\
             lock:\t2: POSIX  ADVISORY  READ 8107 fe:00:10010793 5 14\n"
                .into(),
        );
        let locks = read(&info).unwrap();
        assert_eq!(
            locks,
            [
                Lock {
                    kind: LockKind::Flock,
                    exclusive: true,
                    start: 0,
                    length: 0,
                    holder: Some(8107),
                    broken: None,
                },
                Lock {
                    kind: LockKind::Process,
                    exclusive: false,
                    start: 5,
                    length: 10,
                    holder: None,
                    broken: None,
                },
            ]
        );
        let leased = FdInfo::parse("lock:\t1: LEASE  ACTIVE    WRITE 1 fe:00:1 0 EOF".into());
        let lease = Lock {
            kind: LockKind::Lease,
            exclusive: true,
            start: 0,
            length: 0,
            holder: None,
            broken: None,
        };
        assert_eq!(read(&leased).unwrap(), [lease]);
        let breaking = |flags: &str, access: &str| {
            let text =
                format!("flags:\t{flags}\nlock:\t1: LEASE  BREAKING  {access} 1 fe:00:1 0 EOF");
            read(&FdInfo::parse(text)).unwrap().remove(0)
        };
        let broken = |broken, exclusive| Lock { broken: Some(broken), exclusive, ..lease };
        assert_eq!(breaking("0100002", "READ"), broken(LeaseBreak::ToShared, true));
        assert_eq!(breaking("0100002", "UNLCK"), broken(LeaseBreak::ToNothing, true));
        assert_eq!(breaking("0100000", "UNLCK"), broken(LeaseBreak::ToNothing, false));
        for bad in [
            "lock: 1: LEASE  BREAKING  WRITE 1 fe:00:1 0 EOF",
            "lock: 1: LEASE  BREAKER   READ 1 fe:00:1 0 EOF",
            "lock: 1: DELEG  ACTIVE    READ 1 fe:00:1 0 EOF",
            "lock: 1: POSIX  ADVISORY  READ 1 fe:00:1 9 3",
            "lock: nonsense",
        ] {
            assert!(read(&FdInfo::parse(bad.into())).is_err(), "{bad}");
        }
    }
}
