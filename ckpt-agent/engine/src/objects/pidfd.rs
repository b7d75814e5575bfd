//! Descriptors of processes and threads (pidfd_open(2)). Descriptions are made before there are any processes: so each begins
//! as a placeholder, and gets its process when all are there ([`ProcessDescriptor::open`]).

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::statfs::fstatfs;
use serde::{Deserialize, Serialize};

use super::super::error::{Refusal, Result};
use super::super::graph::{FileId, Pid};
use super::super::sys::pidfd::{self, THREAD};
use super::super::sys::stat::file_system;
use super::{DumpContext, Fate, ObjectKind, Probe, RestoreContext, Saved};

/// The job's init, in images: no process of a job has its number.
pub const INIT: Pid = 1;

/// A descriptor of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessDescriptor {
    /// The process, or the thread; none: it has ended, and was waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<Pid>,
    /// Number of the inode of one whose process is gone: several may be of the same. None: a kernel before Linux 6.9, which
    /// does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// How that one has ended, as wait(2) tells it; none: a kernel before Linux 6.15, which does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// It is of a thread (PIDFD_THREAD).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub thread: bool,
}

impl ProcessDescriptor {
    /// Opens it. `number`: what the process is numbered here.
    ///
    /// # Errors
    /// Failed pidfd_open(2).
    pub fn open(&self, number: Pid, flags: i32) -> Result<OwnedFd> {
        let thread = if self.thread { THREAD } else { 0 };
        pidfd::open(number, flags & libc::O_NONBLOCK | thread)
    }

    /// Opens those of processes that are gone, each group of the same one as that of one process.
    ///
    /// # Errors
    /// Failed fork(2) or pidfd_open(2).
    pub fn open_ended<'f>(
        all: impl Iterator<Item = (FileId, i32, &'f Self)>,
    ) -> Result<Vec<(FileId, OwnedFd)>> {
        // Of a process, or where that is not told of one alone.
        let mut groups = BTreeMap::<_, Vec<(FileId, i32)>>::new();
        for (id, flags, descriptor) in all {
            let alone = descriptor.ended.is_none().then_some(id);
            let group = groups.entry((descriptor.ended, alone, descriptor.status)).or_default();
            group.push((id, flags & libc::O_NONBLOCK));
        }
        let mut opened = Vec::new();
        for ((.., status), group) in groups {
            let (ids, flags): (Vec<FileId>, Vec<i32>) = group.into_iter().unzip();
            opened.extend(ids.into_iter().zip(pidfd::of_ended(&flags, status.unwrap_or(0))?));
        }
        Ok(opened)
    }
}

/// Which of the processes that are gone a descriptor is of, where they have inodes of their own (pidfs, Linux 6.9).
fn told_apart(probe: &Probe) -> Option<u64> {
    /// PID_FS_MAGIC (include/uapi/linux/magic.h).
    const PIDFS: u64 = 0x5049_4446;
    let is_pidfs = fstatfs(&probe.copy).is_ok_and(|found| file_system(&found) == PIDFS);
    is_pidfs.then_some(probe.inode().1)
}

impl ObjectKind for ProcessDescriptor {
    fn recognise(probe: &Probe) -> bool {
        probe.link.contains("pidfd") && probe.info.get("Pid").is_some()
    }

    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        let number = probe.info.need("Pid")?.trim().parse::<i32>().ok();
        let thread = probe.flags & THREAD != 0;
        // The kernel shows -1 or 0 of one that is gone.
        let Some(host) = number.filter(|number| *number > 0) else {
            let status = pidfd::status_of_ended(probe.copy.as_fd());
            return Ok(Self { pid: None, ended: told_apart(probe), status, thread });
        };
        let is_init = context.init == Some(host);
        let known = context.pids.get(&host).copied().or(is_init.then_some(INIT));
        let pid = known.ok_or_else(|| {
            let what = format!("is of process {host}, which is not one of the job's");
            Refusal::new(what, "close it while checkpoints are taken")
        })?;
        Ok(Self { pid: Some(pid), ended: None, status: None, thread })
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        all.iter().try_for_each(|saved| context.await_process(saved.id))
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}
