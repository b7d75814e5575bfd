//! A child that tries something and reports how it went.

use std::fs::File;
use std::io::{Read, Write};

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork, pipe};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::sys::prctl;
use super::error::ProbeError;

/// A probe that takes longer hangs.
const LIMIT_S: u32 = 10;

/// Runs `work` in a child and returns what it made. The caller should have no other
/// threads: the child goes on as ordinary code.
pub(super) fn in_child<T: Serialize + DeserializeOwned>(
    work: impl FnOnce() -> Result<T, ProbeError>,
) -> Result<T, ProbeError> {
    let (reader, writer) = pipe().map_err(|errno| ProbeError::NoPipe(errno as i32))?;
    // SAFETY: callers have one thread (doctor, an agent that begins), so no lock can be held by a thread that the child lacks;
    // the child leaves by _exit only.
    match unsafe { fork() }.map_err(|errno| ProbeError::NoProcess(errno as i32))? {
        ForkResult::Child => {
            drop(reader);
            nix::unistd::alarm::set(LIMIT_S);
            // Process 1 of a namespace is not ended by an alarm, but with its parent.
            let _ = prctl::set_pdeathsig(Signal::SIGKILL);
            // A death by SIGSYS leaves no core file.
            let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
            let text = serde_json::to_vec(&work()).unwrap_or_default();
            let written = File::from(writer).write_all(&text);
            // SAFETY: ends this process without running anything of its parent's.
            unsafe { libc::_exit(i32::from(written.is_err())) }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut text = Vec::new();
            let read = File::from(reader).read_to_end(&mut text);
            let end = loop {
                match waitpid(child, None) {
                    Err(nix::errno::Errno::EINTR) => {}
                    end => break end,
                }
            };
            read?;
            if let Ok(WaitStatus::Signaled(_, Signal::SIGSYS, _)) = end {
                return Err(ProbeError::Forbidden);
            }
            protocol::json::read(&text).unwrap_or(Err(ProbeError::Hung))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back() {
        assert_eq!(in_child(|| Ok(7)), Ok(7));
        assert_eq!(in_child::<i32>(|| Err(ProbeError::Absent)), Err(ProbeError::Absent));
        let killed = in_child::<i32>(|| {
            // SAFETY: takes numbers only; kills the child itself.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            Ok(1)
        });
        assert_eq!(killed, Err(ProbeError::Hung));
        let forbidden = in_child::<i32>(|| {
            // SAFETY: takes numbers only; ends the child as a sandbox does.
            unsafe { libc::kill(libc::getpid(), libc::SIGSYS) };
            Ok(1)
        });
        assert_eq!(forbidden, Err(ProbeError::Forbidden));
    }
}
