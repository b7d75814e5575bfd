//! Open file descriptions and the descriptors that refer to them (open(2), "Open file
//! descriptions").

use serde::{Deserialize, Serialize};

use super::super::objects::Object;
use super::Pid;

/// Index of an [`OpenFile`] in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileId(pub u32);

/// One open file description, shared by all descriptors that dup and fork made of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpenFile {
    /// Access mode and status flags, as fcntl(F_GETFL) tells them (no O_CLOEXEC).
    pub flags: i32,
    /// Who gets SIGIO, if anyone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// flock(2) and open-file-description locks held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<Lock>,
    /// What it is open on.
    pub object: Object,
    /// What it is among mounts of the job's own, where it is opened once these are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<Inside>,
    /// Of a socket: the network namespace of the job's own in which it was made, as a place among its namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<u32>,
}

/// A place among the mounts of a mount namespace of the job's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    /// The namespace, among those of the image.
    pub namespace: u32,
    /// The path there.
    pub path: String,
}

/// A descriptor of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its number.
    pub fd: i32,
    /// What it refers to.
    pub file: FileId,
    /// FD_CLOEXEC.
    pub close_on_exec: bool,
}

/// fcntl(2) F_SETOWN_EX and F_SETSIG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Thread, process or process group.
    pub kind: OwnerKind,
    /// Its number in the job.
    pub pid: Pid,
    /// The signal; 0 is SIGIO.
    pub signal: i32,
}

/// What an [`Owner`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerKind {
    /// F_OWNER_TID
    Thread,
    /// F_OWNER_PID
    Process,
    /// F_OWNER_PGRP
    Group,
}

/// A file lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Whose lock it is.
    pub kind: LockKind,
    /// Exclusive (write) or shared (read).
    pub exclusive: bool,
    /// First byte.
    pub start: u64,
    /// Length in bytes, 0: to the end of the file.
    pub length: u64,
    /// Of [`LockKind::Flock`]: the process that took it, which /proc/locks names. It may have ended, or closed the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Pid>,
    /// Of [`LockKind::Lease`], where somebody waits for it: its holder was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<LeaseBreak>,
}

/// What the holder of a lease is asked to keep of it (fs/locks.c, target_leasetype()).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseBreak {
    /// One for reading: somebody wants to read the file.
    ToShared,
    /// Nothing: somebody wants to change it.
    ToNothing,
}

/// Kinds of file locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockKind {
    /// flock(2): of the open file description, on the whole file.
    Flock,
    /// fcntl(2) F_OFD_SETLK: of the open file description.
    Description,
    /// fcntl(2) F_SETLK: of the process.
    Process,
    /// fcntl(2) F_SETLEASE: of the open file description, on the whole file.
    Lease,
}
