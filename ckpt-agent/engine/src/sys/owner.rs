//! Who is told of input on a descriptor: fcntl(2), F_SETOWN_EX and F_SETSIG.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

const F_SETSIG: libc::c_int = 10;
const F_GETSIG: libc::c_int = 11;
const F_SETOWN_EX: libc::c_int = 15;
const F_GETOWN_EX: libc::c_int = 16;

/// struct f_owner_ex
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileOwner {
    /// F_OWNER_TID 0, F_OWNER_PID 1, F_OWNER_PGRP 2.
    pub kind: i32,
    /// Its number in this process's PID namespace.
    pub pid: i32,
}

/// The owner of an open file description, if it has one that can be seen from here.
pub fn file_owner(fd: &OwnedFd) -> Option<FileOwner> {
    let mut owner = FileOwner::default();
    // SAFETY: `owner` lives across the call.
    let answer = unsafe { libc::fcntl(fd.as_raw_fd(), F_GETOWN_EX, &raw mut owner) };
    (answer == 0 && owner.pid > 0).then_some(owner)
}

/// The signal that the owner gets; 0: SIGIO.
pub fn file_signal(fd: &OwnedFd) -> i32 {
    signal_of(fd).unwrap_or_default()
}

/// Signals that nobody has to expect: where nothing is done about them they are ignored (signal(7)). Should input come while one of
/// them is set in the place of another, no harm is done.
const MARKS: [i32; 2] = [libc::SIGURG, libc::SIGWINCH];

/// Whether two descriptors share one open file description, by which signal it has for its owner: a mark that is set through one of them is
/// seen through the other. It is as before after that. For kernels without kcmp(2), and sandboxes that forbid it. `None`: nobody
/// can tell (O_PATH).
pub fn share_a_mark(left: &OwnedFd, right: &OwnedFd) -> Option<bool> {
    let before = signal_of(left)?;
    if signal_of(right)? != before {
        return Some(false);
    }
    let unlike = MARKS
        .into_iter()
        .find(|mark| set_signal(left, *mark).is_err() || signal_of(right) != Some(*mark));
    set_signal(left, before).ok()?;
    Some(unlike.is_none())
}

/// As [`share_a_mark`], by O_NONBLOCK: for descriptions whose owner is told of input (O_ASYNC), or of who wants a leased file, and
/// must not be told by another signal than it expects. Only of descriptions that nobody uses meanwhile.
pub fn share_a_flag(left: &OwnedFd, right: &OwnedFd) -> Option<bool> {
    let flags = |fd| fcntl(fd, FcntlArg::F_GETFL).ok().map(OFlag::from_bits_retain);
    let before = flags(left)?;
    if flags(right)? != before {
        return Some(false);
    }
    let marked = before ^ OFlag::O_NONBLOCK;
    fcntl(left, FcntlArg::F_SETFL(marked)).ok()?;
    let seen = flags(right);
    fcntl(left, FcntlArg::F_SETFL(before)).ok()?;
    seen.map(|seen| seen == marked)
}

fn signal_of(fd: &OwnedFd) -> Option<i32> {
    // SAFETY: takes numbers only.
    let signal = unsafe { libc::fcntl(fd.as_raw_fd(), F_GETSIG) };
    (signal >= 0).then_some(signal)
}

fn set_signal(fd: &impl AsRawFd, signal: i32) -> nix::Result<()> {
    // SAFETY: takes numbers only.
    Errno::result(unsafe { libc::fcntl(fd.as_raw_fd(), F_SETSIG, signal) }).map(drop)
}

/// Sets owner and signal.
///
/// # Errors
/// ESRCH where there is no such process.
pub fn set_file_owner(fd: &impl AsRawFd, owner: FileOwner, signal: i32) -> nix::Result<()> {
    // SAFETY: `owner` lives across the call.
    Errno::result(unsafe { libc::fcntl(fd.as_raw_fd(), F_SETOWN_EX, &raw const owner) })?;
    set_signal(fd, signal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;

    #[test]
    fn a_mark_is_seen_through_duplicates_only() {
        let open = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let (one, other) = (open(), open());
        let duplicate = one.try_clone().unwrap();
        for signal in [0, libc::SIGURG, libc::SIGWINCH, 40] {
            for fd in [&one, &other] {
                set_signal(fd, signal).unwrap();
            }
            assert_eq!(share_a_mark(&one, &duplicate), Some(true));
            assert_eq!(share_a_mark(&one, &other), Some(false), "signal {signal}");
            assert_eq!([&one, &other, &duplicate].map(file_signal), [signal; 3]);
        }
        assert_eq!(share_a_mark(&path(), &one), None);
    }

    #[test]
    fn a_flag_is_seen_through_duplicates_only() {
        for flags in [OFlag::empty(), OFlag::O_NONBLOCK, OFlag::O_APPEND] {
            let open = || nix::fcntl::open("/dev/null", flags, Mode::empty()).unwrap();
            let (one, other) = (open(), open());
            let duplicate = one.try_clone().unwrap();
            let before = fcntl(&one, FcntlArg::F_GETFL);
            assert_eq!(share_a_flag(&one, &duplicate), Some(true));
            assert_eq!(share_a_flag(&one, &other), Some(false));
            assert_eq!(fcntl(&one, FcntlArg::F_GETFL), before);
        }
        assert_eq!(share_a_flag(&path(), &path()), None);
    }

    fn path() -> OwnedFd {
        nix::fcntl::open("/", OFlag::O_PATH, Mode::empty()).unwrap()
    }
}
