//! What the lists of an IPC namespace say that a process of ckptd has entered (/proc/sysvipc), one list after the other.

use super::super::error::{EngineError, Result};
use super::super::graph::IpcIdentity;
use super::Listed;
use super::lists::{check_queues, identity, queue, semaphores};

/// A segment of shared memory in the kernel's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedSegment {
    /// Which.
    pub identity: IpcIdentity,
    /// Permissions, and the kernel's flags beside them (SHM_DEST, SHM_LOCKED).
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// How many mappings there are of it.
    pub attached: u64,
}

/// All System V objects of an IPC namespace.
#[derive(Debug, Default)]
pub struct Told {
    /// Shared memory.
    pub segments: Vec<ListedSegment>,
    /// Semaphores and message queues.
    pub others: Listed,
}

impl Told {
    /// Reads what the lists say. Each begins with a line of its own that names its columns.
    ///
    /// # Errors
    /// A refusal where a message queue can't be looked into on this kernel; other text.
    pub fn read(text: &str) -> Result<Self> {
        let mut told = Self::default();
        let mut columns = Vec::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            if words.first() == Some(&"key") {
                columns = words;
                continue;
            }
            let is_known = match columns.get(1).copied() {
                Some("shmid") => segment(&words).map(|found| told.segments.push(found)),
                Some("semid") => semaphores(&words).map(|found| told.others.semaphores.push(found)),
                Some("msqid") => queue(&words).map(|found| told.others.queues.push(found)),
                _ => None,
            };
            is_known.ok_or_else(|| EngineError::odd("/proc/sysvipc", "no list of IPC objects"))?;
        }
        check_queues(&told.others)?;
        Ok(told)
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.others.is_empty()
    }

    /// All objects.
    pub fn identities(&self) -> impl Iterator<Item = &IpcIdentity> {
        let segments = self.segments.iter().map(|segment| &segment.identity);
        let semaphores = self.others.semaphores.iter().map(|(identity, _)| identity);
        segments.chain(semaphores).chain(self.others.queues.iter().map(|(identity, ..)| identity))
    }
}

/// key, shmid, perms, size, cpid, lpid, nattch, uid, gid, cuid, cgid, and times (ipc/shm.c).
fn segment(row: &[&str]) -> Option<ListedSegment> {
    let [key, number, mode, size, _, _, attached, user, group, maker, makers, ..] = *row else {
        return None;
    };
    Some(ListedSegment {
        identity: identity(key, number, mode, [user, group, maker, makers])?,
        mode: u32::from_str_radix(mode, 8).ok()?,
        size: size.parse().ok()?,
        attached: attached.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENTS: &str =
        "key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap\n";

    #[test]
    fn one_list_follows_another() {
        let text = format!(
            "{SEGMENTS}4660 1 3600 8192 7 7 2 0 1 2 3 0 0 0 4096 0\n\
             key semid perms nsems uid gid cuid cgid otime ctime\n0 5 600 3 0 0 0 0 0 0\n\
             key msqid perms cbytes qnum lspid lrpid uid gid cuid cgid stime rtime ctime\n"
        );
        let told = Told::read(&text).unwrap();
        let segment = told.segments[0];
        assert_eq!((segment.identity.key, segment.identity.number), (4660, 1));
        assert_eq!((segment.mode, segment.identity.mode), (0o3600, 0o600));
        assert_eq!((segment.size, segment.attached), (8192, 2));
        assert_eq!((segment.identity.owner, segment.identity.creator), ((0, 1), (2, 3)));
        assert_eq!((told.others.semaphores.len(), told.others.queues.len()), (1, 0));
        assert_eq!(told.identities().map(|one| one.number).collect::<Vec<_>>(), [1, 5]);
    }

    #[test]
    fn other_text_is_no_list() {
        assert!(Told::read("").unwrap().is_empty() && Told::read(SEGMENTS).unwrap().is_empty());
        assert!(Told::read("4660 1 600 8192 7 7 2 0 1 2 3 0 0 0 0 0\n").is_err());
        assert!(Told::read(&format!("{SEGMENTS}4660 1 600\n")).is_err());
    }
}
