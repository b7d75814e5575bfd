//! SysV semaphores and message queues, which no image can hold: the kernel's own lists of them, of the job's IPC namespace.
//!
//! /proc/sysvipc shows the namespace of whoever has opened the file (ipc/util.c, sysvipc_proc_open), so the job's init keeps
//! the files open, and a copy of its descriptors tells without a call in any process of the job.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use super::super::error::{EngineError, Refusal, Result};
use super::super::job_init::namespaces::IPC_LISTS;
use super::super::sys::pidfd::PidFd;

/// Bytes of a list that are looked at: a headline and one set fit.
const LOOKED_AT: usize = 4096;

/// Refuses a job that has semaphores or message queues. An init of an earlier release keeps no lists; then nothing is said here.
///
/// # Errors
/// The refusal; failed system calls.
pub fn refuse_listed(init: i32, descriptors: &[i32]) -> Result<()> {
    let process = PidFd::open(init)?;
    for fd in descriptors {
        let link = std::fs::read_link(format!("/proc/{init}/fd/{fd}"));
        let Some(link) = link.as_ref().ok().and_then(|link| link.to_str()) else { continue };
        let found = IPC_LISTS.iter().find(|(path, _)| link.ends_with(path));
        let Some((path, name)) = found else { continue };
        if lists_any(process.descriptor(*fd)?, path)? {
            return Err(refusal(name).into());
        }
    }
    Ok(())
}

/// What a job with such objects is told.
pub fn refusal(name: &str) -> Refusal {
    Refusal::new(
        format!("the job has SysV {name}, which cannot be checkpointed"),
        "use POSIX ones, or remove them while checkpoints are taken",
    )
}

fn lists_any(list: OwnedFd, path: &str) -> Result<bool> {
    let mut text = [0; LOOKED_AT];
    let length = File::from(list)
        .read_at(&mut text, 0)
        .map_err(|error| EngineError::system("read", path, error))?;
    let lines = text.iter().take(length).filter(|byte| **byte == b'\n').count();
    Ok(lines > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(content: &str) -> OwnedFd {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, content.as_bytes()).unwrap();
        file.into()
    }

    #[test]
    fn a_headline_is_no_set() {
        assert!(!lists_any(list("  key  semid perms\n"), "sem").unwrap());
        assert!(!lists_any(list(""), "sem").unwrap());
        assert!(lists_any(list("  key  semid perms\n  0  1  600\n"), "sem").unwrap());
    }
}
