//! Processes that share the memory of their parents without being their threads (CLONE_VM).
//!
//! No helper can become one: what is memory of its own once can't be given up for another process's. So each is made by a call of its
//! parent, when that one's memory is there and what is parked is still open, and all that a helper does to itself is done by
//! calls in it.

use super::super::arch::words::action_to_bytes;
use super::super::error::{EngineError, Result};
use super::super::graph::{Graph, Pid, ProcessImage, ProcessNode, Sharing};
use super::super::job_init::World;
use super::super::objects::RestoreContext;
use super::super::proc::read_maps;
use super::super::sys::restrained::{OVER_PRIORITIES, Restrained};
use super::super::sys::signals;
use super::super::trace::{Batch, Remote, SCRATCH_SIZE};
use super::directories;
use super::image::Processes;
use super::layout::Occupied;
use super::numbers::Numbers;
use super::{Helper, threads};

/// The processes of a tree that are made in the ordinary way.
pub(super) fn without(nodes: &[ProcessNode], graph: &Graph) -> Vec<ProcessNode> {
    nodes.iter().filter(|node| !graph.shares_memory(node.pid)).cloned().collect()
}

/// Makes them, each after its parent.
///
/// # Errors
/// Damage; numbers that can't be had; failed calls.
pub(super) fn make<'i>(
    helpers: &mut Vec<Helper<'i>>,
    processes: &'i Processes,
    context: &RestoreContext<'_>,
    numbers: &mut Numbers,
) -> Result<()> {
    for node in &context.graph.processes {
        let sharing = context.graph.sharing_of(node.pid).filter(|one| one.memory);
        let (Some(sharing), Some(image)) = (sharing, processes.get(&node.pid)) else { continue };
        if World::of_this_init() != World::Own {
            return Err(EngineError::Unfit {
                what: format!("process {} shares its parent's memory (CLONE_VM)", node.pid),
                way_out:
                    "restart it where jobs have namespaces; `ckptd doctor` says what is allowed"
                        .into(),
            });
        }
        let parent = helpers.iter().position(|helper| helper.image.pid == node.ppid);
        let parent = parent.ok_or_else(|| {
            let what = format!("process {} shares the memory of none", node.pid);
            EngineError::Damaged(what)
        })?;
        let number = node.pid;
        let made = make_one(&mut helpers[parent], (node, image), sharing, context)?;
        helpers.push(made);
        numbers.0.insert(number, number);
    }
    // Once all groups are there.
    for node in context.graph.processes.iter().filter(|node| node.pgid != node.pid) {
        let is_it = |helper: &&mut Helper<'_>| helper.image.pid == node.pid;
        let shares = context.graph.shares_memory(node.pid);
        if let (Some(helper), true) = (helpers.iter_mut().find(is_it), shares) {
            join_group(&mut helper.remote()?, node, numbers)?;
        }
    }
    Ok(())
}

fn make_one<'i>(
    parent: &mut Helper<'i>,
    (node, image): (&ProcessNode, &'i ProcessImage),
    sharing: &Sharing,
    context: &RestoreContext<'_>,
) -> Result<Helper<'i>> {
    let (entry_point, scratch, owner) = (parent.entry_point, parent.scratch, parent.image);
    let mut flags = libc::CLONE_VM;
    flags |= if sharing.descriptors { libc::CLONE_FILES } else { 0 };
    flags |= if sharing.directories { libc::CLONE_FS } else { 0 };
    flags |= if sharing.actions { libc::CLONE_SIGHAND } else { 0 };
    let signal = u64::try_from(node.exit_signal).unwrap_or(0);
    let born = threads::Born { flags: flags as u64, exit_signal: signal };
    let mut leader = threads::make_process(&mut parent.remote()?, node.pid, scratch, born)?;
    let pid = leader.tid();
    let scratch = {
        let mut remote = Remote::take(&mut leader, entry_point)?;
        let mut occupied = Occupied::default();
        owner.areas.iter().for_each(|area| occupied.add(area.start, area.end));
        read_maps(pid)?.iter().for_each(|mapping| occupied.add(mapping.start, mapping.end));
        remote.make_scratch(Some(occupied.take(SCRATCH_SIZE)?))?
    };
    let others = std::collections::BTreeMap::new();
    let mut helper = Helper { pid, image, leader, others, entry_point, scratch };
    prepare(&mut helper, node, sharing, context)?;
    Ok(helper)
}

/// What helpers of other processes do by themselves.
fn prepare(
    helper: &mut Helper<'_>,
    node: &ProcessNode,
    sharing: &Sharing,
    context: &RestoreContext<'_>,
) -> Result<()> {
    let (image, pid) = (helper.image, helper.pid);
    let mut remote = helper.remote()?;
    if node.pgid == node.pid {
        remote.call("setpgid", libc::SYS_setpgid, &[0, 0])?;
    }
    if !sharing.descriptors {
        put_descriptors(&mut remote, image, context)?;
    }
    if !sharing.directories {
        directories::enter(&mut remote, &directories::of_process(image), false, context)?;
    }
    if !sharing.actions {
        put_actions(&mut remote, image)?;
    }
    if node.subreaper {
        let arguments = [libc::PR_SET_CHILD_SUBREAPER as u64, 1, 0, 0, 0];
        remote.call("PR_SET_CHILD_SUBREAPER", libc::SYS_prctl, &arguments)?;
    }
    if !context.rehearsal {
        let user = context.user.as_ref();
        let _restrained = user.map(|_| Restrained::begin(OVER_PRIORITIES)).transpose()?;
        // SAFETY: takes numbers only. It may need a privilege which this restore has not.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, pid as libc::id_t, image.nice) };
    }
    Ok(())
}

fn join_group(remote: &mut Remote<'_>, node: &ProcessNode, numbers: &Numbers) -> Result<()> {
    let group = numbers.here(node.pgid).or((node.pgid == INIT).then_some(INIT));
    let group = group.ok_or_else(|| {
        EngineError::Damaged(format!("process {} in a group that is none", node.pid))
    })?;
    if remote.call("getpgid", libc::SYS_getpgid, &[0])? != group as u64 {
        remote.call("setpgid", libc::SYS_setpgid, &[0, group as u64])?;
    }
    Ok(())
}

/// The job's init, in images.
const INIT: Pid = 1;

/// Puts descriptors in place of those that the parent has there, out of what is parked.
fn put_descriptors(
    remote: &mut Remote<'_>,
    image: &ProcessImage,
    context: &RestoreContext<'_>,
) -> Result<()> {
    use std::os::fd::AsRawFd;
    let mut batch = Batch::new();
    let close = |batch: &mut Batch, first: i32, last: i32| {
        if first <= last {
            batch.add(libc::SYS_close_range, &[first as u64, last as u64, 0]);
        }
    };
    let mut next = 0;
    for descriptor in &image.descriptors {
        let parked = context.parked(descriptor.file)?.as_raw_fd();
        if parked < context.first_free {
            return Err(EngineError::Unfit {
                what: format!("process {}: its limit of open files leaves no room", image.pid),
                way_out: "restart it with a higher limit (ulimit -Hn)".into(),
            });
        }
        close(&mut batch, next, descriptor.fd - 1);
        let flags = if descriptor.close_on_exec { libc::O_CLOEXEC } else { 0 };
        let arguments = [parked as u64, descriptor.fd as u64, flags as u64];
        batch.add(libc::SYS_dup3, &arguments);
        next = descriptor.fd + 1;
    }
    close(&mut batch, next, context.first_free - 1);
    for answer in remote.run(&batch)? {
        remote.checked("dup3 or close_range", answer)?;
    }
    Ok(())
}

fn put_actions(remote: &mut Remote<'_>, image: &ProcessImage) -> Result<()> {
    let at = remote.scratch_data()?;
    let mut batch = Batch::new();
    let mut bytes = Vec::new();
    let all = (1..=signals::LAST).filter(|one| ![libc::SIGKILL, libc::SIGSTOP].contains(one));
    for signal in all {
        let saved = image.actions.iter().find(|action| action.signal == signal);
        let mut action = action_to_bytes(saved.map_or([0; 4], |action| action.words));
        action.resize(action.len().next_multiple_of(16), 0);
        batch.add(libc::SYS_rt_sigaction, &[signal as u64, at + bytes.len() as u64, 0, 8]);
        bytes.extend(action);
    }
    remote.memory().write(at, &bytes)?;
    for answer in remote.run(&batch)? {
        remote.checked("rt_sigaction", answer)?;
    }
    Ok(())
}
