//! DMTCP's messages.
//!
//! Each is the struct of DMTCP's x86-64 C ABI, 208 bytes in little-endian order, and a payload. DMTCP leaves fields
//! that a message does not use as they were in memory: only those that a type defines may be looked at.

mod kinds;
mod layout;
mod payload;

pub use kinds::{Command, CommandStatus, Kind, Operation, StoreResult, WorkerState};
pub use payload::{ImageName, payload_strings};

use std::net::Ipv4Addr;
use thiserror::Error;

/// Bytes of a message without its payload.
pub const HEADER: usize = 208;

/// The largest payload, in bytes: DMTCP's own limit.
pub const MAX_PAYLOAD: usize = 1024 * 1024;

/// Bytes of a barrier's or database's name, its NUL included.
pub const MAX_NAME: usize = 64;

/// Seconds that mean "as it is" where an interval is told.
pub const SAME_INTERVAL: i32 = -1;

/// What names a process, or a computation (by the first of its processes).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The host's number, as DMTCP makes it.
    pub host: u64,
    /// A time stamp.
    pub time: u64,
    /// A process's virtual pid.
    pub pid: i32,
    /// A computation's number of checkpoints begun.
    pub generation: i32,
}

impl Identity {
    /// Whether it names nothing. Its generation may be left over.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.host == 0 && self.time == 0 && self.pid == 0
    }

    /// Whether both name the same, of whatever generation.
    #[must_use]
    pub fn is_of(&self, other: &Identity) -> bool {
        (self.host, self.time, self.pid) == (other.host, other.time, other.pid)
    }
}

impl std::fmt::Display for Identity {
    /// As DMTCP writes it in names of files and keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}-{}-{:x}", self.host, self.pid, self.time)
    }
}

/// A message. What a type does not define is left at its default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// A barrier's name, or a database's.
    pub name: String,
    /// An operation on the key-value store, or its result: [`Operation`], [`StoreResult`].
    pub store_code: u32,
    /// The sender's state.
    pub state: WorkerState,
    /// The sender.
    pub from: Identity,
    /// The computation.
    pub group: Identity,
    /// A process's number in the computation; -1 for none.
    pub virtual_pid: i32,
    /// A process's number on its machine.
    pub real_pid: i32,
    /// Bytes of a key in the payload, its NUL included.
    pub key_length: u32,
    /// Bytes of a value in the payload, its NUL included.
    pub value_length: u32,
    /// Processes in the computation.
    pub peers: u32,
    /// Whether all of them run.
    pub is_running: bool,
    /// A command of dmtcp_command, as a number: [`Command`].
    pub command: u32,
    /// How it went.
    pub command_status: CommandStatus,
    /// The coordinator's time stamp of the computation.
    pub time_stamp: u64,
    /// Seconds between checkpoints, [`SAME_INTERVAL`] for no change.
    pub interval: i32,
    /// The worker's address as the coordinator sees it.
    pub address: Ipv4Addr,
    /// Whether the worker ends after its checkpoint.
    pub exit_after: bool,
    /// What follows.
    pub payload: Vec<u8>,
}

impl Message {
    /// A message of that kind, with DMTCP's defaults.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            name: String::new(),
            store_code: 0,
            state: WorkerState::Unknown,
            from: Identity::default(),
            group: Identity::default(),
            virtual_pid: -1,
            real_pid: -1,
            key_length: 0,
            value_length: 0,
            peers: 0,
            is_running: false,
            command: 0,
            command_status: CommandStatus::Success,
            time_stamp: 0,
            interval: SAME_INTERVAL,
            address: Ipv4Addr::UNSPECIFIED,
            exit_after: false,
            payload: Vec::new(),
        }
    }

    /// Reads the first [`HEADER`] bytes; the message, still without its payload, and that one's length.
    ///
    /// # Errors
    /// [`WireError`] where they are no message of this version of DMTCP.
    pub fn decode(header: &[u8; HEADER]) -> Result<(Self, usize), WireError> {
        layout::decode(header)
    }

    /// The message's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        layout::encode(self)
    }
}

/// What is wrong with a message; the text fits after "it sent ".
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WireError {
    /// It is not DMTCP's.
    #[error("no message of DMTCP")]
    Magic,
    /// Another version of DMTCP, with other messages.
    #[error(
        "a message of {size} bytes, where this version of DMTCP's protocol has {HEADER}: its DMTCP is another version"
    )]
    Version {
        /// The size that it tells.
        size: u32,
    },
    /// The payload exceeds the limit.
    #[error("a payload of {size} bytes, more than the limit of {MAX_PAYLOAD}")]
    TooLarge {
        /// Its size.
        size: u32,
    },
    /// The type is none.
    #[error("a message of the unknown type {0}")]
    Kind(u32),
    /// The state is none.
    #[error("the unknown state {0}")]
    State(u32),
    /// A name without an end.
    #[error("a name that does not end")]
    Name,
    /// A payload that does not hold what the type says.
    #[error("a payload that does not hold {0}")]
    Payload(&'static str),
}

#[cfg(test)]
mod tests;
