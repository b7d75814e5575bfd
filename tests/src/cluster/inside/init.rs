//! A node's first process: its death is the node's.

use std::io::Read;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::{InsideError, call, mounts, tell};

/// Buries orphans until standard input ends.
///
/// # Errors
/// When /proc cannot be mounted or the harness is gone.
pub fn run() -> Result<(), InsideError> {
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    call("block SIGCHLD", children.thread_block())?;
    mounts::proc()?;
    tell("ready")?;
    std::thread::spawn(|| {
        // Nothing ever comes; an error ends the node as the end does.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)) {
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => {
                call("wait for SIGCHLD", children.wait())?;
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return call("wait for orphans", Err(error)),
        }
    }
}
