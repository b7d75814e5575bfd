//! PID namespaces of the job's own (pid_namespaces(7)), once their processes are there.

use std::collections::BTreeSet;

use super::super::error::{EngineError, Result};
use super::super::graph::{Graph, Pid, ProcessImage, ProcessNode, ProcessState};
use super::super::job_init::World;
use super::super::objects::RestoreContext;
use super::Helper;
use super::image::Processes;
use super::last_number::LastInside;
use super::namespaces::{join, open_in};
use super::numbers::Numbers;

/// Refuses what can't be made here, before anything is.
///
/// # Errors
/// [`EngineError::Unfit`]; damage.
pub(super) fn check(
    nodes: &[ProcessNode],
    graph: &Graph,
    processes: &Processes,
    by_root: bool,
) -> Result<()> {
    let is_apart = |image: &ProcessImage| {
        let places = image.namespaces.iter();
        let mut own = places.filter_map(|place| graph.namespaces.get(*place as usize));
        own.any(|one| one.content.is_user())
    };
    let within: BTreeSet<Pid> =
        nodes.iter().filter(|node| node.inside.is_some()).map(|node| node.pid).collect();
    for image in processes.values().filter(|image| by_root && !is_apart(image)) {
        // A user gets none otherwise, and set-user-ID programs expect none: they could be misled by numbers.
        if within.contains(&image.pid) || image.pids_of_children.is_some() {
            let what = "a user's process in a PID namespace that is none of a user namespace";
            return Err(EngineError::Damaged(format!("process {}: {what}", image.pid)));
        }
    }
    for node in nodes {
        let Some(inside) = node.inside else { continue };
        let content = graph.namespaces.get(inside.namespace as usize).map(|one| &one.content);
        if content != Some(&super::super::graph::NamespaceContent::Pid) {
            return Err(EngineError::Damaged(format!(
                "process {} is in a PID namespace that is none",
                node.pid
            )));
        }
        if World::of_this_init() != World::Own {
            return Err(EngineError::Unfit {
                what:
                    "the job has PID namespaces of its own, in which numbers must be as they were"
                        .to_owned(),
                way_out:
                    "restart it where jobs have namespaces; `ckptd doctor` says what is allowed"
                        .to_owned(),
            });
        }
        if node.state == ProcessState::StandIn {
            return Err(EngineError::Unfit {
                what: "the processes of a PID namespace of the job's own can't be divided"
                    .to_owned(),
                way_out: "bring them back together".to_owned(),
            });
        }
    }
    Ok(())
}

/// The first process of a namespace, as this process numbers it.
fn first_of(graph: &Graph, namespace: u32, numbers: &Numbers) -> Result<Pid> {
    let mut all = graph.processes.iter();
    let first = all.find(|node| {
        node.inside.is_some_and(|inside| inside.namespace == namespace && inside.is_first())
    });
    first.and_then(|node| numbers.here(node.pid)).ok_or_else(|| {
        EngineError::Damaged("a PID namespace of the job's own without a first process".to_owned())
    })
}

/// Has processes that are outside make children in the PID namespaces where they made them. Before they enter user
/// namespaces of their own, since it takes rights over those.
///
/// # Errors
/// Failed calls; damage.
pub(super) fn set_for_children(
    helpers: &mut [Helper<'_>],
    context: &RestoreContext<'_>,
    numbers: &Numbers,
) -> Result<()> {
    for helper in helpers {
        let Some(namespace) = helper.image.pids_of_children else { continue };
        let first = first_of(context.graph, namespace, numbers)?;
        let mut remote = helper.remote()?;
        let fd = open_in(&mut remote, &format!("/proc/{first}/ns/pid"))?;
        join(&mut remote, fd, libc::CLONE_NEWPID as u64)?;
    }
    Ok(())
}

/// Which number is to come next in the PID namespace of the job's own that a process is in, for a thread of it. `None`: it is
/// in none.
///
/// # Errors
/// Damage.
pub(super) fn last_inside(
    helper: &Helper<'_>,
    place: usize,
    graph: &Graph,
    numbers: &Numbers,
) -> Result<Option<LastInside>> {
    let node = graph.processes.iter().find(|node| node.pid == helper.image.pid);
    let Some(inside) = node.and_then(|node| node.inside) else { return Ok(None) };
    let wanted = helper.image.threads.get(place).and_then(|thread| thread.tid_inside);
    let wanted = wanted.ok_or_else(|| {
        EngineError::Damaged(format!("a thread of process {} without a number", helper.pid))
    })?;
    Ok(Some(LastInside { first: first_of(graph, inside.namespace, numbers)?, wanted }))
}
