//! Calls that the kernel remembers their caller of: who connects, listens, or makes a pair of sockets is told to the peer
//! (SO_PEERCRED), and who sends a message to its receiver (SO_PASSCRED). The kernel keeps the number itself, which the
//! end of its bearer does not change (kernel/pid.c, pid_nr_ns). So a child of the init's that bears the number for the
//! moment makes the call; the process itself gets the number later.

use std::io::{Error, Read, Result, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, waitpid};

use super::super::super::graph::Pid;
use super::super::super::job_init::world::wants_numbers;
use super::super::super::sys::clone3::{Shared, Side, SingleThreaded, fork_exact};
use super::super::super::sys::trial::Call;

/// Does something as a process of this number, if that can be had, else as this one.
///
/// # Errors
/// What `act` returns.
pub(super) fn by(process: Option<Pid>, act: impl Fn() -> Result<()>) -> Result<()> {
    pair_by(process, || act().map(|()| [-1; 2])).map(drop)
}

/// The same of what makes two descriptors.
///
/// # Errors
/// What `act` returns.
pub(super) fn two_by(
    process: Option<Pid>,
    act: impl Fn() -> Result<[RawFd; 2]>,
) -> Result<(OwnedFd, OwnedFd)> {
    let [one, other] = pair_by(process, act)?;
    // SAFETY: both were just made for us alone, by this process or by a child that shares the table of descriptors.
    Ok(unsafe { (OwnedFd::from_raw_fd(one), OwnedFd::from_raw_fd(other)) })
}

fn pair_by(process: Option<Pid>, act: impl Fn() -> Result<[RawFd; 2]>) -> Result<[RawFd; 2]> {
    let own = std::process::id();
    let wanted = process.filter(|pid| u32::try_from(*pid).is_ok_and(|pid| pid > 1 && pid != own));
    match wanted.and_then(|pid| in_child(pid, &act)) {
        Some(answer) => answer,
        None => act(),
    }
}

/// None: the number can't be had, and nothing was done.
fn in_child(pid: Pid, act: &impl Fn() -> Result<[RawFd; 2]>) -> Option<Result<[RawFd; 2]>> {
    if !wants_numbers() || !Call::Clone3.may_be_made() {
        return None;
    }
    let proof = SingleThreaded::check().ok()?;
    let (mut here, mut there) = UnixStream::pair().ok()?;
    let shared = Shared { descriptors: true, ..Shared::default() };
    match fork_exact(&proof, pid, 0, shared).ok()? {
        Side::Child => {
            let (errno, [one, other]) = match act() {
                Ok(made) => (0, made),
                Err(error) => (error.raw_os_error().unwrap_or(libc::EIO), [-1; 2]),
            };
            let answer = [errno, one, other].map(i32::to_ne_bytes).concat();
            let told = there.write_all(&answer).is_ok();
            // SAFETY: ends this process without running anything of its parent's.
            unsafe { libc::_exit(i32::from(!told)) }
        }
        Side::Parent(child) => {
            // A copy of its end of the stream is here as well: that it has ended is told by its wait alone.
            while waitpid(nix::unistd::Pid::from_raw(child), Some(WaitPidFlag::__WALL))
                == Err(Errno::EINTR)
            {}
            let mut answer = [0; 12];
            if let Err(error) =
                here.set_nonblocking(true).and_then(|()| here.read_exact(&mut answer))
            {
                return Some(Err(error));
            }
            let [errno, one, other] = [0, 4, 8].map(|at| part(&answer, at));
            Some(match errno {
                0 => Ok([one, other]),
                errno => Err(Error::from_raw_os_error(errno)),
            })
        }
    }
}

fn part(answer: &[u8; 12], at: usize) -> i32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&answer[at..at + 4]);
    i32::from_ne_bytes(bytes)
}
