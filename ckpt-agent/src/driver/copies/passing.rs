//! Images on their way to a command of this machine that takes them elsewhere.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::agent::CheckpointNumber;
use protocol::cluster::NodeName;
use protocol::cluster::client::Answer;
use protocol::cluster::look::ImageName;
use protocol::cluster::peer::{ImageFile, PeerMessage};
use protocol::transport::AnswerQueue;

use super::error::CopyError;
use super::{SILENCE, STORING, carry, files, paths};
use crate::driver::link::PIECE;
use crate::driver::peers::Peers;

/// Bytes that may wait for a command before more are read for it.
const MOST_WAITING: usize = 8 * PIECE;

/// The way to such a command.
pub struct Passing {
    /// Where its answers go.
    pub answers: AnswerQueue,
    /// Whether it has gone.
    pub gone: Arc<AtomicBool>,
}

impl Passing {
    async fn say(&self, answer: &Answer) -> Result<(), CopyError> {
        let waits = self.answers.drained_to(MOST_WAITING).await;
        let gone = !waits || self.gone.load(Ordering::Relaxed) || !self.answers.answer(answer);
        if gone { Err(CopyError::CommandGone) } else { Ok(()) }
    }

    async fn piece(&self, path: &str, offset: u64, bytes: &[u8]) -> Result<(), CopyError> {
        let bytes = STANDARD.encode(bytes);
        self.say(&Answer::Piece { path: path.to_owned(), offset, bytes }).await
    }
}

/// Passes on an image that lies here.
///
/// # Errors
/// See [`CopyError`].
pub async fn pass_on(
    folder: &Path,
    checkpoint: CheckpointNumber,
    to: &Passing,
) -> Result<(), CopyError> {
    let all = files::list(folder, checkpoint).await?;
    to.say(&Answer::Files { files: all.clone() }).await?;
    for ImageFile { path, length } in all {
        let file = carry::open(folder.join(&path)).await?;
        let mut offset = 0;
        while offset < length {
            let size = (length - offset).min(PIECE as u64) as usize;
            let bytes = carry::read(&file, &path, offset, size).await?;
            to.piece(&path, offset, &bytes).await?;
            offset += size as u64;
        }
    }
    Ok(())
}

/// Passes on an image that another machine holds.
///
/// # Errors
/// See [`CopyError`].
pub async fn pass_through(
    peers: &Peers,
    holder: &NodeName,
    job: &str,
    image: ImageName,
    to: &Passing,
) -> Result<(), CopyError> {
    let ImageName { instance, checkpoint } = image;
    let grant = Some(peers.grants().to_fetch(job, (instance, checkpoint), holder)?);
    let mut link = peers.dial(holder).await?;
    let (transfer, job) = (checkpoint, job.to_owned());
    let fetch = PeerMessage::Fetch { transfer, job, instance, checkpoint, grant };
    carry::send(&link, fetch, Vec::new()).await?;
    let all = match carry::receive(&mut link, STORING).await? {
        (PeerMessage::Listing { files, .. }, _) => files,
        (other, _) => return Err(CopyError::unexpected(&other)),
    };
    files::check(&all, checkpoint, true)?;
    to.say(&Answer::Files { files: all.clone() }).await?;
    let want = PeerMessage::Want { transfer, paths: paths(&all) };
    carry::send(&link, want, Vec::new()).await?;
    let known: BTreeSet<&str> = all.iter().map(|file| file.path.as_str()).collect();
    loop {
        match carry::receive(&mut link, SILENCE).await? {
            (PeerMessage::Piece { path, offset, .. }, body) => {
                if !known.contains(path.as_str()) {
                    return Err(CopyError::Unwanted(path));
                }
                to.piece(&path, offset, &body).await?;
            }
            (PeerMessage::Sent { .. }, _) => return Ok(()),
            (other, _) => return Err(CopyError::unexpected(&other)),
        }
    }
}
