//! The snapshot processes of a whole job.

use tracing::debug_span;

use super::super::doing::{self, Thing};
use super::super::error::Result;
use super::super::freeze::StoppedProcess;
use super::super::objects::DumpContext;
use super::super::restore::Identity;
use super::super::trace::{Batch, Vdso};
use super::super::tracking::Unwritten;
use super::areas::Planned;
use super::namespaces::Own;
use super::process;
use super::snapshot_process::SnapshotProcess;

/// What was read of a process before the snapshot processes were made.
pub(super) struct Reading {
    pub(super) stat: procfs::process::Stat,
    pub(super) status: procfs::process::Status,
    pub(super) planned: Vec<Planned>,
    pub(super) inside: process::Inside,
    pub(super) entry_point: u64,
    pub(super) vdso: Vdso,
    /// What it is, where the kernel does not know it.
    pub(super) identity: Option<Identity>,
    /// Pages that were not written since earlier checkpoints.
    pub(super) unwritten: Unwritten,
}

/// Makes all snapshot processes while no process of the job is a subreaper, or it would adopt them. `shares`: whether a process
/// (by its number on this machine) has another one's memory, of which there is one copy only.
pub(super) fn make_snapshot_processes(
    processes: &mut [StoppedProcess],
    readings: &[Reading],
    context: &DumpContext,
    namespaces: &Own,
    shares: &dyn Fn(i32) -> bool,
) -> Result<Vec<SnapshotProcess>> {
    set_subreapers(processes, readings, false)?;
    let mut snapshot_processes = Vec::with_capacity(processes.len());
    let mut failure = None;
    for (process, reading) in processes.iter_mut().zip(readings) {
        let host_pid = process.host_pid;
        if shares(host_pid) {
            continue;
        }
        let _copying = debug_span!("copy of memory", host_pid).entered();
        doing::begin("copying the memory of", Thing::HostProcess(host_pid));
        let mappings = reading.planned.iter().map(|planned| &planned.mapping);
        let apart: Vec<(u64, u64)> = mappings
            .filter(|mapping| {
                let private = !mapping.shared && context.huge_page_on(mapping.device).is_some();
                mapping.is_segment()
                    || mapping.is_ring()
                    || mapping.is_aio()
                    || mapping.is_anonymous_huge()
                    || private
            })
            .map(|mapping| (mapping.start, mapping.end))
            .collect();
        let other_time = namespaces.would_fix_clocks(host_pid);
        let made = process
            .lend(reading.entry_point)
            .and_then(|mut remote| SnapshotProcess::of(&mut remote, &apart, other_time));
        match made {
            Ok(snapshot_process) => snapshot_processes.push(snapshot_process),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    set_subreapers(processes, readings, true)?;
    match failure {
        Some(error) => Err(error),
        None => Ok(snapshot_processes),
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
