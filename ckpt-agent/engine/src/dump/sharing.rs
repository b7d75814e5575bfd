//! Which processes share their descriptors or directories with their parents, and so are made sharing them again (clone(2)). What
//! a process shares with anybody else no clone(2) brings back.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::super::error::{EngineError, Refusal, Result};
use super::super::freeze::StoppedProcess;
use super::super::graph::{ProcessNode, Sharing};
use super::super::sys::kcmp::{Resource, compare};

/// Finds them. `nodes` by the processes' numbers on this machine.
///
/// # Errors
/// A refusal of what can't be made again.
pub fn find(
    processes: &[StoppedProcess],
    nodes: &BTreeMap<i32, ProcessNode>,
) -> Result<Vec<Sharing>> {
    for process in processes {
        let node = &nodes[&process.host_pid];
        check_threads(process).map_err(|error| error.of(node.pid, &node.comm))?;
    }
    let pids: Vec<i32> = processes.iter().map(|process| process.host_pid).collect();
    if let Some([first, second, ..]) = groups(&pids, Resource::Memory).first().map(Vec::as_slice) {
        return Err(refuse(
            &nodes[second],
            "memory",
            &nodes[first],
            "try again once it has called exec",
        ));
    }
    let mut found: BTreeMap<i32, Sharing> = BTreeMap::new();
    for (resource, name) in
        [(Resource::Descriptors, "descriptors"), (Resource::Directories, "directories")]
    {
        for group in groups(&pids, resource) {
            let members: BTreeSet<i32> = group.iter().map(|pid| nodes[pid].pid).collect();
            let (below, above): (Vec<i32>, Vec<i32>) =
                group.into_iter().partition(|pid| members.contains(&nodes[pid].ppid));
            if let [first, second, ..] = above[..] {
                let way_out = "have the process that they were made by go on";
                return Err(refuse(&nodes[&second], name, &nodes[&first], way_out));
            }
            for pid in below {
                let none = Sharing { pid: nodes[&pid].pid, descriptors: false, directories: false };
                let one = found.entry(pid).or_insert(none);
                match resource {
                    Resource::Descriptors => one.descriptors = true,
                    _ => one.directories = true,
                }
            }
        }
    }
    Ok(found.into_values().collect())
}

/// Threads share everything with their process, where they have not called unshare(2).
fn check_threads(process: &StoppedProcess) -> Result<()> {
    let Some((first, others)) = process.threads.split_first() else { return Ok(()) };
    for thread in others {
        for (resource, name) in
            [(Resource::Descriptors, "descriptors"), (Resource::Directories, "directories")]
        {
            let order = compare(first.tid(), thread.tid(), resource);
            if order.is_some_and(Ordering::is_ne) {
                let what = format!("has a thread with {name} of its own (unshare)");
                return Err(Refusal::new(what, "let its threads share them").into());
            }
        }
    }
    Ok(())
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
