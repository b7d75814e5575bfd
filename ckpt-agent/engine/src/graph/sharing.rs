//! What processes have in common with their parents without being their threads (clone(2)).

use serde::{Deserialize, Serialize};

use super::{Graph, Pid};

/// What one process shares with its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// The process.
    pub pid: Pid,
    /// The table of descriptors (CLONE_FILES).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub descriptors: bool,
    /// Root and working directory, and the file mode creation mask (CLONE_FS).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub directories: bool,
    /// The address space (CLONE_VM): the process's own image has no areas and no pages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub memory: bool,
    /// Signal actions (CLONE_SIGHAND), which takes the memory, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub actions: bool,
}

impl Sharing {
    /// Of a process that shares nothing.
    pub fn none(pid: Pid) -> Self {
        Self { pid, descriptors: false, directories: false, memory: false, actions: false }
    }
}

impl Graph {
    /// What a process shares with its parent; most often there is none of it.
    pub fn sharing_of(&self, pid: Pid) -> Option<&Sharing> {
        self.sharing.iter().find(|one| one.pid == pid)
    }

    /// Whether a process has its parent's memory.
    pub fn shares_memory(&self, pid: Pid) -> bool {
        self.sharing_of(pid).is_some_and(|one| one.memory)
    }

    /// Whether a process has memory that a child of it shares.
    pub fn has_sharers(&self, pid: Pid) -> bool {
        let mut sharers = self.sharing.iter().filter(|one| one.memory);
        sharers.any(|one| self.processes.iter().any(|node| node.pid == one.pid && node.ppid == pid))
    }

    /// The process to which the table of descriptors of a process belongs: the highest one of those that share it.
    pub fn table_of(&self, pid: Pid) -> Pid {
        let mut at = pid;
        // Parents come in a circle in no tree, but in an image that somebody has changed.
        for _ in 0..self.processes.len() {
            if !self.sharing_of(at).is_some_and(|one| one.descriptors) {
                break;
            }
            let Some(node) = self.processes.iter().find(|node| node.pid == at) else { break };
            at = node.ppid;
        }
        at
    }
}
