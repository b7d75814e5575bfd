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
mod digest;
mod error;
mod facts;
mod files;
mod harm;
mod own_files;
mod passing;
mod sparing;
mod taking_over;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ckpt_node::Lacking;
use protocol::agent::{CheckpointNumber, CommitRecord, InstanceId};
use protocol::cluster::peer::{ImageFile, PeerMessage};
use protocol::cluster::{InstanceKey, NodeName};
use protocol::task;
use tokio::time::timeout;

use super::link::PeerLink;
use super::peers::Peers;

pub use digest::{digest, must_be, reject};
pub use error::CopyError;
pub use facts::facts;
use files::Thoroughness;
pub use files::check;
pub use files::forget_files;
pub use harm::{Harm, harm};

pub use passing::{Passing, pass_on, pass_through};
pub use taking_over::take_over;

pub use own_files::list as own_files;
pub use own_files::{LIST, as_user, checkpoints, misplaced, place, prune};

/// How long nothing may come before a copy is given up.
const SILENCE: Duration = Duration::from_secs(20);
/// Verifying and fsync may take longer.
const STORING: Duration = Duration::from_secs(300);

/// Sends an image to a partner, until it is durable there.
///
/// # Errors
/// See [`CopyError`].
pub async fn offer(
    peers: &Peers,
    node: &NodeName,
    key: &InstanceKey,
    folder: &Path,
    checkpoint: CheckpointNumber,
) -> Result<(), CopyError> {
    let mut link = peers.dial(node).await?;
    let files = files::list(folder, checkpoint).await?;
    let transfer = checkpoint;
    let offer = PeerMessage::Offer { transfer, key: key.clone(), checkpoint, files: files.clone() };
    carry::send(&link, offer, Vec::new()).await?;
    let wanted = match carry::receive(&mut link, STORING).await? {
        (PeerMessage::Want { paths, .. }, _) => paths,
        (other, _) => return Err(CopyError::unexpected(&other)),
    };
    carry::push(&link, folder, &files, &wanted, transfer).await?;
    match carry::receive(&mut link, STORING).await? {
        (PeerMessage::Stored { .. }, _) => Ok(()),
        (other, _) => Err(CopyError::unexpected(&other)),
    }
}

/// The other side of [`offer`]: takes a copy until it is durable here. What is committed here stays as it is.
///
/// # Errors
/// See [`CopyError`]; the other side has been told.
pub async fn take(
    link: &mut PeerLink,
    folder: PathBuf,
    checkpoint: CheckpointNumber,
    files: Vec<ImageFile>,
    transfer: u64,
) -> Result<(), CopyError> {
    let result = async {
        files::check(&files, checkpoint, false)?;
        let files = sparing::acceptable(&folder, checkpoint, files).await?;
        let lacking = files::lacking(&folder, &files).await?;
        let fresh = paths(&lacking);
        let want = PeerMessage::Want { transfer, paths: fresh.clone() };
        carry::send(link, want, Vec::new()).await?;
        carry::pull(link, &folder, lacking).await?;
        files::verify(&folder, checkpoint, fresh, Thoroughness::WhatCame).await
    }
    .await;
    let answer = match &result {
        Ok(()) => PeerMessage::Stored { transfer },
        Err(reason) => failed(transfer, reason),
    };
    carry::send(link, answer, Vec::new()).await?;
    result
}

fn failed(transfer: u64, reason: &CopyError) -> PeerMessage {
    PeerMessage::TransferFailed { transfer, reason: reason.to_string(), damaged: false }
}

/// A committed image that is wanted here.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Whose.
    pub job: &'a str,
    /// The instance whose image is wanted.
    pub instance: InstanceId,
    /// Of which checkpoint.
    pub checkpoint: CheckpointNumber,
    /// What it must be, by the coordinator's log; empty: not known.
    pub digest: &'a str,
    /// Where it is to lie.
    pub folder: &'a Path,
    /// Processes whose memory may be damaged in it.
    pub without: &'a BTreeSet<i32>,
}

/// Fetches an image from the first of its holders that can give it.
///
/// # Errors
/// Why the last could not, and which copies are damaged.
pub async fn fetch(peers: &Peers, holders: &[NodeName], wanted: Wanted<'_>) -> Result<(), Lacking> {
    let Wanted { job, instance, checkpoint, .. } = wanted;
    let mut last = "nobody holds it".to_owned();
    let mut damaged = Vec::new();
    for holder in holders {
        match fetch_from(peers, holder, wanted).await {
            Ok(None) => return Ok(()),
            Ok(Some(harm)) => {
                last = format!("{holder}: {}", harm.reason);
                damaged.push(harm.at(holder.clone()));
            }
            Err(reason) => last = format!("{holder}: {reason}"),
        }
    }
    let reason = format!("fetch the image of {job}/{} at {checkpoint}: {last}", instance.0);
    Err(Lacking { reason, damaged })
}

/// Fetches an image from one of its holders, whose copy may be damaged.
async fn fetch_from(
    peers: &Peers,
    holder: &NodeName,
    wanted: Wanted<'_>,
) -> Result<Option<Harm>, CopyError> {
    let link = peers.dial(holder).await?;
    match pull_image(link, wanted, false).await? {
        Pulled { harm: Some(_), all: false } => {
            // What was here already may be what is damaged.
            let link = peers.dial(holder).await?;
            pull_image(link, wanted, true).await.map(|pulled| pulled.harm)
        }
        pulled => Ok(pulled.harm),
    }
}

/// What came from another node.
struct Pulled {
    /// What is damaged here now.
    harm: Option<Harm>,
    /// Whether all of it came from there.
    all: bool,
}

async fn pull_image(
    mut link: PeerLink,
    wanted: Wanted<'_>,
    all: bool,
) -> Result<Pulled, CopyError> {
    let Wanted { job, instance, checkpoint, digest, folder, without } = wanted;
    let transfer = checkpoint;
    let fetch = PeerMessage::Fetch { transfer, job: job.to_owned(), instance, checkpoint };
    carry::send(&link, fetch, Vec::new()).await?;
    let files = match carry::receive_any(&mut link, SILENCE).await? {
        (PeerMessage::Listing { files, .. }, _) => files,
        (PeerMessage::TransferFailed { reason, damaged: true, .. }, _) => {
            return Ok(Pulled { harm: Some(Harm::total(reason)), all: true });
        }
        (PeerMessage::TransferFailed { reason, .. }, _) => return Err(CopyError::Told(reason)),
        (other, _) => return Err(CopyError::unexpected(&other)),
    };
    files::check(&files, checkpoint, true)?;
    let mut lacking = files::lacking(folder, &files).await?;
    if all {
        lacking.clone_from(&files);
    }
    let all = lacking.len() == files.len();
    let fresh = paths(&lacking);
    let want = PeerMessage::Want { transfer, paths: fresh.clone() };
    carry::send(&link, want, Vec::new()).await?;
    carry::pull(&mut link, folder, lacking).await?;
    let verified = files::verify(folder, checkpoint, fresh, Thoroughness::Everything).await;
    if let Err(reason) = must_be(folder, checkpoint, digest).await {
        reject(folder, checkpoint).await;
        return Ok(Pulled { harm: Some(Harm::total(reason.to_string())), all });
    }
    let Err(reason) = verified else { return Ok(Pulled { harm: None, all }) };
    match harm(folder, checkpoint).await {
        Some(harm) if harm.spares_others(without) => Ok(Pulled { harm: None, all }),
        Some(harm) => Ok(Pulled { harm: Some(harm), all }),
        None => Err(reason),
    }
}

/// The other side of [`fetch`].
///
/// # Errors
/// See [`CopyError`]; the other side has been told.
pub async fn give(
    link: &mut PeerLink,
    folder: &Path,
    checkpoint: CheckpointNumber,
    transfer: u64,
) -> Result<(), CopyError> {
    let result = async {
        let files = files::list(folder, checkpoint).await?;
        let listing = PeerMessage::Listing { transfer, files: files.clone() };
        carry::send(link, listing, Vec::new()).await?;
        let wanted = match carry::receive(link, STORING).await? {
            (PeerMessage::Want { paths, .. }, _) => paths,
            (other, _) => return Err(CopyError::unexpected(&other)),
        };
        carry::push(link, folder, &files, &wanted, transfer).await
    }
    .await;
    if let Err(reason) = &result {
        let damaged = harm(folder, checkpoint).await.is_some_and(|harm| harm.useless);
        let failed = PeerMessage::TransferFailed { transfer, reason: reason.to_string(), damaged };
        let _ = carry::send(link, failed, vec![]).await;
    }
    result
}

/// Tells a partner that the checkpoint is committed, and waits until the mark is there.
///
/// # Errors
/// See [`CopyError`].
pub async fn commit(
    peers: &Peers,
    node: &NodeName,
    key: &InstanceKey,
    record: &CommitRecord,
) -> Result<(), CopyError> {
    let mut link = peers.dial(node).await?;
    let message = PeerMessage::Commit { key: key.clone(), record: record.clone() };
    carry::send(&link, message, Vec::new()).await?;
    match carry::receive(&mut link, SILENCE).await? {
        (PeerMessage::Stored { .. }, _) => Ok(()),
        (other, _) => Err(CopyError::unexpected(&other)),
    }
}

/// The other side of [`commit`].
///
/// # Errors
/// See [`CopyError`]; the other side has been told.
pub async fn mark(link: &PeerLink, folder: PathBuf, record: CommitRecord) -> Result<(), CopyError> {
    let transfer = record.checkpoint;
    let marked =
        task::blocking(move || Ok(ckpt_store::commit_copy(&folder, record.checkpoint, &record)?));
    let result = timeout(SILENCE, marked).await.unwrap_or(Err(CopyError::SlowDisk));
    let answer = match &result {
        Ok(()) => PeerMessage::Stored { transfer },
        Err(reason) => failed(transfer, reason),
    };
    carry::send(link, answer, Vec::new()).await?;
    result
}

/// Whether an image lies here, as far as can be told without reading all of it: every chunk is checked
/// when it is used.
pub async fn is_here(folder: &Path, checkpoint: CheckpointNumber) -> bool {
    let folder = folder.to_owned();
    let found = task::spawn_blocking(move || {
        ckpt_store::survey(&folder, checkpoint).is_ok()
            && own_files::verify(&folder, checkpoint).is_ok()
    });
    found.await.unwrap_or(false)
}

/// Puts a mark beside an image that lacks it: the coordinator, whose log is the truth, says that it is
/// committed.
///
/// # Errors
/// See [`CopyError`].
pub async fn complete(folder: &Path, checkpoint: CheckpointNumber) -> Result<(), CopyError> {
    let folder = folder.to_owned();
    let none = serde_json::Value::Null;
    task::blocking(move || Ok(ckpt_store::commit_copy(&folder, checkpoint, &none)?)).await
}

fn paths(files: &[ImageFile]) -> Vec<String> {
    files.iter().map(|file| file.path.clone()).collect()
}
