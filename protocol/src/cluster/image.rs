//! What a coordinator knows of an instance's image: enough to place its processes.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One process of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// Its number in its logical node.
    pub pid: i32,
    /// Its parent's.
    pub parent: i32,
    /// Its name, as in /proc/PID/comm.
    pub name: String,
    /// Threads.
    pub threads: u32,
    /// Bytes of memory in the image.
    pub bytes: u64,
}

/// Processes that must stay together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Their numbers, rising.
    pub pids: Vec<i32>,
    /// Bytes of memory in the image.
    pub bytes: u64,
    /// Processes among them that count as load: those that are no daemons or shells waiting for a child.
    pub load: u32,
    /// Why more than one process is in it, for the user; empty for one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
}

/// What a process has done on a machine since it began there, by the kernel's account of all its threads. Only differences
/// say anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effort {
    /// Milliseconds on a CPU, in the program.
    pub user_ms: u64,
    /// Milliseconds on a CPU, in the kernel.
    pub system_ms: u64,
    /// Milliseconds in which threads wanted a CPU and had none.
    pub waited_ms: u64,
}

/// What the processes of an instance have done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Efforts {
    /// When that was read, in milliseconds of a clock of the machine.
    pub at_ms: u64,
    /// By their numbers in their logical node.
    pub processes: BTreeMap<i32, Effort>,
    /// Milliseconds in the program for 1000 in the kernel, of processes that seem to do nothing but look whether there is
    /// something to do; None: none has been seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_permille: Option<u32>,
}

/// What a machine must offer to run an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Requirements {
    /// Architecture as Rust names it.
    pub architecture: String,
    /// Bytes per page.
    pub page_size: u64,
    /// BLAKE3 of the kernel's vdso, hexadecimal.
    pub vdso: String,
    /// It goes on under kernels with another one as well.
    #[serde(default)]
    pub any_vdso: bool,
    /// Features of the CPU that the processes were offered.
    #[serde(default)]
    pub features: Vec<String>,
    /// One past the highest address that a process has memory at, or may have; 0: not known. Kernels of one architecture are
    /// built for address spaces of unlike size, those of phones often for 39 bits.
    #[serde(default)]
    pub memory_top: u64,
}

/// One instance's part of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageFacts {
    /// The instance's first process, if it lives: the job's, or what a remote shell has started.
    pub root: Option<i32>,
    /// All processes.
    pub processes: Vec<ProcessFacts>,
    /// What must stay together.
    pub units: Vec<Unit>,
    /// What a machine must offer.
    pub requirements: Requirements,
    /// What would be lost with the machine, one line each: files on its own disk that are not in
    /// the image.
    #[serde(default)]
    pub at_stake: Vec<String>,
    /// Hash of its index files, which hold the hashes of all that is in it: what a copy of it must have. Empty: not known,
    /// as of images of before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// What its processes had done when the job went on after the checkpoint, or when it was written; None: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub efforts: Option<Efforts>,
}
