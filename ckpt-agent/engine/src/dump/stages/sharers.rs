//! Processes that have their parents' memory.

use std::collections::BTreeMap;

use super::Quiesced;
use crate::dump::snapshot_process::SnapshotProcess;
use crate::freeze::StoppedProcess;

impl Quiesced {
    /// Whether a process has its parent's memory, of which that one's image tells.
    pub(super) fn shares_memory(&self, host_pid: i32) -> bool {
        let pid = self.nodes.get(&host_pid).map(|node| node.pid);
        self.sharing.iter().any(|one| one.memory && Some(one.pid) == pid)
    }

    /// Of each process, the place of the one whose image has its memory.
    pub(super) fn owners_of_memory(&self, processes: &[StoppedProcess]) -> Vec<usize> {
        (0..processes.len()).map(|place| self.owner_of_memory(processes, place)).collect()
    }

    fn owner_of_memory(&self, processes: &[StoppedProcess], place: usize) -> usize {
        let mut at = place;
        // Parents come before their children.
        while self.shares_memory(processes[at].host_pid) {
            let parent = self.nodes.get(&processes[at].host_pid).map(|node| node.ppid);
            let is_parent = |process: &StoppedProcess| {
                self.nodes.get(&process.host_pid).map(|node| node.pid) == parent
            };
            match processes[..at].iter().position(is_parent) {
                Some(above) => at = above,
                None => break,
            }
        }
        at
    }

    /// By which process the memory of each is shown while it is written, as this machine numbers it: each copy is of memory, not of
    /// a process, and where there are none every process shows its own. `owners`: see [`Self::owners_of_memory`].
    pub(super) fn shown_by(
        processes: &[StoppedProcess],
        owners: &[usize],
        copies: &[SnapshotProcess],
    ) -> Vec<i32> {
        let own = owners.iter().enumerate().filter(|(place, owner)| place == *owner);
        let copies: BTreeMap<usize, i32> =
            own.zip(copies).map(|((place, _), copy)| (place, copy.host_pid())).collect();
        let shown = processes.iter().zip(owners);
        shown
            .map(|(process, owner)| copies.get(owner).copied().unwrap_or(process.host_pid))
            .collect()
    }
}
