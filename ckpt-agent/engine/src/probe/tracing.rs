//! Looking into another process.

use std::os::fd::AsRawFd;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

use super::super::sys::kcmp::same_file;
use super::super::sys::pidfd::PidFd;
use super::super::sys::trial::{Call, Trial};
use super::super::trace::{RunningThread, read_memory};
use super::child::{FORBIDDEN, in_child, text};

/// A child that waits to be looked at. Dropping it ends it.
#[derive(Debug)]
struct Subject {
    pid: Pid,
    /// A descriptor that the child has too, under the same number.
    shared: std::fs::File,
    /// A word at the same address in both.
    word: Box<u64>,
}

impl Subject {
    fn new() -> Result<Self, String> {
        let shared = std::fs::File::open("/dev/null").map_err(|error| error.to_string())?;
        let word = Box::new(0x0123_4567_89ab_cdef);
        // SAFETY: the child calls nothing but pause(2).
        match unsafe { fork() }.map_err(text)? {
            ForkResult::Child => loop {
                nix::unistd::pause();
            },
            ForkResult::Parent { child } => Ok(Self { pid: child, shared, word }),
        }
    }

    fn descriptor(&self) -> Result<(), String> {
        PidFd::open(self.pid.as_raw())
            .and_then(|pidfd| pidfd.descriptor(self.shared.as_raw_fd()))
            .map(drop)
            .map_err(|error| error.to_string())
    }

    fn compare(&self) -> Result<(), String> {
        match Call::Kcmp.trial() {
            Trial::There => {}
            Trial::Absent => return Err("the kernel has none, or a filter says so".into()),
            Trial::Forbidden => return Err(FORBIDDEN.into()),
        }
        let number = self.shared.as_raw_fd();
        match same_file((std::process::id() as i32, number), (self.pid.as_raw(), number)) {
            Some(true) => Ok(()),
            Some(false) => Err("one open file is told as two".into()),
            None => Err(text(nix::errno::Errno::last())),
        }
    }

    fn memory(&self) -> Result<(), String> {
        let mut bytes = [0; size_of::<u64>()];
        let address = &raw const *self.word as u64;
        read_memory(self.pid.as_raw(), address, &mut bytes).map_err(text)?;
        if u64::from_ne_bytes(bytes) == *self.word { Ok(()) } else { Err("other bytes".into()) }
    }

    fn map_files(&self) -> Result<(), String> {
        let folder = format!("/proc/{}/map_files", self.pid);
        let mut entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
        let entry =
            entries.next().ok_or("nothing is mapped")?.map_err(|error| error.to_string())?;
        std::fs::File::open(entry.path()).map(drop).map_err(|error| error.to_string())
    }
}

/// Looks into a child, in a process of its own: a sandbox may kill who does so. The caller should have no other threads.
fn look(at: fn(&Subject) -> Result<(), String>) -> Result<(), String> {
    in_child(|| at(&Subject::new()?))
}

/// pidfd_getfd(2).
///
/// # Errors
/// Why not.
pub fn descriptor() -> Result<(), String> {
    look(Subject::descriptor)
}

/// kcmp(2).
///
/// # Errors
/// Why not.
pub fn compare() -> Result<(), String> {
    look(Subject::compare)
}

/// process_vm_readv(2).
///
/// # Errors
/// Why not.
pub fn memory() -> Result<(), String> {
    look(Subject::memory)
}

/// Opening a mapped file by /proc/PID/map_files.
///
/// # Errors
/// Why not.
pub fn map_files() -> Result<(), String> {
    look(Subject::map_files)
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(self.pid, None);
    }
}

/// Seizes and stops a child (ptrace(2)).
///
/// # Errors
/// Why not.
pub fn trace_child() -> Result<(), String> {
    // The tracer is a process of its own: it must not see children that are not its.
    in_child(|| {
        let subject = Subject::new()?;
        let error = |error: super::super::error::EngineError| error.to_string();
        let gone = || "the child has ended".to_owned();
        let thread = RunningThread::seize(subject.pid.as_raw()).map_err(error)?.ok_or_else(gone)?;
        thread.interrupt().map_err(error)?;
        let stopped = thread.wait_stopped().map_err(error)?.ok_or_else(gone)?;
        stopped.registers().map_err(error)?;
        stopped.detach().map_err(error)
    })
}
