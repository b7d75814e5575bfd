//! Sets of semaphores: their values, and who last changed them.

use nix::errno::Errno;

use super::super::arch::calls;
use super::super::error::{EngineError, Result};
use super::super::graph::{IpcIdentity, IpcObjects, Pid, SemaphoreSet};
use super::super::objects::RestoreContext;
use super::super::sys::sysv;
use super::super::trace::{Batch, Remote, Scratch};
use super::number::{Kind, create};
use super::undo;

const KIND: Kind =
    Kind { name: "semaphore set", call: "semget", next: "/proc/sys/kernel/sem_next_id" };
/// Commands of semctl(2).
const GETPID: u64 = calls::ipc_command(11) as u64;
const GETALL: u64 = calls::ipc_command(13) as u64;
/// Semaphores of a set, SEMMSL at most (ipc/sem.c keeps them below 65536).
const MOST: u32 = 32_000;
/// How many are asked at a time.
const AT_A_TIME: u32 = 1024;

/// Asks a process. `None`: it may not read them.
///
/// # Errors
/// Failed calls.
pub fn read(
    remote: &mut Remote<'_>,
    (identity, count): (IpcIdentity, u32),
) -> Result<Option<SemaphoreSet>> {
    let scratch = remote.scratch().ok_or_else(|| EngineError::odd("scratch area", "missing"))?;
    if count > MOST {
        return Err(EngineError::odd("semaphores", format!("a set of {count}")));
    }
    let (at, number) = (scratch.data(), identity.number as u64);
    let answer = remote.raw(calls::SEMCTL, &[number, 0, GETALL, at])?;
    if answer == -i64::from(libc::EACCES) {
        return Ok(None);
    }
    remote.checked("semctl", answer)?;
    let mut bytes = vec![0; count as usize * 2];
    remote.memory().read(at, &mut bytes)?;
    let values = bytes.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]])).collect();
    let mut last: Vec<Pid> = Vec::with_capacity(count as usize);
    let mut first = 0;
    while first < count {
        let end = count.min(first + AT_A_TIME);
        let mut batch = Batch::new();
        for index in first..end {
            batch.add(calls::SEMCTL, &[number, u64::from(index), GETPID]);
        }
        for answer in remote.run(&batch)? {
            last.push(remote.checked("semctl", answer)? as Pid);
        }
        first = end;
    }
    Ok(Some(SemaphoreSet { identity, values, last }))
}

/// Makes a set with its values.
pub(super) fn make(set: &SemaphoreSet, context: &mut RestoreContext<'_>) -> Result<()> {
    let identity = &set.identity;
    let count = i32::try_from(set.values.len()).unwrap_or(i32::MAX);
    create(KIND, identity, || sysv::make_semaphores(identity.key, count), sysv::remove_semaphores)?;
    let failed = |errno: Errno| {
        EngineError::system("semctl", format!("semaphore set {}", identity.number), errno)
    };
    sysv::set_semaphores(identity.number, &set.values).map_err(failed)?;
    if let Err(errno) = sysv::describe_semaphores(identity) {
        context.warn(format!(
            "semaphore set {} keeps this user as its owner ({})",
            identity.number,
            errno.desc()
        ));
    }
    Ok(())
}

/// Lets a process that was the last to change a semaphore be that again: by changing it there and back.
///
/// # Errors
/// Failed calls.
pub fn claim(
    remote: &mut Remote<'_>,
    scratch: Scratch,
    objects: &IpcObjects,
    pid: Pid,
) -> Result<()> {
    for set in &objects.semaphores {
        let all = set.last.iter().zip(&set.values).enumerate();
        for (index, (_, value)) in all.filter(|(_, (last, _))| **last == pid) {
            let place =
                undo::Place { set: set.identity.number, index: index as u16, value: *value };
            undo::touch(remote, scratch, place)?;
        }
    }
    Ok(())
}
