//! Looking into another process.

use std::os::fd::AsRawFd;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

use super::super::sys::kcmp::same_file;
use super::super::sys::pidfd::PidFd;
use super::super::sys::trial::{Call, Trial};
use super::super::trace::{RunningThread, read_memory};
use super::child::in_child;
use super::error::ProbeError;

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
    fn new() -> Result<Self, ProbeError> {
        let shared = std::fs::File::open("/dev/null")?;
        let word = Box::new(0x0123_4567_89ab_cdef);
        // SAFETY: the child calls nothing but pause(2).
        match unsafe { fork() }? {
            ForkResult::Child => loop {
                nix::unistd::pause();
            },
            ForkResult::Parent { child } => Ok(Self { pid: child, shared, word }),
        }
    }

    fn descriptor(&self) -> Result<(), ProbeError> {
        PidFd::open(self.pid.as_raw())?.descriptor(self.shared.as_raw_fd())?;
        Ok(())
    }

    fn compare(&self) -> Result<(), ProbeError> {
        match Call::Kcmp.trial() {
            Trial::There => {}
            Trial::Absent => return Err(ProbeError::AbsentOrFiltered),
            Trial::Forbidden => return Err(ProbeError::Forbidden),
        }
        let number = self.shared.as_raw_fd();
        match same_file((std::process::id() as i32, number), (self.pid.as_raw(), number)) {
            Some(true) => Ok(()),
            Some(false) => Err(ProbeError::ToldAsTwo),
            None => Err(nix::errno::Errno::last().into()),
        }
    }

    fn memory(&self) -> Result<(), ProbeError> {
        let mut bytes = [0; size_of::<u64>()];
        let address = &raw const *self.word as u64;
        read_memory(self.pid.as_raw(), address, &mut bytes)?;
        if u64::from_ne_bytes(bytes) == *self.word { Ok(()) } else { Err(ProbeError::OtherBytes) }
    }

    fn map_files(&self) -> Result<(), ProbeError> {
        let folder = format!("/proc/{}/map_files", self.pid);
        let mut entries = std::fs::read_dir(folder)?;
        let entry = entries.next().ok_or(ProbeError::NothingMapped)??;
        std::fs::File::open(entry.path())?;
        Ok(())
    }
}

/// Looks into a child, in a process of its own: a sandbox may kill who does so. The caller should have no other threads.
fn look(at: fn(&Subject) -> Result<(), ProbeError>) -> Result<(), ProbeError> {
    in_child(|| at(&Subject::new()?))
}

/// pidfd_getfd(2).
///
/// # Errors
/// Why not.
pub fn descriptor() -> Result<(), ProbeError> {
    look(Subject::descriptor)
}

/// kcmp(2).
///
/// # Errors
/// Why not.
pub fn compare() -> Result<(), ProbeError> {
    look(Subject::compare)
}

/// process_vm_readv(2).
///
/// # Errors
/// Why not.
pub fn memory() -> Result<(), ProbeError> {
    look(Subject::memory)
}

/// Opening a mapped file by /proc/PID/map_files.
///
/// # Errors
/// Why not.
pub fn map_files() -> Result<(), ProbeError> {
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
pub fn trace_child() -> Result<(), ProbeError> {
    // The tracer is a process of its own: it must not see children that are not its.
    in_child(|| {
        let subject = Subject::new()?;
        let thread = RunningThread::seize(subject.pid.as_raw())?.ok_or(ProbeError::Gone)?;
        thread.interrupt()?;
        let stopped = thread.wait_stopped()?.ok_or(ProbeError::Gone)?;
        stopped.registers()?;
        stopped.detach()?;
        Ok(())
    })
}
