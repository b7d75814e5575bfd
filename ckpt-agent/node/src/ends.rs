//! Ends of streams and relays that the agent holds for an instance.

use protocol::agent::ExitKind;
use protocol::cluster::agent::{RelayLink, RelaySide};

/// An end that the agent holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Standard input.
    Stdin,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The terminal.
    Terminal,
    /// Of a relay.
    Relay(RelaySide),
}

/// What a relay held at a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RelayState {
    /// Bytes not written into the native object yet; of messages each behind its length (u32, little
    /// endian).
    pub undelivered: Vec<u8>,
    /// Whether they are the last.
    pub far_closed: bool,
}

/// What a relay's side is told by its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayOrder {
    /// Where the other side is.
    Link(RelayLink),
    /// Go on after a checkpoint.
    Resume,
    /// Nobody has the other side, for good: everything is taken, nothing comes.
    Silence,
    /// No process is left that could read.
    Deserted,
    /// The end of a process may be passed on: what it had written is there.
    Open,
}

/// What a relay reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayEvent {
    /// It has carried everything, both ways.
    Done(RelaySide),
    /// It cannot go on.
    Lost(RelaySide, String),
    /// Its native end was closed.
    Closed(End),
    /// The process of this link has ended, and its parent has departed.
    OrphanEnded(RelaySide, ExitKind),
}
