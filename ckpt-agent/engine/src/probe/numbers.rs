//! How a process gets a number that it had before, without a PID namespace of its own.

use nix::sys::wait::waitpid;
use serde::{Deserialize, Serialize};

use super::super::sys::clone3::{Shared, Side, SingleThreaded, fork_exact};
use super::super::sys::rounds::{self, Counter};
use super::super::sys::trial::Call;
use super::child::in_child;
use super::error::ProbeError;

/// How numbers are had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Numbers {
    /// By asking for them.
    AskedFor,
    /// By waiting until the kernel, which has so many, hands them out again.
    WaitedFor(i32),
    /// Not at all, and why.
    New(String),
}

/// Tries it, in a child.
pub fn numbers() -> Numbers {
    in_child(|| Ok(attempt())).unwrap_or_else(|error| Numbers::New(error.to_string()))
}

fn attempt() -> Numbers {
    let (Some(end), Some(last)) = (rounds::end(), Counter::default().last()) else {
        return Numbers::New("the kernel does not say how many numbers it has".into());
    };
    let why = match ask(last, end) {
        Ok(()) => return Numbers::AskedFor,
        Err(why) => why,
    };
    if rounds::is_worth_waiting(end) {
        Numbers::WaitedFor(end)
    } else {
        Numbers::New(format!("{why}, and {end} numbers are too many to wait for one"))
    }
}

/// Asks for a number that was handed out long ago.
fn ask(last: i32, end: i32) -> Result<(), ProbeError> {
    if !Call::Clone3.may_be_made() {
        return Err(ProbeError::NoClone3);
    }
    let proof = SingleThreaded::check()?;
    let mut why = ProbeError::NoNumber;
    // One or the other may be taken.
    for number in (1..=5).map(|step| (last + step * end / 7) % end).filter(|number| *number > 300) {
        match fork_exact(&proof, number, libc::SIGCHLD, Shared::default()) {
            // SAFETY: ends this process without running anything of its parent's.
            Ok(Side::Child) => unsafe { libc::_exit(0) },
            Ok(Side::Parent(pid)) => {
                let _ = waitpid(nix::unistd::Pid::from_raw(pid), None);
                return Ok(());
            }
            Err(error) => why = error.into(),
        }
    }
    Err(why)
}
