//! A node's first process: its death is the node's.

use std::io::Read;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::{InsideError, call, mounts, tell};

/// Numbers of processes that a node gives out, at least: machines that have run for a while are not all at the same one, and
/// whoever looks at a job without namespaces of its own should meet the numbers that machines give.
const NUMBERS: u32 = 2000;

/// Lets processes' numbers begin elsewhere than on other nodes.
fn number_apart() {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let digits: String =
        name.to_string_lossy().chars().filter(char::is_ascii_digit).take(2).collect();
    let last = NUMBERS * (1 + digits.parse::<u32>().unwrap_or(0));
    // Where the kernel has no such setting (CONFIG_CHECKPOINT_RESTORE) they begin at the lowest everywhere.
    let _ = std::fs::write("/proc/sys/kernel/ns_last_pid", last.to_string());
}

/// Buries orphans until standard input ends.
///
/// # Errors
/// When /proc cannot be mounted or the harness is gone.
pub fn run() -> Result<(), InsideError> {
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    call("block SIGCHLD", children.thread_block())?;
    mounts::proc()?;
    number_apart();
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
