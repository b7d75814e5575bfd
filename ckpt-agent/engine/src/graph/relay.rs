//! Ends of kernel objects that an agent holds: the launcher's standard streams, and relays, which
//! carry the bytes of an object whose other end lives in another instance.

use serde::{Deserialize, Serialize};

use super::stdio::StdioRole;
use super::{BlobId, Descriptor, Pid};

/// What an agent holds of an object of the job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OuterEnd {
    /// The launcher's side of a standard stream.
    Stream(StdioRole),
    /// One side of a relay.
    Relay(RelayEnd),
}

/// One side of a relay.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RelayEnd {
    /// The relay's name, the same on both sides, given once and never again.
    pub id: String,
    /// 0: the home side, where the object's reader was when it was taken apart; 1: the other one.
    pub side: u8,
    /// What the agent holds.
    pub kind: RelayKind,
}

impl RelayEnd {
    /// Whether it is the standard input of a program that a remote shell has started.
    pub fn is_shell_input(&self) -> bool {
        self.side == 1 && self.kind == RelayKind::PipeWrite && self.id.ends_with("#link#fd0")
    }
}

/// What an agent holds of a relayed object, and so what it does with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelayKind {
    /// The read end of a pipe: the far side holds the readers.
    PipeRead,
    /// A write end of a pipe: the far side holds writers.
    PipeWrite,
    /// The master of a pseudoterminal: the far side holds the real one.
    TerminalMaster,
    /// A slave of a pseudoterminal in raw mode: the far side holds the real slaves.
    TerminalSlave,
    /// The peer of a Unix stream socket.
    Stream,
    /// The peer of a Unix datagram or seqpacket socket: bounds of messages count.
    Packets,
    /// The very description that a remote shell's stand-in has as this descriptor: the agent reads 0 and
    /// writes 1 and 2 in its stead.
    Descriptor {
        /// The stand-in.
        pid: Pid,
        /// 0, 1 or 2.
        fd: i32,
    },
    /// The write end of a pipe that the agent has made for itself: what comes is output of the job, written
    /// by a process whose daemon has departed.
    Output,
    /// The far end of a TCP connection whose peer has departed: it stays open and silent.
    Absent,
    /// The peer of a link between a process's stand-in parent and stand-in child: messages.
    Link {
        /// The parent; side 1 is that of its stand-in.
        parent: Pid,
        /// The child; side 0 is that of its stand-in.
        child: Pid,
    },
}

impl RelayKind {
    /// The same, with the numbers that processes have now; nobody's stay as they are.
    #[must_use]
    pub fn renumbered(self, here: &impl Fn(Pid) -> Option<Pid>) -> Self {
        let here = |pid| here(pid).unwrap_or(pid);
        match self {
            Self::Descriptor { pid, fd } => Self::Descriptor { pid: here(pid), fd },
            Self::Link { parent, child } => Self::Link { parent: here(parent), child: here(child) },
            other => other,
        }
    }
}

/// A process of the job that started a program in another instance (`ckptd rsh`), and lives as a
/// stand-in with standard streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteShell {
    /// Its number.
    pub pid: Pid,
    /// Its standard streams.
    pub descriptors: Vec<Descriptor>,
}

/// What an agent held of a relay at a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayState {
    /// Which relay, and which side of it.
    pub end: RelayEnd,
    /// Bytes for this side that were not written into the native object yet, as the agent encodes
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undelivered: Option<BlobId>,
    /// The far side has closed; what is undelivered is the last.
    #[serde(default)]
    pub far_closed: bool,
}
