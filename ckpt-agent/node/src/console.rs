//! The job's own streams, on the node of its first process.

use protocol::agent::CheckpointNumber;
use protocol::cluster::agent::Stream;
use protocol::launch::WindowSize;

use crate::End;

/// What becomes of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// It goes nowhere: nobody listens, but the job must be able to write.
    Nothing,
    /// All of it is sent, from offset 0 on.
    All,
    /// As much as [`ConsoleOrder::Kept`] first tells came before, through an agent that has gone.
    Continued,
}

/// What the console is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsoleOrder {
    /// So many bytes are in the job's log.
    Kept(u64),
    /// There is a new connection: everything that is not known to be kept is sent again.
    SendAgain,
    /// Read until it is empty, with the job standing still, once relays into it stand still, too.
    Drain {
        /// The checkpoint for which it is emptied.
        checkpoint: CheckpointNumber,
        /// The job is to go on elsewhere: what it has not got of its input is reported, and kept from it.
        parks: bool,
    },
    /// The job has been let go after all: it gets its input.
    Release,
    /// Read until it is empty; the job's first process has ended.
    Flush,
    /// For the job; empty: the end.
    Input(Vec<u8>),
    /// The terminal's size.
    Resize(WindowSize),
}

/// What the console reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsoleReport {
    /// A piece of output.
    Piece {
        /// Bytes before it.
        offset: u64,
        /// Standard output or standard error.
        stream: Stream,
        /// Its content.
        bytes: Vec<u8>,
    },
    /// Input that the job has not got, and whether its end follows.
    Left {
        /// The checkpoint for which the console was drained.
        checkpoint: CheckpointNumber,
        /// The input.
        bytes: Vec<u8>,
        /// Whether the end follows.
        ended: bool,
    },
    /// It was empty after so many bytes.
    Drained {
        /// The checkpoint for which it was drained.
        checkpoint: CheckpointNumber,
        /// Bytes of output up to there.
        offset: u64,
    },
    /// All output of the first process is out.
    Flushed,
    /// An end was closed here.
    Closed(End),
}
