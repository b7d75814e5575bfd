//! Copies of images on other nodes. A copy goes over a connection of its own, in one of two ways:
//!
//! ```text
//! node with the image        partner       node that needs it        holder
//!   Offer (all files)  ------>               Fetch  ------------------>
//!   <------  Want (lacking ones)             <------  Listing (all files)
//!   Piece, Piece, ... , Sent  ------>        Want (lacking ones)  ---->
//!   <------  Stored                          <------  Piece, ..., Sent
//! ```

mod arrival;
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
use protocol::cluster::grant::Grant;
use protocol::cluster::peer::{ImageFile, PeerMessage};
use protocol::cluster::{InstanceKey, NodeName};
use protocol::task;
use protocol::transport::Precedence;
use tokio::time::timeout;

use self::arrival::{Arrival, Packs};
use self::harm::harm_of;
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
/// How long it may take until a partner says what it lacks, where all else goes first.
const WANTING: Duration = Duration::from_secs(30);

/// Sends an image to a partner, until it is durable there. What jobs send goes first; if they leave no room at all, the copy
/// begins anew and takes its share.
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
    match offer_with(peers, node, key, (folder, checkpoint), Precedence::Behind).await {
        Err(error) if error.may_be_starved() => {
            tracing::debug!(%error, %node, "a copy begins anew, equal to all else");
            offer_with(peers, node, key, (folder, checkpoint), Precedence::Equal).await
        }
        done => done,
    }
}

async fn offer_with(
    peers: &Peers,
    node: &NodeName,
    key: &InstanceKey,
    (folder, checkpoint): (&Path, CheckpointNumber),
    precedence: Precedence,
) -> Result<(), CopyError> {
    let grant = Some(peers.grants().to_offer(key, node)?);
    let mut link = peers.dial_with(node, precedence).await?;
    let files = files::list(folder, checkpoint).await?;
    let transfer = checkpoint;
    let (key, all) = (key.clone(), files.clone());
    let offer = PeerMessage::Offer { transfer, key, checkpoint, files: all, grant };
    carry::send(&link, offer, Vec::new()).await?;
    let limit = if precedence == Precedence::Behind { WANTING } else { STORING };
    let wanted = match carry::receive(&mut link, limit).await? {
        (PeerMessage::Want { paths, .. }, _) => paths,
        (other, _) => return Err(CopyError::unexpected(&other)),
    };
    carry::push(&link, folder, &files, &wanted, transfer).await?;
    match carry::receive(&mut link, STORING).await? {
        (PeerMessage::Stored { .. }, _) => Ok(()),
        (other, _) => Err(CopyError::unexpected(&other)),
    }
}

/// What another node offers.
#[derive(Debug)]
pub struct Offered {
    /// The checkpoint.
    pub checkpoint: CheckpointNumber,
    /// All files of it.
    pub files: Vec<ImageFile>,
    /// The other side's number for the copy.
    pub transfer: u64,
}

/// The other side of [`offer`]: takes a copy until it is durable in an instance's folder. What is committed there stays as
/// it is. `arriving`: where it comes together.
///
/// # Errors
/// See [`CopyError`]; the other side has been told.
pub async fn take(
    link: &mut PeerLink,
    arriving: &Path,
    folder: &Path,
    offered: Offered,
) -> Result<(), CopyError> {
    let transfer = offered.transfer;
    let result = take_files(link, arriving, folder, offered).await;
    let answer = match &result {
        Ok(()) => PeerMessage::Stored { transfer },
        Err(reason) => failed(transfer, reason),
    };
    carry::send(link, answer, Vec::new()).await?;
    result
}

async fn take_files(
    link: &mut PeerLink,
    arriving: &Path,
    folder: &Path,
    offered: Offered,
) -> Result<(), CopyError> {
    let Offered { checkpoint, files, transfer } = offered;
    files::check(&files, checkpoint, false)?;
    let files = sparing::acceptable(folder, checkpoint, files).await?;
    let lacking = files::lacking(folder, &files).await?;
    let arrival = Arrival::new(arriving, folder, checkpoint, files::size(&lacking)).await?;
    let want = PeerMessage::Want { transfer, paths: paths(&lacking) };
    carry::send(link, want, Vec::new()).await?;
    carry::pull(link, arrival.come(), &lacking).await?;
    if !files.iter().any(|file| files::is_index(&file.path, checkpoint)) {
        arrival.with_own_index().await?;
    }
    files::verify(&arrival, &lacking, Thoroughness::WhatCame).await?;
    arrival.settle(lacking, Packs::Keep).await
}

/// Tells the other side why there is no copy.
///
/// # Errors
/// See [`CopyError`].
pub async fn refuse(link: &PeerLink, reason: String) -> Result<(), CopyError> {
    let failed = PeerMessage::TransferFailed { transfer: 0, reason, damaged: false };
    carry::send(link, failed, Vec::new()).await
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
    /// Where it comes together.
    pub arriving: &'a Path,
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
    let image = (wanted.instance, wanted.checkpoint);
    let grant = peers.grants().to_fetch(wanted.job, image, holder)?;
    let link = peers.dial(holder).await?;
    match pull_image(link, wanted, Some(grant.clone()), false).await? {
        Pulled { harm: Some(_), all: false } => {
            // What was here already may be what is damaged.
            let link = peers.dial(holder).await?;
            pull_image(link, wanted, Some(grant), true).await.map(|pulled| pulled.harm)
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
    grant: Option<Box<Grant>>,
    all: bool,
) -> Result<Pulled, CopyError> {
    let Wanted { job, instance, checkpoint, digest, folder, arriving, without } = wanted;
    let (transfer, job) = (checkpoint, job.to_owned());
    let fetch = PeerMessage::Fetch { transfer, job, instance, checkpoint, grant };
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
    let arrival = Arrival::new(arriving, folder, checkpoint, files::size(&lacking)).await?;
    let want = PeerMessage::Want { transfer, paths: paths(&lacking) };
    carry::send(&link, want, Vec::new()).await?;
    carry::pull(&mut link, arrival.come(), &lacking).await?;
    if let Err(reason) = must_be(arrival.come(), checkpoint, digest).await {
        return Ok(Pulled { harm: Some(Harm::total(reason.to_string())), all });
    }
    if let Err(reason) = files::verify(&arrival, &lacking, Thoroughness::Everything).await {
        match harm_of(&arrival).await {
            Some(harm) if harm.spares_others(without) => {}
            Some(harm) => return Ok(Pulled { harm: Some(harm), all }),
            None => return Err(reason),
        }
    }
    let packs = if all { Packs::Replace } else { Packs::Keep };
    arrival.settle(lacking, packs).await?;
    Ok(Pulled { harm: None, all })
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
    let grant = Some(peers.grants().to_offer(key, node)?);
    let mut link = peers.dial(node).await?;
    let message = PeerMessage::Commit { key: key.clone(), record: record.clone(), grant };
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
            && own_files::verify(&folder, &folder, checkpoint).is_ok()
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
