//! Calls that wait for an answer (seccomp_unotify(2)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

/// Where calls arrive.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// A call whose thread waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notification {
    /// Names it.
    pub id: u64,
    /// The thread, as this process numbers it.
    pub tid: i32,
    /// The call's number.
    pub number: libc::c_long,
    /// Its arguments.
    pub arguments: [u64; 6],
}

impl Listener {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Takes the next call. To be called when the descriptor is readable. `None`: its thread waits no more.
    ///
    /// # Errors
    /// As ioctl_seccomp(2).
    pub fn receive(&self) -> io::Result<Option<Notification>> {
        // SAFETY: plain integers, which the kernel wants to be zero.
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills a live structure of the size that is part of the request's number.
        let answer = unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call)
        };
        match Errno::result(answer) {
            Ok(_) => Ok(Some(Notification {
                id: call.id,
                tid: call.pid as i32,
                number: call.data.nr.into(),
                arguments: call.data.args,
            })),
            Err(Errno::ENOENT | Errno::EINTR | Errno::EAGAIN) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether its thread still waits: what was read of the thread before was the right thread's.
    pub fn is_valid(&self, id: u64) -> bool {
        // SAFETY: the kernel reads a live integer.
        let answer = unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id)
        };
        answer == 0
    }

    /// Lets the call go on in the kernel as it was made. Whether its thread still waited.
    pub fn go_on(&self, id: u64) -> bool {
        self.send(libc::seccomp_notif_resp {
            id,
            val: 0,
            error: 0,
            flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
        })
    }

    /// Answers instead of the kernel: a result, or an error. Whether its thread still waited.
    pub fn answer(&self, id: u64, result: Result<i64, Errno>) -> bool {
        let (val, error) = match result {
            Ok(value) => (value, 0),
            Err(errno) => (0, -(errno as i32)),
        };
        self.send(libc::seccomp_notif_resp { id, val, error, flags: 0 })
    }

    fn send(&self, response: libc::seccomp_notif_resp) -> bool {
        // SAFETY: the kernel reads a live structure of the size that is part of the request's number.
        let answer = unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const response)
        };
        answer == 0
    }

    /// Answers with a new descriptor of the process, in one step.
    ///
    /// # Errors
    /// ENOENT: its thread waits no more. EMFILE: it can't have another one.
    pub fn give(&self, id: u64, fd: BorrowedFd<'_>, close_on_exec: bool) -> Result<(), Errno> {
        let request = libc::seccomp_notif_addfd {
            id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            srcfd: fd.as_raw_fd() as u32,
            newfd: 0,
            newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        // SAFETY: the kernel reads a live structure of the size that is part of the request's number.
        let answer = unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const request)
        };
        Errno::result(answer).map(drop)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
