//! What is left to be done of a process's memory, and of the process as a whole, once all pages are there.

use std::collections::BTreeSet;

use super::super::aio;
use super::super::control_groups;
use super::super::dump::login_of;
use super::super::error::{EngineError, Result};
use super::super::graph::FileId;
use super::super::ipc;
use super::super::local_descriptors;
use super::super::objects::RestoreContext;
use super::super::trace::{Batch, Remote};
use super::common::Common;
use super::mapped::MappedFiles;
use super::{Helper, attributes, held_locks, memory, rings, say_lacking};

/// Makes what lies in a process's memory beside its pages, and what calls in the process make of it while it has one thread.
///
/// # Errors
/// What this machine lacks; failed calls.
pub(super) fn complete(
    helper: &mut Helper<'_>,
    files: &MappedFiles,
    common: &Common,
    page: u64,
    context: &mut RestoreContext<'_>,
    locked: &[FileId],
    is_last: bool,
) -> Result<()> {
    let (pid, image, scratch) = (helper.pid, helper.image, helper.scratch);
    let mut remote = helper.remote()?;
    let sharer = context.graph.shares_memory(image.pid);
    if !sharer {
        rings::map(&mut remote, image, context)?;
        aio::make(&mut remote, image, context)?;
        memory::finish(&mut remote, image, files, common, page)?;
    }
    // The job itself has them while it is rehearsed.
    if !context.rehearsal {
        held_locks::set_of_descriptions(&mut remote, image, locked, context)?;
    }
    if is_last {
        let parked = [context.first_free as u64, u64::from(u32::MAX), 0];
        remote.call("close_range", libc::SYS_close_range, &parked)?;
    }
    // Closing what is parked would end them: they are the table's.
    if is_last && !context.rehearsal {
        held_locks::set_of_process(&mut remote, image)?;
    }
    if context.graph.own_ipc_of(image).is_none() {
        ipc::owe_undo(&mut remote, scratch, &context.graph.ipc, &image.undo)?;
    }
    register_membarrier(&mut remote, image.membarrier)?;
    local_descriptors::put(&mut remote, scratch, &image.local_descriptors)?;
    let mut lacking: BTreeSet<&str> =
        attributes::of_process(&mut remote, scratch, image)?.into_iter().collect();
    if !context.rehearsal && !control_groups::has_entered(pid, &image.control_groups) {
        lacking.insert("its control groups");
    }
    let login = image.attributes.login_user;
    if !context.rehearsal && login.is_some() && login_of(pid) != login {
        lacking.insert("who has logged in (loginuid)");
    }
    say_lacking(context, image.pid, &lacking);
    Ok(())
}

/// Registers again for the kinds of membarrier(2) that the process uses. Costs least while it has one thread.
fn register_membarrier(remote: &mut Remote<'_>, commands: u32) -> Result<()> {
    let mut batch = Batch::new();
    for command in (0..u32::BITS).map(|bit| 1 << bit).filter(|command| commands & command != 0) {
        batch.add(libc::SYS_membarrier, &[u64::from(command), 0, 0]);
    }
    match remote.run(&batch)?.iter().all(|answer| *answer == 0) {
        true => Ok(()),
        false => Err(EngineError::Unfit {
            what: "the job uses kinds of membarrier(2) that this kernel has not".into(),
            way_out: "restart it under the kernel that it ran under".into(),
        }),
    }
}
