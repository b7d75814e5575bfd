//! Descriptors of processes and threads (pidfd_open(2)). Descriptions are made before there are any processes: so each begins
//! as a placeholder, and gets its process when all are there ([`ProcessDescriptor::open`]).

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use nix::sys::eventfd::{EfdFlags, EventFd};
use serde::{Deserialize, Serialize};

use super::super::error::{EngineError, Refusal, Result};
use super::super::graph::Pid;
use super::super::proc::read_text;
use super::super::sys::pidfd;
use super::{DumpContext, Fate, Found, ObjectKind, Probe, RestoreContext, Saved};

/// PIDFD_THREAD, since Linux 6.9 (include/uapi/linux/pidfd.h).
const OF_THREAD: i32 = libc::O_EXCL;

/// A descriptor of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessDescriptor {
    /// The process, or the thread; none: it has ended, and was waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<Pid>,
    /// It is of a thread (PIDFD_THREAD).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub thread: bool,
    /// Its number on this machine; for the dump.
    #[serde(skip)]
    host: i32,
}

impl ProcessDescriptor {
    /// Opens it. `number`: what the process is numbered here.
    ///
    /// # Errors
    /// Failed pidfd_open(2).
    pub fn open(&self, number: Option<Pid>, flags: i32) -> Result<OwnedFd> {
        let mut wanted = flags & libc::O_NONBLOCK;
        if self.thread {
            wanted |= OF_THREAD;
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

    fn dump(probe: &Probe, _context: &mut DumpContext) -> Result<Self> {
        let number = |text: &str| text.trim().parse::<i32>().ok().filter(|number| *number > 0);
        let host = number(probe.info.need("Pid")?);
        // From this machine's namespace to the innermost one, which is the job's.
        let own = probe.info.get("NSpid").and_then(|all| all.split_ascii_whitespace().last());
        let pid = host.and_then(|host| own.map_or(Some(host), number));
        Ok(Self { pid, thread: probe.flags & OF_THREAD != 0, host: host.unwrap_or(0) })
    }

    fn finish(all: &mut [Found<'_, Self>], context: &mut DumpContext) -> Result<()> {
        let job: BTreeSet<i32> = context.descriptors.keys().map(|(pid, _)| *pid).collect();
        for found in all.iter().filter(|found| found.object.pid.is_some()) {
            let host = found.object.host;
            if !is_of(&job, host)? {
                let probe = found.probe;
                let what = format!("is of process {host}, which is not one of the job's");
                let refusal = Refusal::new(what, "close it while checkpoints are taken");
                let error = EngineError::from(refusal);
                return Err(error.at(probe.pid, &probe.comm, probe.fd));
            }
        }
        Ok(())
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        for saved in all {
            let placeholder = EventFd::from_flags(EfdFlags::EFD_CLOEXEC)
                .map_err(|errno| EngineError::system("eventfd", "a placeholder", errno))?;
            context.park(saved.id, placeholder.into())?;
        }
        Ok(())
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}

/// Whether a process is one of these, or a child of one that has ended, or a thread of one.
fn is_of(job: &BTreeSet<i32>, host: i32) -> Result<bool> {
    let Some(status) = read_text(&format!("/proc/{host}/status"))? else { return Ok(false) };
    let number = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().parse::<i32>().ok()
    };
    let among = |key: &str| number(key).is_some_and(|pid| job.contains(&pid));
    Ok(among("Tgid:") || (status.contains("State:\tZ") && among("PPid:")))
}
