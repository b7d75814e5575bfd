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

/// What a sandbox does where it does not answer: Android's for apps.
pub(super) const FORBIDDEN: &str = "forbidden: a sandbox kills whoever calls it (SIGSYS)";

/// A probe that takes longer hangs.
const LIMIT_S: u32 = 10;

/// Runs `work` in a child and returns what it made; errors as text. The caller should have no other
/// threads: the child goes on as ordinary code.
pub(super) fn in_child<T: Serialize + DeserializeOwned>(
    work: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    let (reader, writer) = pipe().map_err(|errno| format!("no pipe: {errno}"))?;
    // SAFETY: callers have one thread (doctor, an agent that begins), so no lock can be held by a thread that the child lacks;
    // the child leaves by _exit only.
    match unsafe { fork() }.map_err(|errno| format!("no process: {errno}"))? {
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
            read.map_err(|error| error.to_string())?;
            if let Ok(WaitStatus::Signaled(_, Signal::SIGSYS, _)) = end {
                return Err(FORBIDDEN.to_owned());
            }
            protocol::json::read(&text)
                .map_err(|_| "the probe was killed or hung".to_owned())
                .and_then(|answer: Result<T, String>| answer)
        }
    }
}

/// An errno as text.
pub(super) fn text(errno: nix::errno::Errno) -> String {
    errno.desc().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back() {
        assert_eq!(in_child(|| Ok(7)), Ok(7));
        assert_eq!(in_child::<i32>(|| Err("no".into())), Err("no".into()));
        let killed = in_child::<i32>(|| {
            // SAFETY: takes numbers only; kills the child itself.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            Ok(1)
        });
        assert_eq!(killed, Err("the probe was killed or hung".into()));
        let forbidden = in_child::<i32>(|| {
            // SAFETY: takes numbers only; ends the child as a sandbox does.
            unsafe { libc::kill(libc::getpid(), libc::SIGSYS) };
            Ok(1)
        });
        assert_eq!(forbidden, Err(FORBIDDEN.into()));
    }
}
