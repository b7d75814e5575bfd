//! The ghosts of a whole job.

use tracing::debug_span;

use super::super::doing::{self, Thing};
use super::super::error::Result;
use super::super::freeze::StoppedProcess;
use super::super::restore::Identity;
use super::super::trace::{Batch, Vdso};
use super::areas::Planned;
use super::ghost::Ghost;
use super::process;

/// What was read of a process before the ghosts were made.
pub(super) struct Reading {
    pub(super) stat: procfs::process::Stat,
    pub(super) status: procfs::process::Status,
    pub(super) planned: Vec<Planned>,
    pub(super) inside: process::Inside,
    pub(super) entry_point: u64,
    pub(super) vdso: Vdso,
    /// What it is, where the kernel does not know it.
    pub(super) identity: Option<Identity>,
}

/// Makes all ghosts while no process of the job is a subreaper, or it would adopt them.
pub(super) fn make_ghosts(
    processes: &mut [StoppedProcess],
    readings: &[Reading],
) -> Result<Vec<Ghost>> {
    set_subreapers(processes, readings, false)?;
    let mut ghosts = Vec::with_capacity(processes.len());
    let mut failure = None;
    for (process, reading) in processes.iter_mut().zip(readings) {
        let host_pid = process.host_pid;
        let _copying = debug_span!("copy of memory", host_pid).entered();
        doing::begin("copying the memory of", Thing::HostProcess(host_pid));
        let mappings = reading.planned.iter().map(|planned| &planned.mapping);
        let segments: Vec<(u64, u64)> = mappings
            .filter(|mapping| mapping.is_segment())
            .map(|mapping| (mapping.start, mapping.end))
            .collect();
        let made = process
            .lend(reading.entry_point)
            .and_then(|mut remote| Ghost::of(&mut remote, &segments));
        match made {
            Ok(ghost) => ghosts.push(ghost),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    set_subreapers(processes, readings, true)?;
    match failure {
        Some(error) => Err(error),
        None => Ok(ghosts),
    }
}

fn set_subreapers(processes: &mut [StoppedProcess], readings: &[Reading], on: bool) -> Result<()> {
    for (process, reading) in processes.iter_mut().zip(readings) {
        if !reading.inside.subreaper {
            continue;
        }
        let mut remote = process.lend(reading.entry_point)?;
        let mut batch = Batch::new();
        batch.add(libc::SYS_prctl, &[libc::PR_SET_CHILD_SUBREAPER as u64, u64::from(on), 0, 0, 0]);
        remote.run(&batch)?;
    }
    Ok(())
}
