//! Record locks of a process (fcntl(2), F_SETLK).
//!
//! They belong to the process's table of descriptors, and closing any descriptor of a file drops all of them on that file. So
//! they are set by calls into the process, when it closes no descriptor any more.

use nix::errno::Errno;

use super::super::arch::calls;
use super::super::error::{EngineError, Result};
use super::super::graph::{Lock, LockKind, ProcessImage};
use super::super::trace::{Batch, Remote};

/// struct flock with 64-bit offsets (include/uapi/asm-generic/fcntl.h).
#[repr(C)]
struct RecordLock {
    kind: i16,
    whence: i16,
    start: i64,
    length: i64,
    pid: i32,
}

impl RecordLock {
    fn of(lock: &Lock) -> Result<Self> {
        let offset = |value: u64| {
            i64::try_from(value).map_err(|_| EngineError::Damaged(format!("a lock at {value}")))
        };
        Ok(Self {
            kind: if lock.exclusive { libc::F_WRLCK } else { libc::F_RDLCK } as i16,
            whence: libc::SEEK_SET as i16,
            start: offset(lock.start)?,
            length: offset(lock.length)?,
            pid: 0,
        })
    }

    /// As it lies in memory; what is between the fields is 0.
    fn bytes(&self) -> [u8; size_of::<Self>()] {
        let mut bytes = [0; size_of::<Self>()];
        let mut put = |at: usize, field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
        };
        put(std::mem::offset_of!(Self, kind), &self.kind.to_ne_bytes());
        put(std::mem::offset_of!(Self, whence), &self.whence.to_ne_bytes());
        put(std::mem::offset_of!(Self, start), &self.start.to_ne_bytes());
        put(std::mem::offset_of!(Self, length), &self.length.to_ne_bytes());
        put(std::mem::offset_of!(Self, pid), &self.pid.to_ne_bytes());
        bytes
    }
}

/// Sets the locks again. The process must not close a descriptor after it.
///
/// # Errors
/// [`EngineError::Unfit`] where another process holds one; failed calls.
pub fn set(remote: &mut Remote<'_>, image: &ProcessImage) -> Result<()> {
    let scratch = remote.scratch().ok_or_else(|| EngineError::odd("scratch area", "missing"))?;
    let at = scratch.data();
    for (fd, lock) in image.locks.iter().filter(|(_, lock)| lock.kind == LockKind::Process) {
        remote.memory().write(at, &RecordLock::of(lock)?.bytes())?;
        let mut batch = Batch::new();
        batch.add(calls::FCNTL, &[*fd as u64, calls::SET_RECORD_LOCK, at]);
        let answer = remote.run(&batch)?[0];
        if [Errno::EAGAIN, Errno::EACCES].iter().any(|errno| answer == -(*errno as i64)) {
            let path = format!("/proc/{}/fd/{fd}", remote.thread().tid());
            let name = std::fs::read_link(path)
                .map_or_else(|_| "a file".to_owned(), |path| path.to_string_lossy().into_owned());
            return Err(EngineError::Unfit {
                what: format!("another process has locked {name}"),
                way_out: "end that process".to_owned(),
            });
        }
        remote.checked("fcntl", answer)?;
    }
    Ok(())
}
