//! ptrace(2): requests with a plain value are safe, those that name memory are not.

use nix::errno::Errno;

use super::super::sys::abi::{self, PtraceRequest as Request};

/// Bytes of a siginfo_t.
pub const SIGINFO: usize = 128;

/// PTRACE_GETSIGINFO and PTRACE_SETSIGINFO (include/uapi/linux/ptrace.h).
const GET_SIGINFO: Request = 0x4202;
const SET_SIGINFO: Request = 0x4203;

/// A request whose argument is a plain value, or that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plain {
    /// PTRACE_SEIZE, without options.
    Seize,
    /// PTRACE_INTERRUPT.
    Interrupt,
    /// PTRACE_DETACH, without a signal.
    Detach,
    /// PTRACE_CONT, with a signal (0: none).
    Continue(i32),
    /// PTRACE_SYSCALL: until the next system call begins or ends.
    ToSystemCall,
    /// PTRACE_SINGLESTEP.
    Step,
    /// PTRACE_SETOPTIONS, with PTRACE_O_* flags.
    SetOptions(i32),
}

impl Plain {
    /// The request's name, for errors.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Seize => "PTRACE_SEIZE",
            Self::Interrupt => "PTRACE_INTERRUPT",
            Self::Detach => "PTRACE_DETACH",
            Self::Continue(_) => "PTRACE_CONT",
            Self::ToSystemCall => "PTRACE_SYSCALL",
            Self::Step => "PTRACE_SINGLESTEP",
            Self::SetOptions(_) => "PTRACE_SETOPTIONS",
        }
    }
}

/// Makes a request.
///
/// # Errors
/// As ptrace(2): ESRCH where the thread has ended or does not stand.
pub(super) fn plain(tid: i32, request: Plain) -> nix::Result<()> {
    let (request, value) = match request {
        Plain::Seize => (abi::PTRACE_SEIZE, 0),
        Plain::Interrupt => (abi::PTRACE_INTERRUPT, 0),
        Plain::Detach => (libc::PTRACE_DETACH, 0),
        Plain::Continue(signal) => (libc::PTRACE_CONT, signal),
        Plain::ToSystemCall => (libc::PTRACE_SYSCALL, 0),
        Plain::Step => (libc::PTRACE_SINGLESTEP, 0),
        Plain::SetOptions(options) => (libc::PTRACE_SETOPTIONS, options),
    };
    // SAFETY: none of these requests reads or writes memory of this process.
    Errno::result(unsafe { libc::ptrace(request, tid, 0usize, value as usize) }).map(drop)
}

/// Makes a request that reads or writes memory of this process.
///
/// # Safety
/// `data`, and `address` where this request takes a pointer there, must name memory of the size and type that the
/// request reads or writes (ptrace(2)), which lives across the call and to which nobody else has a reference if the
/// request writes.
///
/// # Errors
/// As ptrace(2).
pub(super) unsafe fn with_memory<T>(
    request: Request,
    tid: i32,
    address: usize,
    data: *mut T,
) -> nix::Result<libc::c_long> {
    // SAFETY: as the caller promises.
    Errno::result(unsafe { libc::ptrace(request, tid, address, data as usize) })
}

/// The siginfo_t of a thread's stop.
///
/// # Errors
/// As ptrace(2).
pub(super) fn siginfo(tid: i32) -> nix::Result<[u8; SIGINFO]> {
    let mut siginfo = [0; SIGINFO];
    // SAFETY: the request writes a siginfo_t of that many bytes.
    unsafe { with_memory(GET_SIGINFO, tid, 0, siginfo.as_mut_ptr()) }?;
    Ok(siginfo)
}

/// Replaces it.
///
/// # Errors
/// As ptrace(2).
pub(super) fn set_siginfo(tid: i32, siginfo: &[u8; SIGINFO]) -> nix::Result<()> {
    let mut siginfo = *siginfo;
    // SAFETY: the request reads a siginfo_t of that many bytes.
    unsafe { with_memory(SET_SIGINFO, tid, 0, siginfo.as_mut_ptr()) }.map(drop)
}
