//! An image that goes to another node while it is written, since there is no room for it here. Nothing of it touches the
//! disk: its pack passes through, and its index, which is to be read once more, stays in memory until all is there.
//!
//! ```text
//! node without room                     partner
//!   Stream                        ------>
//!   <------  Want (nothing: go on)
//!   Piece, Piece, ... (pack, index) ---->
//!   Listing (a file of the job)   ------>
//!   <------  Want (that, or nothing)
//!   Piece, ...                    ------>
//!   Piece (the list), Sent        ------>
//!   <------  Stored
//! ```

mod disk;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ckpt_store::{Damage, HeldIndex};
use protocol::agent::CheckpointNumber;
use protocol::cluster::image::ImageFacts;
use protocol::cluster::peer::{ImageFile, PeerMessage};
use protocol::cluster::{InstanceKey, NodeName};
use protocol::transport::Precedence;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;

use super::digest::digest_of;
use super::error::CopyError;
use super::facts::{Index, facts_with};
use super::own_files::{Content, LIST, stash_at};
use super::{STORING, WANTING, carry};
use crate::driver::link::{PIECE, PeerLink};
use crate::driver::peers::Peers;
use crate::driver::user::User;

pub use disk::AwayDisk;

/// The most bytes of index files that are held in memory.
const MOST_INDEX: usize = 64 << 20;

/// See the module.
pub struct Away {
    way: Way,
    /// Runs what the store's threads wait for.
    runtime: Handle,
    /// The instance's folder, in which nothing is made.
    folder: PathBuf,
    checkpoint: CheckpointNumber,
    state: Mutex<State>,
}

/// The way to whoever takes the image.
pub enum Way {
    /// The first of these that does.
    Partners {
        /// Connections to them.
        peers: Peers,
        /// The instance.
        key: InstanceKey,
        /// They, in order of preference.
        partners: Vec<NodeName>,
    },
    /// A link that is there already.
    #[cfg(test)]
    Made(Mutex<Option<PeerLink>>),
}

#[derive(Default)]
struct State {
    link: Option<(NodeName, PeerLink)>,
    /// Files of the image that were begun, by their paths below the folder.
    begun: BTreeSet<String>,
    index: HeldIndex,
}

impl Away {
    /// Nothing goes yet. To be called within the run time.
    #[must_use]
    pub fn new(way: Way, folder: &Path, checkpoint: CheckpointNumber) -> Self {
        let (runtime, folder) = (Handle::current(), folder.to_owned());
        Self { way, runtime, folder, checkpoint, state: Mutex::default() }
    }

    /// Of which checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> CheckpointNumber {
        self.checkpoint
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is complete before the lock is given back.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what follows in a file of the image after so many bytes. Blocks; called by threads of the store, one at a time.
    fn send(&self, path: &str, offset: u64, parts: &[&[u8]]) -> Result<(), CopyError> {
        let mut state = self.state();
        if state.link.is_none() {
            state.link = Some(self.runtime.block_on(self.call())?);
        }
        let (_, link) = state.link.as_ref().ok_or(CopyError::Gone)?;
        self.pieces(link, path, offset, parts)
    }

    /// Sends pieces, the parts one after the other, none longer than a piece may be.
    fn pieces(
        &self,
        link: &PeerLink,
        path: &str,
        mut offset: u64,
        parts: &[&[u8]],
    ) -> Result<(), CopyError> {
        let mut piece = Vec::with_capacity(PIECE);
        let mut flush = |piece: Vec<u8>| {
            let (transfer, path) = (self.checkpoint, path.to_owned());
            let length = piece.len() as u64;
            let message = PeerMessage::Piece { transfer, path, offset };
            offset += length;
            self.runtime.block_on(carry::send(link, message, piece))
        };
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(PIECE - piece.len()));
                piece.extend_from_slice(now);
                rest = later;
                if piece.len() == PIECE {
                    flush(std::mem::replace(&mut piece, Vec::with_capacity(PIECE)))?;
                }
            }
        }
        if piece.is_empty() { Ok(()) } else { flush(piece) }
    }

    /// A link to the first who takes the image.
    async fn call(&self) -> Result<(NodeName, PeerLink), CopyError> {
        let (peers, key, partners) = match &self.way {
            Way::Partners { peers, key, partners } => (peers, key, partners),
            #[cfg(test)]
            Way::Made(link) => {
                let mut link = link.lock().unwrap().take().ok_or(CopyError::Gone)?;
                wanted(&mut link, WANTING).await?;
                return Ok(("node2".parse().unwrap(), link));
            }
        };
        let mut reasons = Vec::new();
        for node in partners {
            match self.call_one(peers, key, node).await {
                Ok(link) => return Ok((node.clone(), link)),
                Err(reason) => reasons.push(format!("{node}: {reason}")),
            }
        }
        Err(CopyError::NobodyTakes(reasons.join("; ")))
    }

    async fn call_one(
        &self,
        peers: &Peers,
        key: &InstanceKey,
        node: &NodeName,
    ) -> Result<PeerLink, CopyError> {
        let grant = Some(peers.grants().to_offer(key, node)?);
        let mut link = peers.dial_with(node, Precedence::Equal).await?;
        let (transfer, checkpoint) = (self.checkpoint, self.checkpoint);
        let stream = PeerMessage::Stream { transfer, key: key.clone(), checkpoint, grant };
        carry::send(&link, stream, Vec::new()).await?;
        wanted(&mut link, WANTING).await?;
        Ok(link)
    }

    /// Sends what else belongs to the image, when all of it was written, and waits until it is durable there: who has it, and
    /// its facts. Blocks; to be called on a thread of its own. As [`super::facts()`] otherwise.
    ///
    /// # Errors
    /// See [`CopyError`].
    pub fn finish(
        &self,
        user: Option<&User>,
        callers: bool,
    ) -> Result<(NodeName, ImageFacts), CopyError> {
        let (index, link) = {
            let mut state = self.state();
            (std::mem::take(&mut state.index), state.link.take())
        };
        let (node, mut link) = link.ok_or(CopyError::Gone)?;
        let held = Held { index: &index, folder: &self.folder, checkpoint: self.checkpoint };
        let facts = facts_with(&held, callers, |named| {
            let send = &mut |content: Content<'_>| self.send_content(&mut link, &content);
            let (left, list) = stash_at(&self.folder, self.checkpoint, named, user, send)?;
            let path = format!("checkpoints/{}/{LIST}", self.checkpoint);
            self.pieces(&link, &path, 0, &[&list])?;
            Ok((left, digest_of(self.checkpoint, index.digest(), &list)))
        })?;
        self.runtime.block_on(async {
            let sent = PeerMessage::Sent { transfer: self.checkpoint };
            carry::send(&link, sent, Vec::new()).await?;
            match carry::receive(&mut link, STORING).await? {
                (PeerMessage::Stored { .. }, _) => Ok(()),
                (other, _) => Err(CopyError::unexpected(&other)),
            }
        })?;
        Ok((node, facts))
    }

    /// A file of the job, where it is not there already.
    fn send_content(&self, link: &mut PeerLink, content: &Content<'_>) -> Result<(), CopyError> {
        let Content { path, length, file } = content;
        let files = vec![ImageFile { path: path.clone(), length: *length }];
        let listing = PeerMessage::Listing { transfer: self.checkpoint, files };
        let lacking = self.runtime.block_on(async {
            carry::send(link, listing, Vec::new()).await?;
            wanted(link, STORING).await
        })?;
        if lacking.is_empty() {
            return Ok(());
        }
        let mut bytes = vec![0; PIECE];
        let mut offset = 0;
        while offset < *length {
            let size = (*length - offset).min(PIECE as u64) as usize;
            let read = file.read_exact_at(&mut bytes[..size], offset);
            read.map_err(CopyError::file("read", path))?;
            self.pieces(link, path, offset, &[&bytes[..size]])?;
            offset += size as u64;
        }
        Ok(())
    }
}

/// What the other side lacks.
async fn wanted(link: &mut PeerLink, limit: Duration) -> Result<Vec<String>, CopyError> {
    match carry::receive(link, limit).await? {
        (PeerMessage::Want { paths, .. }, _) => Ok(paths),
        (other, _) => Err(CopyError::unexpected(&other)),
    }
}

/// The index of an image that is elsewhere.
struct Held<'a> {
    index: &'a HeldIndex,
    /// Where the job's key is.
    folder: &'a Path,
    checkpoint: CheckpointNumber,
}

impl Index for Held<'_> {
    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, Damage> {
        self.index.read(self.folder, self.checkpoint, name)
    }
}
