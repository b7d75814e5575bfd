//! Locks of files that a process has taken itself, as /proc/locks tells: record locks (fcntl(2), F_SETLK) and flock(2).
//!
//! Record locks belong to the process's table of descriptors, and closing any descriptor of a file drops all of them on that
//! file. So they are set by calls into the process, when it closes no descriptor any more.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;

use nix::errno::Errno;

use super::super::arch::calls;
use super::super::error::{EngineError, Result};
use super::super::graph::{FileId, Graph, Lock, LockKind, Pid, ProcessImage};
use super::super::objects::RestoreContext;
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

/// The number under which a process has a description while it is made: its own, or else that of the parked one, if nothing
/// of its own is in that place.
fn reached_by(image: &ProcessImage, id: FileId, context: &RestoreContext<'_>) -> Option<i32> {
    let file = context.graph.files.get(id.0 as usize)?;
    if file.inside.is_some() || file.object.is_made_late() {
        return None;
    }
    let own = image.descriptors.iter().find(|descriptor| descriptor.file == id);
    let parked = || context.parked(id).ok().map(|fd| fd.as_raw_fd());
    own.map(|descriptor| descriptor.fd)
        .or_else(|| parked().filter(|number| *number >= context.first_free))
}

fn holder_of(lock: &Lock) -> Option<Pid> {
    lock.holder.filter(|_| lock.kind == LockKind::Flock)
}

/// Open file descriptions that are locked, by who had taken the lock.
pub fn by_holder(graph: &Graph) -> BTreeMap<Pid, Vec<FileId>> {
    let mut found = BTreeMap::<Pid, Vec<FileId>>::new();
    for (index, file) in graph.files.iter().enumerate() {
        for holder in file.locks.iter().filter_map(holder_of) {
            found.entry(holder).or_default().push(FileId(index as u32));
        }
    }
    found
}

/// Has this process hold the locks of these open file descriptions that it had taken, whether it still has these or not: until
/// now the init holds them. Taking one again would change nothing (fs/locks.c, flock_lock_inode()), so that it is given up
/// for a moment. What is parked must be there.
///
/// # Errors
/// [`EngineError::Unfit`] where another process holds one; failed calls.
pub fn set_of_descriptions(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    files: &[FileId],
    context: &RestoreContext<'_>,
) -> Result<()> {
    for id in files.iter().copied().filter(|id| context.needs(*id)) {
        let file = context.graph.files.get(id.0 as usize);
        let mut locks = file.iter().flat_map(|file| &file.locks);
        let Some(lock) = locks.find(|lock| holder_of(lock) == Some(image.pid)) else { continue };
        let Some(fd) = reached_by(image, id, context) else { continue };
        let operation = if lock.exclusive { libc::LOCK_EX } else { libc::LOCK_SH };
        let mut batch = Batch::new();
        batch.add(libc::SYS_flock, &[fd as u64, libc::LOCK_UN as u64]);
        batch.add(libc::SYS_flock, &[fd as u64, (operation | libc::LOCK_NB) as u64]);
        let answer = remote.run(&batch)?[1];
        taken("flock", answer, fd, remote)?;
    }
    Ok(())
}

/// Sets record locks again. The process must not close a descriptor after it.
///
/// # Errors
/// [`EngineError::Unfit`] where another process holds one; failed calls.
pub fn set_of_process(remote: &mut Remote<'_>, image: &ProcessImage) -> Result<()> {
    let scratch = remote.scratch().ok_or_else(|| EngineError::odd("scratch area", "missing"))?;
    let at = scratch.data();
    for (fd, lock) in image.locks.iter().filter(|(_, lock)| lock.kind == LockKind::Process) {
        remote.memory().write(at, &RecordLock::of(lock)?.bytes())?;
        let mut batch = Batch::new();
        batch.add(calls::FCNTL, &[*fd as u64, calls::SET_RECORD_LOCK, at]);
        let answer = remote.run(&batch)?[0];
        taken("fcntl", answer, *fd, remote)?;
    }
    Ok(())
}

/// Checks the answer of a call that takes a lock.
fn taken(call: &'static str, answer: i64, fd: i32, remote: &Remote<'_>) -> Result<()> {
    if [Errno::EAGAIN, Errno::EACCES].iter().any(|errno| answer == -(*errno as i64)) {
        let path = format!("/proc/{}/fd/{fd}", remote.thread().tid());
        let name = std::fs::read_link(path)
            .map_or_else(|_| "a file".to_owned(), |path| path.to_string_lossy().into_owned());
        return Err(EngineError::Unfit {
            what: format!("another process has locked {name}"),
            way_out: "end that process".to_owned(),
        });
    }
    remote.checked(call, answer)?;
    Ok(())
}
