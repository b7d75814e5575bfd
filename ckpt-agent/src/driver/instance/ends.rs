//! Ends of relays: under the engine's names, and under the cluster's.

use std::os::fd::OwnedFd;

use ckpt_engine::graph::{OuterEnd, RelayEnd as NativeEnd, RelayKind};
use ckpt_node::RelayState;
use protocol::cluster::agent::{RelaySide, stream_relay};

use super::InstanceError;
use super::saved::Saved;

/// An agent's end of a relay.
#[derive(Debug)]
pub struct RelayEnd {
    /// The side of the relay that ends here.
    pub side: RelaySide,
    /// What it is.
    pub kind: RelayEndKind,
    /// The agent's descriptor of it.
    pub native: OwnedFd,
    /// Whether the job has the same open file description.
    pub shared: bool,
    /// Whether the end of a process that comes this way waits for [`crate::driver::relay::Order::Open`].
    pub gated: bool,
    /// What was on its way to the native object at the checkpoint, and whether nothing more follows.
    pub prefix: RelayState,
}

/// What an agent holds of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayEndKind {
    /// The read end of a pipe.
    PipeRead,
    /// The write end of a pipe.
    PipeWrite,
    /// One side of a terminal.
    Terminal,
    /// A socket that carries a stream.
    Stream,
    /// A socket that keeps the bounds of messages.
    Messages,
}

/// What is between a new relay's origin and the number of a socket without a peer.
const ABSENT: &str = "#tcp";

/// The other end of a connection, that open file of an image, whose peer has departed. `origin` names relays of the
/// image in this epoch.
#[must_use]
pub fn absent_end(origin: &str, file: u32) -> NativeEnd {
    NativeEnd { id: format!("{origin}{ABSENT}{file}"), side: 1, kind: RelayKind::Absent }
}

/// Ends as the engine names them, each with its descriptor.
pub type Outer = Vec<(OuterEnd, OwnedFd)>;

/// Takes the other ends of connections without a peer out.
pub fn split_absent(outer: Outer) -> (Vec<(u32, OwnedFd)>, Outer) {
    let mut absent = Vec::new();
    let mut others = Vec::new();
    for (end, fd) in outer {
        let file = match &end {
            OuterEnd::Relay(NativeEnd { id, kind: RelayKind::Absent, .. }) => {
                id.rsplit_once(ABSENT).and_then(|(_, file)| file.parse().ok())
            }
            _ => None,
        };
        match file {
            Some(file) => absent.push((file, fd)),
            None => others.push((end, fd)),
        }
    }
    (absent, others)
}

/// Sides whose native object gives what processes here have written for others to see.
pub fn outputs(outer: &Outer) -> Vec<RelaySide> {
    let ends = outer.iter().filter_map(|(end, _)| match end {
        OuterEnd::Relay(end) => Some(end),
        OuterEnd::Stream(_) => None,
    });
    let gives = |kind| matches!(kind, RelayKind::PipeRead | RelayKind::TerminalMaster);
    ends.filter(|end| gives(end.kind))
        .map(|end| RelaySide { relay: end.id.clone(), side: end.side })
        .collect()
}

/// What the agent carries, with what an image held of it.
///
/// # Errors
/// The image is damaged.
pub fn relay_ends(outer: Outer, saved: Option<&Saved>) -> Result<Vec<RelayEnd>, InstanceError> {
    let outputs: Vec<String> = outer
        .iter()
        .filter_map(|(end, _)| match end {
            OuterEnd::Relay(NativeEnd {
                id, kind: RelayKind::Descriptor { fd: 1.., .. }, ..
            }) => Some(id.clone()),
            _ => None,
        })
        .collect();
    let has_output = |link: &str| (1..=2).any(|fd| outputs.contains(&stream_relay(link, fd)));
    let mut ends = Vec::new();
    for (end, native) in outer {
        let OuterEnd::Relay(end) = end else { continue };
        let prefix = saved.map_or_else(|| Ok(RelayState::default()), |saved| saved.state(&end))?;
        let kind = match end.kind {
            RelayKind::PipeRead | RelayKind::Descriptor { fd: 0, .. } => RelayEndKind::PipeRead,
            RelayKind::PipeWrite | RelayKind::Output | RelayKind::Descriptor { .. } => {
                RelayEndKind::PipeWrite
            }
            RelayKind::TerminalMaster | RelayKind::TerminalSlave => RelayEndKind::Terminal,
            RelayKind::Stream | RelayKind::Absent => RelayEndKind::Stream,
            RelayKind::Packets | RelayKind::Link { .. } => RelayEndKind::Messages,
        };
        let shared = matches!(end.kind, RelayKind::Descriptor { .. });
        let gated = end.side == 0 && has_output(&end.id);
        let side = RelaySide { relay: end.id, side: end.side };
        ends.push(RelayEnd { side, kind, native, shared, gated, prefix });
    }
    Ok(ends)
}
