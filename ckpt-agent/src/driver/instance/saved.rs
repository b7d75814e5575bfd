//! What an image says of relays.

use std::path::Path;

use ckpt_engine::graph::{Graph, RelayEnd as NativeEnd, RelayKind, RelayState as SavedState};
use ckpt_node::RelayState;
use ckpt_store::Checkpoint;
use protocol::cluster::agent::RelaySide;

use super::InstanceError;
use crate::driver::wiring::read_blob;

/// Most bytes that a relay may have held.
const MOST_HELD: u64 = 16 << 20;

/// In place of a parent that no link of a stand-in has.
const NO_PARENT: i32 = 0;

/// Of the link from an instance's first process to the remote shell that has started it.
pub fn shell_kind(root: i32) -> RelayKind {
    RelayKind::Link { parent: NO_PARENT, child: root }
}

/// What an image says of relays.
pub struct Saved {
    graph: Graph,
    image: Checkpoint,
}

impl Saved {
    /// Of an image kept in that folder; `None`: it can't be read.
    pub fn open(folder: &Path, checkpoint: u64) -> Option<Self> {
        let image = Checkpoint::open(folder, checkpoint).ok()?;
        let graph = image.read_json("graph.json").ok()?;
        Some(Self { graph, image })
    }

    /// What is saved of that end.
    pub fn find(&self, end: &NativeEnd) -> Option<&SavedState> {
        self.graph.relays.iter().find(|saved| saved.end.id == end.id && saved.end.side == end.side)
    }

    /// The link of the first process to the remote shell that has started it.
    pub fn shell_of_root(&self) -> Option<&NativeEnd> {
        // As the image numbers it: it may have another number now.
        let root = self.graph.root;
        let ends = self.graph.relays.iter().map(|saved| &saved.end);
        ends.into_iter().find(|end| end.side == 1 && end.kind == shell_kind(root))
    }

    /// Relays over which output of the job came to its console.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn sinks(&self) -> Result<Vec<(RelaySide, RelayState)>, InstanceError> {
        let ends = self.graph.relays.iter().map(|saved| &saved.end);
        ends.filter(|end| end.kind == RelayKind::Output)
            .map(|end| {
                let side = RelaySide { relay: end.id.clone(), side: end.side };
                Ok((side, self.state(end)?))
            })
            .collect()
    }

    /// What was on its way to that end; nothing, where the image does not know it.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn state(&self, end: &NativeEnd) -> Result<RelayState, InstanceError> {
        let Some(saved) = self.find(end) else {
            return Ok(RelayState::default());
        };
        let undelivered = match saved.undelivered {
            Some(blob) => {
                let reader = self.image.reader()?;
                read_blob(&self.graph, &reader, blob, MOST_HELD)?
            }
            None => Vec::new(),
        };
        Ok(RelayState { undelivered, far_closed: saved.far_closed })
    }
}
