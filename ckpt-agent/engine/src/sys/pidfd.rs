//! pidfd_open(2) and pidfd_getfd(2): working copies of another process's descriptors.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

use super::super::error::{EngineError, Result};
use super::trial::{Call, PROCESS_MRELEASE};

/// PIDFD_THREAD, since Linux 6.9 (include/uapi/linux/pidfd.h).
pub const THREAD: i32 = libc::O_EXCL;

/// A process that cannot be mistaken for a later one of the same number.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
    pid: i32,
}

impl PidFd {
    /// Of a process as this machine numbers it (a thread group's leader), or, since Linux 6.9, of a thread. Close-on-exec.
    ///
    /// # Errors
    /// Failed pidfd_open(2): ESRCH where the process has ended.
    pub fn open(host_pid: i32) -> Result<Self> {
        Call::PidfdOpen.must_not_be_forbidden()?;
        // SAFETY: plain numbers; the answer is checked before it is used.
        let open = |flags: i32| unsafe { libc::syscall(libc::SYS_pidfd_open, host_pid, flags) };
        let mut fd = open(0);
        if fd < 0 && matches!(Errno::last(), Errno::EINVAL | Errno::ENOENT) {
            // A thread that leads no process.
            fd = open(THREAD);
        }
        if fd < 0 {
            return Err(EngineError::last_os("pidfd_open", format!("process {host_pid}")));
        }
        // SAFETY: the kernel just made this descriptor for us alone.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd as i32) }, pid: host_pid })
    }

    /// A copy of one of its descriptors, close-on-exec: the same open file description. O_PATH
    /// descriptors are copied too.
    ///
    /// # Errors
    /// Failed pidfd_getfd(2): EBADF where it has no such descriptor, EPERM where it may not be
    /// traced.
    pub fn descriptor(&self, fd: i32) -> Result<OwnedFd> {
        Call::PidfdGetfd.must_not_be_forbidden()?;
        // SAFETY: plain numbers; the answer is checked before it is used.
        let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.fd.as_raw_fd(), fd, 0) };
        if copy < 0 {
            let what = format!("descriptor {fd} of process {}", self.pid);
            return Err(EngineError::last_os("pidfd_getfd", what));
        }
        // SAFETY: the kernel just made this descriptor for us alone.
        Ok(unsafe { OwnedFd::from_raw_fd(copy as i32) })
    }

    /// Sends a signal (pidfd_send_signal(2)).
    ///
    /// # Errors
    /// ESRCH where the process has ended and was waited for, EPERM.
    pub fn signal(&self, signal: i32) -> Result<()> {
        let (fd, none) = (self.fd.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
        // SAFETY: plain numbers, and no siginfo.
        let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, none, 0) };
        if sent < 0 {
            let what = format!("process {}", self.pid);
            return Err(EngineError::last_os("pidfd_send_signal", what));
        }
        Ok(())
    }

    /// Takes the memory of a process that has been killed, without waiting for the process to be scheduled and to end
    /// (process_mrelease(2), Linux 5.15).
    ///
    /// # Errors
    /// EINVAL where nobody has killed it, ESRCH where it has given its memory up itself, EAGAIN where a mapping could
    /// not be taken yet, ENOSYS.
    pub fn release_memory(&self) -> nix::Result<()> {
        // SAFETY: plain numbers; the memory is another process's, which never runs in it again.
        let released = unsafe { libc::syscall(PROCESS_MRELEASE, self.fd.as_raw_fd(), 0) };
        Errno::result(released).map(drop)
    }

    /// Whether the process has ended, waited for or not (pidfd_open(2)): with the init of a PID
    /// namespace, everything in it has.
    pub fn has_ended(&self) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let mut polled = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut polled, PollTimeout::ZERO), Ok(1))
    }

    /// The process's number on this machine.
    pub fn pid(&self) -> i32 {
        self.pid
    }
}

/// Kills the process of such a descriptor.
///
/// # Errors
/// ESRCH where it has ended.
pub fn kill(process: BorrowedFd<'_>) -> nix::Result<()> {
    let (fd, none) = (process.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
    // SAFETY: plain numbers, and no siginfo.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, none, 0) };
    Errno::result(sent).map(drop)
}

/// A descriptor of a process or, with PIDFD_THREAD, of a thread.
///
/// # Errors
/// Failed pidfd_open(2).
pub fn open(number: i32, flags: i32) -> Result<OwnedFd> {
    // SAFETY: plain numbers; the answer is checked before it is used.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, number, flags) };
    if fd < 0 {
        return Err(EngineError::last_os("pidfd_open", format!("process {number}")));
    }
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// How the process of a descriptor has ended, as wait(2) tells it, once it was waited for (PIDFD_GET_INFO, Linux 6.15); `None`:
/// the kernel does not tell.
pub fn status_of_ended(process: BorrowedFd<'_>) -> Option<i32> {
    /// PIDFD_INFO_EXIT (include/uapi/linux/pidfd.h).
    const EXIT: u64 = 1 << 3;
    /// PIDFD_GET_INFO with the first version of struct pidfd_info.
    const GET_INFO: u32 = 3 << 30 | (size_of::<Info>() as u32) << 16 | 0xff << 8 | 11;
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        control_group: u64,
        numbers: [u32; 11],
        status: i32,
    }
    let mut info = Info { mask: EXIT, ..Info::default() };
    // SAFETY: the kernel reads and writes as many bytes of `info` as the number of the call says, which lives across it.
    let got = unsafe { libc::ioctl(process.as_raw_fd(), GET_INFO as _, &raw mut info) };
    (got == 0 && info.mask & EXIT != 0).then_some(info.status)
}

/// Ends this process, the child of a single-threaded one, with a status as wait(2) tells it. Without a core.
fn end_so(status: i32) -> ! {
    // No process has ended by those, and one that stops is waited for in vain.
    const STOP: [i32; 4] = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    let signal = Some(status & 0x7f).filter(|signal| !STOP.contains(signal)).unwrap_or(0);
    // SAFETY: plain numbers, and a set of signals that lives across the calls; nothing but system calls, of a process that
    // ends with them.
    unsafe {
        if signal != 0 {
            libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
            libc::signal(signal, libc::SIG_DFL);
            let mut all = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::sigprocmask(libc::SIG_UNBLOCK, &raw const all, std::ptr::null_mut());
            libc::kill(libc::getpid(), signal);
        }
        libc::_exit(status >> 8 & 0xff)
    }
}

/// Descriptors of a process that has ended and was waited for: of a child that does nothing else. For a single-threaded
/// process. `flags`: of each. `status`: how it ends, as wait(2) tells it.
///
/// # Errors
/// Failed fork(2) or pidfd_open(2).
pub fn of_ended(flags: &[i32], status: i32) -> Result<Vec<OwnedFd>> {
    use nix::sys::wait::waitpid;
    use nix::unistd::{ForkResult, fork};
    // SAFETY: the child makes a few system calls and nothing else.
    let forked = unsafe { fork() };
    match forked.map_err(|errno| EngineError::system("fork", "a process that ends", errno))? {
        ForkResult::Child => end_so(status),
        ForkResult::Parent { child } => {
            let open = |flags: &i32| open(child.as_raw(), flags & !libc::O_EXCL);
            let opened = flags.iter().map(open).collect();
            waitpid(child, None)
                .map_err(|errno| EngineError::system("waitpid", "a process that ends", errno))?;
            opened
        }
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
