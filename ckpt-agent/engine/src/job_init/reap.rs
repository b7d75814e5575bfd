//! What process 1 does while the job runs: it reaps, and ends when its agent has ended.

use std::io;
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use protocol::agent::ExitKind;

use super::super::graph::Pid;
use super::super::sys::signals;
use super::channel::Channel;

/// Default actions and an empty mask for a program that is about to be started, whatever this
/// one's parent has left (SIGPIPE is ignored by Rust's run time).
///
/// # Errors
/// Failed system calls.
pub fn default_signals() -> io::Result<()> {
    for signal in 1..=signals::LAST {
        if signal != libc::SIGKILL && signal != libc::SIGSTOP {
            // SAFETY: the default action has no handler.
            unsafe { signals::set_action(signal, signals::DEFAULT) }?;
        }
    }
    signals::set_blocked(0).map(drop)
}

/// Reaps until the job's first process ends; how it ended. `None`: the agent went first.
///
/// # Errors
/// Failed system calls.
pub fn until_end(root: Pid, channel: &Channel) -> nix::Result<Option<ExitKind>> {
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&children), None)?;
    let ends = SignalFd::with_flags(&children, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    loop {
        if let Some(status) = reap(root)? {
            return Ok(Some(status));
        }
        let mut polled = [
            PollFd::new(ends.as_fd(), PollFlags::POLLIN),
            PollFd::new(channel.socket().as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        // The agent sends nothing any more: anything to read is its end.
        let gone = polled[1].revents().is_some_and(|events| !events.is_empty());
        if gone {
            return Ok(None);
        }
        while let Ok(Some(_)) = ends.read_signal() {}
    }
}

fn reap(root: Pid) -> nix::Result<Option<ExitKind>> {
    let mut end = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Exited(pid, status)) if pid.as_raw() == root => {
                end = Some(ExitKind::Exited(status as u8));
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid.as_raw() == root => {
                end = Some(ExitKind::Signalled(signal as i32));
            }
            Ok(WaitStatus::StillAlive) | Err(nix::errno::Errno::ECHILD) => return Ok(end),
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            // A child that ended by a signal that nix does not know (real-time): waitpid has reaped it.
            Err(nix::errno::Errno::EINVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
}
