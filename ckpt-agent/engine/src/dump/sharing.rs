//! Which processes share their descriptors, directories or memory with their parents, and so are made sharing them again (clone(2)). What
//! a process shares with anybody else no clone(2) brings back.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use procfs::process::Stat;

use super::super::error::{EngineError, Refusal, Result};
use super::super::freeze::StoppedProcess;
use super::super::graph::{ProcessNode, Sharing};
use super::super::sys::kcmp::{Resource, compare};
use super::super::trace::StoppedThread;

/// Finds them. `nodes` and `stats` by the processes' numbers on this machine. `among_others`: the job lives among the machine's processes.
///
/// # Errors
/// A refusal of what can't be made again.
pub fn find(
    processes: &[StoppedProcess],
    nodes: &BTreeMap<i32, ProcessNode>,
    stats: &BTreeMap<i32, Stat>,
    among_others: bool,
) -> Result<Vec<Sharing>> {
    let pids: Vec<i32> = processes.iter().map(|process| process.host_pid).collect();
    let mut found: BTreeMap<i32, Sharing> = BTreeMap::new();
    for (resource, name) in [
        (Resource::Memory, "memory"),
        (Resource::Actions, "signal actions"),
        (Resource::Descriptors, "descriptors"),
        (Resource::Directories, "directories"),
    ] {
        for group in groups(&pids, resource) {
            let members: BTreeSet<i32> = group.iter().map(|pid| nodes[pid].pid).collect();
            let (below, above): (Vec<i32>, Vec<i32>) =
                group.into_iter().partition(|pid| members.contains(&nodes[pid].ppid));
            if let [first, second, ..] = above[..] {
                let way_out = "have the process that they were made by go on";
                return Err(refuse(&nodes[&second], name, &nodes[&first], way_out));
            }
            for pid in below {
                let none = Sharing::none(nodes[&pid].pid);
                let one = found.entry(pid).or_insert(none);
                match resource {
                    Resource::Memory => one.memory = true,
                    Resource::Actions => one.actions = true,
                    Resource::Descriptors => one.descriptors = true,
                    Resource::Directories => one.directories = true,
                }
            }
        }
    }
    let found: Vec<Sharing> = found.into_values().collect();
    check_sharers(&found, nodes, stats, among_others)?;
    Ok(found)
}

/// Who shares its parent's memory is made by that one when a restart has filled it, after all other processes, under the number
/// that it had: nobody else may be its child then, or in a group or session of that number.
fn check_sharers(
    found: &[Sharing],
    nodes: &BTreeMap<i32, ProcessNode>,
    stats: &BTreeMap<i32, Stat>,
    among_others: bool,
) -> Result<()> {
    let sharers: BTreeSet<i32> = found.iter().filter(|one| one.memory).map(|one| one.pid).collect();
    for (host_pid, node) in nodes.iter().filter(|(_, node)| sharers.contains(&node.pid)) {
        // Its terminal is told of its group before that is there.
        let is_in_front = stats.get(host_pid).is_some_and(|stat| stat.tpgid == stat.pgrp);
        let parent = nodes.values().find(|other| other.pid == node.ppid);
        let others = || nodes.values().filter(|other| other.pid != node.pid);
        let is_led = |other: &ProcessNode| {
            other.sid == node.pid || other.pgid == node.pid && !sharers.contains(&other.pid)
        };
        // Groups are made with processes that come before: the init's, a process's own, one that another of them is in.
        let is_made_before = |node: &ProcessNode| {
            let is_one = |other: &ProcessNode| {
                other.pid == node.pgid || other.pgid == node.pgid && !sharers.contains(&other.pid)
            };
            node.pgid == 1 || nodes.values().any(is_one)
        };
        let is_child =
            |other: &ProcessNode| other.ppid == node.pid && !sharers.contains(&other.pid);
        let odd = if among_others {
            "in a job without namespaces of ckptd's own"
        } else if parent.is_none_or(|parent| parent.sid != node.sid) {
            "in another session"
        } else if others().any(is_led) {
            "and leads a process group of others"
        } else if node.pgid == node.pid && is_in_front {
            "and is in the foreground of its terminal with a process group of its own"
        } else if !is_made_before(node) {
            "in a process group whose leader has ended"
        } else if others().any(is_child) {
            "and has a child that does not"
        } else {
            continue;
        };
        return Err(EngineError::RefusedProcess {
            pid: node.pid,
            comm: node.comm.clone(),
            refusal: Refusal::new(
                format!("shares its memory with process {} (CLONE_VM), {odd}", node.ppid),
                "try again once it has ended or called exec",
            ),
        });
    }
    Ok(())
}

/// Threads with directories of their own, by their numbers on this machine, each with the first one that has the same ones.
pub type OwnDirectories = BTreeMap<i32, i32>;

/// Finds threads with directories of their own (unshare(2), CLONE_FS). They share everything else with their process.
///
/// # Errors
/// A refusal of other things of their own, and of a process that shares such a thread's.
pub fn find_threads(
    processes: &[StoppedProcess],
    nodes: &BTreeMap<i32, ProcessNode>,
) -> Result<OwnDirectories> {
    let mut found = OwnDirectories::new();
    for process in processes {
        let node = &nodes[&process.host_pid];
        let own = of_threads(process).map_err(|error| error.of(node.pid, &node.comm))?;
        found.extend(own);
    }
    if found.is_empty() {
        return Ok(found);
    }
    let mut all: Vec<i32> = processes.iter().map(|process| process.host_pid).collect();
    all.extend(found.iter().filter(|(tid, first)| tid == first).map(|(tid, _)| *tid));
    for group in groups(&all, Resource::Directories) {
        let of_process = group.iter().find_map(|pid| nodes.get(pid));
        if let (Some(node), true) = (of_process, group.iter().any(|tid| found.contains_key(tid))) {
            let what = "shares its directories with a thread of another process that has its own";
            let refusal = Refusal::new(what, "have it use directories of its own (unshare)");
            return Err(EngineError::from(refusal).of(node.pid, &node.comm));
        }
    }
    Ok(found)
}

fn of_threads(process: &StoppedProcess) -> Result<OwnDirectories> {
    let mut found = OwnDirectories::new();
    let Some((leader, others)) = process.threads.split_first() else { return Ok(found) };
    let differs = |left: i32, right: i32, resource| {
        compare(left, right, resource).is_some_and(Ordering::is_ne)
    };
    let mut apart = Vec::new();
    for thread in others.iter().map(StoppedThread::tid) {
        if differs(leader.tid(), thread, Resource::Descriptors) {
            let what = "has a thread with descriptors of its own (unshare)";
            return Err(Refusal::new(what, "let its threads share them").into());
        }
        if differs(leader.tid(), thread, Resource::Directories) {
            apart.push(thread);
        }
    }
    let shared = groups(&apart, Resource::Directories);
    for thread in apart {
        let group = shared.iter().find(|group| group.contains(&thread));
        let first = group.and_then(|group| group.first()).copied().unwrap_or(thread);
        found.insert(thread, first);
    }
    Ok(found)
}

fn refuse(node: &ProcessNode, name: &str, other: &ProcessNode, way_out: &str) -> EngineError {
    EngineError::RefusedProcess {
        pid: node.pid,
        comm: node.comm.clone(),
        refusal: Refusal::new(
            format!("shares its {name} with process {} without being its thread", other.pid),
            way_out,
        ),
    }
}

/// Processes that share a resource, where the kernel tells: it has an order over them (kcmp(2)), so that not each is compared with
/// each other.
fn groups(pids: &[i32], resource: Resource) -> Vec<Vec<i32>> {
    let mut groups: Vec<Vec<i32>> = Vec::new();
    for pid in pids {
        let mut is_told = true;
        let place = groups.binary_search_by(|group| {
            compare(group[0], *pid, resource).unwrap_or_else(|| {
                is_told = false;
                Ordering::Less
            })
        });
        match place {
            // It ends just now, or the kernel tells of none.
            _ if !is_told => {}
            Ok(at) => groups[at].push(*pid),
            Err(at) => groups.insert(at, vec![*pid]),
        }
    }
    groups.retain(|group| group.len() > 1);
    groups.iter_mut().for_each(|group| group.sort_unstable());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shares_is_found_among_others() {
        let sleep = || std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut others: Vec<_> = (0..5).map(|_| sleep()).collect();
        let own = std::process::id() as i32;
        let thread = std::thread::spawn(|| {
            // SAFETY: a call without arguments.
            let tid = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
            std::thread::park();
            tid
        });
        let tids = crate::proc::thread_numbers(own).unwrap();
        let mut pids: Vec<i32> = others.iter().map(|child| child.id() as i32).collect();
        pids.extend(&tids);
        let found = groups(&pids, Resource::Descriptors);
        thread.thread().unpark();
        assert!(tids.contains(&thread.join().unwrap()));
        for child in &mut others {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let mut sorted = tids;
        sorted.sort_unstable();
        // Nothing is found where the kernel does not tell.
        assert!(found.is_empty() || found == [sorted]);
    }
}
