//! What processes have in common with their parents without being their threads (clone(2)).

use serde::{Deserialize, Serialize};

use super::{Pid, ProcessNode};

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
}

/// The process to which the table of descriptors of a process belongs: the highest one of those that share it.
pub fn table_of(sharing: &[Sharing], nodes: &[ProcessNode], pid: Pid) -> Pid {
    let mut at = pid;
    // Parents come in a circle in no tree, but in an image that somebody has changed.
    for _ in 0..nodes.len() {
        if !sharing.iter().any(|one| one.pid == at && one.descriptors) {
            break;
        }
        let Some(node) = nodes.iter().find(|node| node.pid == at) else { break };
        at = node.ppid;
    }
    at
}
