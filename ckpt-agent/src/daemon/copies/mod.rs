//! Copies of images on other nodes. A copy goes over a connection of its own, in one of two ways:
//!
//! ```text
//! node with the image        partner       node that needs it        holder
//!   Offer (all files)  ------>               Fetch  ------------------>
//!   <------  Want (lacking ones)             <------  Listing (all files)
//!   Piece, Piece, ... , Sent  ------>        Want (lacking ones)  ---->
//!   <------  Stored                          <------  Piece, ..., Sent
//! ```

mod carry;
mod facts;
mod files;
mod own_files;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::agent::{AgentId, CheckpointNumber, CommitRecord};
use protocol::cluster::peer::{ImageFile, PeerMessage};
use protocol::cluster::{InstanceKey, NodeName};
use tokio::time::timeout;

use super::link::PeerLink;
use super::peers::Peers;
use crate::store;

pub use carry::unexpected;
pub use facts::facts;
pub use files::forget_files;
pub use own_files::{as_user, checkpoints, place, prune};

/// How long nothing may come before a copy is given up.
const SILENCE: Duration = Duration::from_secs(20);
/// Verifying and fsync may take longer.
const STORING: Duration = Duration::from_secs(300);

/// Sends an image to a partner, until it is durable there.
///
/// # Errors
/// One line.
pub async fn offer(
    peers: &Peers,
    node: &NodeName,
    key: &InstanceKey,
    folder: &Path,
    checkpoint: CheckpointNumber,
) -> Result<(), String> {
    let mut link = peers.dial(node).await?;
    let files = files::list(folder, checkpoint).await?;
    let transfer = checkpoint;
    let offer = PeerMessage::Offer { transfer, key: key.clone(), checkpoint, files: files.clone() };
    carry::send(&link, offer, Vec::new()).await?;
    let wanted = match carry::receive(&mut link, STORING).await? {
        (PeerMessage::Want { paths, .. }, _) => paths,
        (other, _) => return Err(carry::unexpected(&other)),
    };
    carry::push(&link, folder, &files, &wanted, transfer).await?;
    match carry::receive(&mut link, STORING).await? {
        (PeerMessage::Stored { .. }, _) => Ok(()),
        (other, _) => Err(carry::unexpected(&other)),
    }
}

/// The other side of [`offer`]: takes a copy until it is durable here.
///
/// # Errors
/// One line; the other side has been told.
pub async fn take(
    link: &mut PeerLink,
    folder: PathBuf,
    checkpoint: CheckpointNumber,
    files: Vec<ImageFile>,
    transfer: u64,
) -> Result<(), String> {
    let result = async {
        files::check(&files, checkpoint, false)?;
        let lacking = files::lacking(&folder, &files).await?;
        let fresh = paths(&lacking);
        let want = PeerMessage::Want { transfer, paths: fresh.clone() };
        carry::send(link, want, Vec::new()).await?;
        carry::pull(link, &folder, lacking).await?;
        files::verify(&folder, checkpoint, fresh).await
    }
    .await;
    let answer = match &result {
        Ok(()) => PeerMessage::Stored { transfer },
        Err(reason) => PeerMessage::TransferFailed { transfer, reason: reason.clone() },
    };
    carry::send(link, answer, Vec::new()).await?;
    result
}

/// Fetches a committed image from the first of its holders that can give it.
///
/// # Errors
/// One line, why the last could not.
pub async fn fetch(
    peers: &Peers,
    holders: &[NodeName],
    job: &str,
    instance: AgentId,
    folder: &Path,
    checkpoint: CheckpointNumber,
) -> Result<(), String> {
    let mut last = "nobody holds it".to_owned();
    for holder in holders {
        match fetch_from(peers, holder, job, instance, folder, checkpoint).await {
            Ok(()) => return Ok(()),
            Err(reason) => last = format!("{holder}: {reason}"),
        }
    }
    Err(format!("fetch the image of {job}/{} at {checkpoint}: {last}", instance.0))
}

async fn fetch_from(
    peers: &Peers,
    holder: &NodeName,
    job: &str,
    instance: AgentId,
    folder: &Path,
    checkpoint: CheckpointNumber,
) -> Result<(), String> {
    let mut link = peers.dial(holder).await?;
    let transfer = checkpoint;
    let fetch = PeerMessage::Fetch { transfer, job: job.to_owned(), instance, checkpoint };
    carry::send(&link, fetch, Vec::new()).await?;
    let files = match carry::receive(&mut link, SILENCE).await? {
        (PeerMessage::Listing { files, .. }, _) => files,
        (other, _) => return Err(carry::unexpected(&other)),
    };
    files::check(&files, checkpoint, true)?;
    let lacking = files::lacking(folder, &files).await?;
    let fresh = paths(&lacking);
    let want = PeerMessage::Want { transfer, paths: fresh.clone() };
    carry::send(&link, want, Vec::new()).await?;
    carry::pull(&mut link, folder, lacking).await?;
    files::verify(folder, checkpoint, fresh).await
}

/// The other side of [`fetch`].
///
/// # Errors
/// One line; the other side has been told.
pub async fn give(
    link: &mut PeerLink,
    folder: &Path,
    checkpoint: CheckpointNumber,
    transfer: u64,
) -> Result<(), String> {
    let result = async {
        let files = files::list(folder, checkpoint).await?;
        let listing = PeerMessage::Listing { transfer, files: files.clone() };
        carry::send(link, listing, Vec::new()).await?;
        let wanted = match carry::receive(link, STORING).await? {
            (PeerMessage::Want { paths, .. }, _) => paths,
            (other, _) => return Err(carry::unexpected(&other)),
        };
        carry::push(link, folder, &files, &wanted, transfer).await
    }
    .await;
    if let Err(reason) = &result {
        let reason = reason.clone();
        let _ = carry::send(link, PeerMessage::TransferFailed { transfer, reason }, vec![]).await;
    }
    result
}

/// Tells a partner that the checkpoint is committed, and waits until the mark is there.
///
/// # Errors
/// One line.
pub async fn commit(
    peers: &Peers,
    node: &NodeName,
    key: &InstanceKey,
    record: &CommitRecord,
) -> Result<(), String> {
    let mut link = peers.dial(node).await?;
    let message = PeerMessage::Commit { key: key.clone(), record: record.clone() };
    carry::send(&link, message, Vec::new()).await?;
    match carry::receive(&mut link, SILENCE).await? {
        (PeerMessage::Stored { .. }, _) => Ok(()),
        (other, _) => Err(carry::unexpected(&other)),
    }
}

/// The other side of [`commit`].
///
/// # Errors
/// One line; the other side has been told.
pub async fn mark(link: &PeerLink, folder: PathBuf, record: CommitRecord) -> Result<(), String> {
    let transfer = record.checkpoint;
    let marked = tokio::task::spawn_blocking(move || {
        store::commit_copy(&folder, record.checkpoint, &record).map_err(|error| error.to_string())
    });
    let result = match timeout(SILENCE, marked).await {
        Ok(Ok(result)) => result,
        _ => Err("the disk is too slow".to_owned()),
    };
    let answer = match &result {
        Ok(()) => PeerMessage::Stored { transfer },
        Err(reason) => PeerMessage::TransferFailed { transfer, reason: reason.clone() },
    };
    carry::send(link, answer, Vec::new()).await?;
    result
}

/// Whether an image lies here, as far as can be told without reading all of it: every chunk is checked
/// when it is used.
pub async fn is_here(folder: &Path, checkpoint: CheckpointNumber) -> bool {
    let folder = folder.to_owned();
    let found = tokio::task::spawn_blocking(move || {
        store::survey(&folder, checkpoint).is_ok()
            && own_files::verify(&folder, checkpoint, std::iter::empty()).is_ok()
    });
    found.await.unwrap_or(false)
}

/// Puts a mark beside an image that lacks it: the coordinator, whose log is the truth, says that it is
/// committed.
///
/// # Errors
/// One line.
pub async fn complete(folder: &Path, checkpoint: CheckpointNumber) -> Result<(), String> {
    let folder = folder.to_owned();
    let none = serde_json::Value::Null;
    let done = tokio::task::spawn_blocking(move || store::commit_copy(&folder, checkpoint, &none));
    match done.await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

fn paths(files: &[ImageFile]) -> Vec<String> {
    files.iter().map(|file| file.path.clone()).collect()
}
