//! System V objects in IPC namespaces of processes' own.

use std::collections::BTreeMap;

use super::super::super::error::{EngineError, Result};
use super::super::super::freeze::StoppedProcess;
use super::super::super::graph::{IdRange, IpcObjects, NamespaceContent};
use super::super::super::inodes::segments;
use super::super::super::ipc::{Listed, Told};
use super::super::super::objects::DumpContext;
use super::segments::Attached;
use super::{Own, content, ipc, name_of, refuse};

/// An IPC namespace with what there is in it.
pub(super) fn content_of(told: &Told) -> NamespaceContent {
    match told.is_empty() {
        true => NamespaceContent::Ipc,
        false => NamespaceContent::OwnIpc { objects: IpcObjects::default() },
    }
}

impl Own {
    /// Whether any process is in an IPC namespace of its own.
    pub fn has_ipc(&self) -> bool {
        self.all.iter().any(|one| is_ipc(&one.content))
    }

    /// The IPC namespace of a process, where it is its own, as a place in the list.
    pub fn ipc_of(&self, pid: i32) -> Option<u32> {
        self.place_among(pid, is_ipc)
    }

    /// Those of all processes.
    pub fn ipc_namespaces(&self) -> BTreeMap<i32, u32> {
        self.of.keys().filter_map(|pid| Some((*pid, self.ipc_of(*pid)?))).collect()
    }

    /// Adds the segments of all IPC namespaces, where there are several, to the inodes.
    pub fn add_segments(&self, context: &mut DumpContext) {
        for (namespace, told) in &self.lists {
            told.segments.iter().for_each(|one| segments::add(context, *namespace, one));
        }
    }

    /// Semaphores and message queues of processes' own IPC namespaces, by their places.
    pub fn take_listed(&mut self) -> Vec<(u32, Listed)> {
        let all = std::mem::take(&mut self.lists).into_iter();
        all.filter_map(|(namespace, told)| Some((namespace?, told.others))).collect()
    }

    /// Puts in what was read of them.
    pub fn put_objects(&mut self, place: u32, read: IpcObjects) {
        let content = self.all.get_mut(place as usize).map(|one| &mut one.content);
        if let Some(NamespaceContent::OwnIpc { objects }) = content {
            *objects = read;
        }
    }

    /// Looks at what is attached, in a job with IPC namespaces of its own. `processes`: all of the job.
    pub(super) fn check_ipc(
        &mut self,
        init: i32,
        processes: &[StoppedProcess],
    ) -> Result<(), (i32, EngineError)> {
        if !self.has_ipc() {
            return Ok(());
        }
        // Otherwise segments are the machine's, and none of the job's.
        if name_of(std::process::id() as i32, "ipc") != name_of(init, "ipc") {
            let told = ipc::of_job(init).map_err(|error| (init, error))?;
            let all_own = processes.iter().all(|one| self.ipc_of(one.host_pid).is_some());
            if let Some(first) = processes.first().filter(|_| all_own && !told.is_empty()) {
                let what = "is in an IPC namespace of its own, as all processes are, and there are objects in the job's";
                return Err((first.host_pid, refuse(what.to_owned())));
            }
            self.lists.insert(None, told);
        }
        let mut attached = Attached::default();
        for process in processes {
            let pid = process.host_pid;
            let counted = attached.add(pid, self.ipc_of(pid), &self.lists);
            counted.map_err(|error| (pid, error))?;
        }
        attached.check(&self.lists).map_err(|(namespace, error)| {
            let mut all = processes.iter().map(|one| one.host_pid);
            let first = all.find(|pid| self.ipc_of(*pid) == namespace);
            (first.unwrap_or(init), error)
        })
    }

    /// Whoever owns an object must have a number in the user namespace that it belongs to, in which it is made again.
    pub(super) fn check_owners(&self, init: i32, owner: Option<u32>, told: &Told) -> Result<()> {
        let of_job;
        let users = match owner.and_then(|place| self.all.get(place as usize)) {
            Some(owner) => &owner.content,
            None => {
                of_job = content::user(init)?;
                &of_job
            }
        };
        let NamespaceContent::User { uids, gids, .. } = users else { return Ok(()) };
        let is_known = |(user, group): (u32, u32)| is_told(uids, user) && is_told(gids, group);
        match told.identities().all(|one| is_known(one.owner) && is_known(one.creator)) {
            true => Ok(()),
            false => {
                let what = "is in an IPC namespace of its own, with objects of users that have no number there";
                Err(refuse(what.to_owned()))
            }
        }
    }
}

fn is_ipc(content: &NamespaceContent) -> bool {
    content.flag() == libc::CLONE_NEWIPC
}

/// What the kernel shows of a number that a user namespace has none for (proc_sys_kernel(5), overflowuid).
const UNKNOWN: u32 = 65_534;

/// Whether this is a number of that namespace, and not what stands for one that has none there.
fn is_told(ranges: &[IdRange], number: u32) -> bool {
    let has_all = matches!(ranges, [IdRange(0, 0, u32::MAX)]);
    has(ranges, number) && (number != UNKNOWN || has_all)
}

fn has(ranges: &[IdRange], number: u32) -> bool {
    ranges.iter().any(|range| range.has(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_within_their_ranges() {
        let ranges = [IdRange(0, 1000, 1), IdRange(10, 2000, 5)];
        assert!(has(&ranges, 0) && has(&ranges, 10) && has(&ranges, 14));
        assert!(!has(&ranges, 1) && !has(&ranges, 9) && !has(&ranges, 15) && !has(&[], 0));
        assert!(is_told(&[IdRange(0, 0, u32::MAX)], 65_534));
        assert!(!is_told(&[IdRange(0, 100_000, 65_536)], 65_534));
    }
}
