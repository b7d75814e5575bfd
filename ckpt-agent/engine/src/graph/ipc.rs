//! SysV semaphores and message queues of the job's IPC namespace (sysvipc(7)).

use serde::{Deserialize, Serialize};

use super::{BlobId, Pid};

/// All that there are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpcObjects {
    /// Sets of semaphores.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub semaphores: Vec<SemaphoreSet>,
    /// Message queues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<SysvQueue>,
}

impl IpcObjects {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.semaphores.is_empty() && self.queues.is_empty()
    }
}

/// What all SysV objects have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpcIdentity {
    /// Its number.
    pub number: i32,
    /// Its key; 0: none.
    pub key: i32,
    /// Permission bits.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// User and group that made it.
    pub creator: (u32, u32),
}

/// semget(2)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SemaphoreSet {
    /// Which.
    #[serde(flatten)]
    pub identity: IpcIdentity,
    /// The value of each.
    pub values: Vec<u16>,
    /// The process that last changed each (GETPID); 0: none.
    pub last: Vec<Pid>,
}

/// What a process gives back to a semaphore at its end (semop(2), SEM_UNDO).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SemaphoreUndo {
    /// The number of the set.
    pub set: i32,
    /// Which semaphore of the set.
    pub index: u16,
    /// What is added to its value.
    pub adjustment: i16,
}

/// msgget(2)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysvQueue {
    /// Which.
    #[serde(flatten)]
    pub identity: IpcIdentity,
    /// Bytes that it holds at most.
    pub capacity: u64,
    /// The type of each message and its length, in their order.
    pub messages: Vec<(i64, u32)>,
    /// Their bytes, one after the other.
    pub content: BlobId,
}
