//! What process 1 does while the job runs: it reaps, and ends when its agent has ended.

use std::io;
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use protocol::agent::ExitKind;

use super::super::demand::{Feeder, Heard};
use super::super::graph::Pid;
use super::super::sys::signals;
use super::Report;
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

/// What a job's first process, or its agent, or its memory has come to.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The first process has ended like this.
    Job(ExitKind),
    /// The agent went first.
    Agent,
    /// A page can't be had, and why.
    Memory(String),
}

/// Reaps until one of these ends. The agent is told how far memory is filled, where that is not done.
///
/// # Errors
/// Failed system calls.
pub fn until_end(root: Pid, channel: &Channel, mut feeder: Option<Feeder>) -> nix::Result<End> {
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&children), None)?;
    let ends = SignalFd::with_flags(&children, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    loop {
        // First, since it may be why the process has ended.
        if let Some(why) = feeder.as_mut().and_then(|feeder| listen(feeder, channel)) {
            return Ok(End::Memory(why));
        }
        feeder.take_if(|feeder| feeder.is_over());
        if let Some(status) = reap(root)? {
            return Ok(End::Job(status));
        }
        let mut polled = vec![
            PollFd::new(ends.as_fd(), PollFlags::POLLIN),
            PollFd::new(channel.socket().as_fd(), PollFlags::POLLIN),
        ];
        polled.extend(feeder.iter().map(|feeder| PollFd::new(feeder.as_fd(), PollFlags::POLLIN)));
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        // The agent sends nothing any more: anything to read is its end.
        let gone = polled[1].revents().is_some_and(|events| !events.is_empty());
        if gone {
            return Ok(End::Agent);
        }
        while let Ok(Some(_)) = ends.read_signal() {}
    }
}

/// Takes what the pager says, and passes on what the agent is to know; why it has failed, if it has.
fn listen(feeder: &mut Feeder, channel: &Channel) -> Option<String> {
    while feeder.has_something() {
        // An agent that has gone is seen by its socket.
        match feeder.hear() {
            Heard::Nothing => {}
            Heard::Progress(bytes) => drop(channel.send(&Report::Filling { bytes }, &[])),
            Heard::Filled => drop(channel.send(&Report::Filled, &[])),
            Heard::Failed(why) => return Some(why),
        }
    }
    None
}

/// Waits until all processes have ended that were killed.
pub fn until_none_is_left() {
    loop {
        // SAFETY: takes numbers and a null pointer, which waitpid(2) allows.
        let ended = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL) };
        if ended < 0 && nix::errno::Errno::last() != nix::errno::Errno::EINTR {
            return;
        }
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
