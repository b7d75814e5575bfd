//! Descriptors of processes and threads (pidfd_open(2)). Descriptions are made before there are any processes: so each begins
//! as a placeholder, and gets its process when all are there ([`ProcessDescriptor::open`]).

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use super::super::error::{Refusal, Result};
use super::super::graph::Pid;
use super::super::sys::pidfd::{self, THREAD};
use super::{DumpContext, Fate, ObjectKind, Probe, RestoreContext, Saved};

/// A descriptor of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessDescriptor {
    /// The process, or the thread; none: it has ended, and was waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<Pid>,
    /// It is of a thread (PIDFD_THREAD).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub thread: bool,
}

impl ProcessDescriptor {
    /// Opens it. `number`: what the process is numbered here.
    ///
    /// # Errors
    /// Failed pidfd_open(2).
    pub fn open(&self, number: Option<Pid>, flags: i32) -> Result<OwnedFd> {
        let mut wanted = flags & libc::O_NONBLOCK;
        if self.thread {
            wanted |= THREAD;
        }
        match number {
            Some(number) => pidfd::open(number, wanted),
            None => pidfd::of_ended(wanted),
        }
    }
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
            return Ok(Self { pid: None, thread });
        };
        let pid = *context.pids.get(&host).ok_or_else(|| {
            let what = format!("is of process {host}, which is not one of the job's");
            Refusal::new(what, "close it while checkpoints are taken")
        })?;
        Ok(Self { pid: Some(pid), thread })
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        all.iter().try_for_each(|saved| context.await_process(saved.id))
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}
