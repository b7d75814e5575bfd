//! The kernel's own lists of SysV objects.
//!
//! /proc/sysvipc shows the namespace of whoever has opened the file (ipc/util.c, sysvipc_proc_open), so the job's init keeps
//! the files open, and a copy of its descriptors tells without a call in any process of the job.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::IpcIdentity;
use super::super::job_init::namespaces::{MESSAGE_QUEUES, SEMAPHORES};
use super::super::sys::pidfd::PidFd;

/// Bytes of a list, for many times as many objects as the kernel allows by itself.
const LONGEST: usize = 64 << 20;

/// What there is.
#[derive(Debug, Default)]
pub struct Listed {
    /// Sets of semaphores, and how many each has.
    pub semaphores: Vec<(IpcIdentity, u32)>,
    /// Message queues, and how many messages and bytes each has.
    pub queues: Vec<(IpcIdentity, u64, u64)>,
}

impl Listed {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.semaphores.is_empty() && self.queues.is_empty()
    }
}

/// Reads the lists through the init, which has these descriptors. `None`: the init of an earlier release, which keeps none.
///
/// # Errors
/// A refusal where a message queue can't be looked into on this kernel; failed system calls.
pub fn listed(init: i32, descriptors: &[i32]) -> Result<Option<Listed>> {
    let process = PidFd::open(init)?;
    let (mut listed, mut found) = (Listed::default(), false);
    for fd in descriptors {
        let link = std::fs::read_link(format!("/proc/{init}/fd/{fd}"));
        let Some(link) = link.as_ref().ok().and_then(|link| link.to_str()) else { continue };
        if link.ends_with(SEMAPHORES) {
            found = true;
            let text = read(process.descriptor(*fd)?, SEMAPHORES)?;
            listed.semaphores = rows(&text, SEMAPHORES, semaphores)?;
        } else if link.ends_with(MESSAGE_QUEUES) {
            found = true;
            let text = read(process.descriptor(*fd)?, MESSAGE_QUEUES)?;
            listed.queues = rows(&text, MESSAGE_QUEUES, queue)?;
        }
    }
    check_queues(&listed)?;
    Ok(found.then_some(listed))
}

/// Refuses message queues that can't be looked into.
pub(super) fn check_queues(listed: &Listed) -> Result<()> {
    if !listed.queues.is_empty() && !super::queues::can_be_looked_into() {
        return Err(Refusal::new(
            "the job has SysV message queues, and this kernel does not let anybody look into them",
            "use a kernel with CONFIG_CHECKPOINT_RESTORE, or POSIX message queues",
        )
        .into());
    }
    Ok(())
}

fn read(list: OwnedFd, path: &str) -> Result<String> {
    // It is the init's own description: its offset stays as it is.
    let list = File::from(list);
    let (mut text, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    while text.len() < LONGEST {
        let read = list.read_at(&mut piece, text.len() as u64);
        match read.map_err(|error| EngineError::system("read", path, error))? {
            0 => break,
            length => text.extend(&piece[..length]),
        }
    }
    String::from_utf8(text).map_err(|error| EngineError::odd(path, error.to_string()))
}

/// All rows but the headline.
fn rows<T>(text: &str, path: &str, row: impl Fn(&[&str]) -> Option<T>) -> Result<Vec<T>> {
    let parse = |line: &str| row(&line.split_ascii_whitespace().collect::<Vec<_>>());
    let all: Option<Vec<T>> = text.lines().skip(1).map(parse).collect();
    all.ok_or_else(|| EngineError::odd(format!("/proc{path}"), "no list of IPC objects"))
}

/// What all lists have in common.
pub(super) fn identity(
    key: &str,
    number: &str,
    mode: &str,
    [user, group, maker, makers]: [&str; 4],
) -> Option<IpcIdentity> {
    Some(IpcIdentity {
        number: number.parse().ok()?,
        key: key.parse().ok()?,
        mode: u32::from_str_radix(mode, 8).ok()? & 0o777,
        owner: (user.parse().ok()?, group.parse().ok()?),
        creator: (maker.parse().ok()?, makers.parse().ok()?),
    })
}

/// key, semid, perms, nsems, uid, gid, cuid, cgid, otime, ctime (ipc/sem.c).
pub(super) fn semaphores(row: &[&str]) -> Option<(IpcIdentity, u32)> {
    let [key, number, mode, count, user, group, maker, makers, ..] = *row else { return None };
    Some((identity(key, number, mode, [user, group, maker, makers])?, count.parse().ok()?))
}

/// key, msqid, perms, cbytes, qnum, lspid, lrpid, uid, gid, cuid, cgid, and times (ipc/msg.c).
pub(super) fn queue(row: &[&str]) -> Option<(IpcIdentity, u64, u64)> {
    let [key, number, mode, bytes, messages, _, _, user, group, maker, makers, ..] = *row else {
        return None;
    };
    let identity = identity(key, number, mode, [user, group, maker, makers])?;
    Some((identity, messages.parse().ok()?, bytes.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let text = "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n\
                    \x20        0          3   600          2  1000  1001     0     5          0 1700000000\n\
                    1234567890  32769   666         17     0     0     0     0 1700000001 1700000000\n";
        let sets = rows(text, SEMAPHORES, semaphores).unwrap();
        assert_eq!(sets.len(), 2);
        assert_eq!((sets[0].0.number, sets[0].0.mode, sets[0].1), (3, 0o600, 2));
        assert_eq!((sets[0].0.owner, sets[0].0.creator), ((1000, 1001), (0, 5)));
        assert_eq!((sets[1].0.key, sets[1].1), (1_234_567_890, 17));
        let text = "key msqid perms cbytes qnum lspid lrpid uid gid cuid cgid stime rtime ctime\n\
                    -559038737 0 640 12 2 77 0 1 2 3 4 1700000000 0 1700000000\n";
        let queues = rows(text, MESSAGE_QUEUES, queue).unwrap();
        assert_eq!((queues[0].0.key, queues[0].1, queues[0].2), (-559_038_737, 2, 12));
    }

    #[test]
    fn a_headline_is_no_object_and_other_text_no_list() {
        assert!(rows("key semid\n", SEMAPHORES, semaphores).unwrap().is_empty());
        assert!(rows("", SEMAPHORES, semaphores).unwrap().is_empty());
        assert!(rows("key semid\n0 1 600\n", SEMAPHORES, semaphores).is_err());
    }
}
