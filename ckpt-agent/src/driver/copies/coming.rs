//! Takes an image that comes from a node without room for it, while that writes it: nobody else has it, and nobody knows
//! yet which files it has.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use protocol::agent::CheckpointNumber;
use protocol::cluster::peer::{ImageFile, PeerMessage};
use protocol::task;

use super::arrival::{Arrival, Packs};
use super::error::CopyError;
use super::files::{self, Thoroughness};
use super::{STORING, carry, failed, own_files, paths, sparing};
use crate::driver::link::PeerLink;

/// Bytes that stay free here, whatever comes.
const RESERVE: u64 = 256 << 20;

/// Takes the image of a checkpoint until it is durable in an instance's folder; see [`super::away`]. `arriving`: where it
/// comes together.
///
/// # Errors
/// See [`CopyError`]; the other side has been told.
pub async fn take_stream(
    link: &mut PeerLink,
    arriving: &Path,
    folder: &Path,
    checkpoint: CheckpointNumber,
    transfer: u64,
) -> Result<(), CopyError> {
    let result = take(link, arriving, folder, checkpoint, transfer).await;
    let answer = match &result {
        Ok(()) => PeerMessage::Stored { transfer },
        Err(reason) => failed(transfer, reason),
    };
    carry::send(link, answer, Vec::new()).await?;
    result
}

async fn take(
    link: &mut PeerLink,
    arriving: &Path,
    folder: &Path,
    checkpoint: CheckpointNumber,
    transfer: u64,
) -> Result<(), CopyError> {
    let arrival = Arrival::new(arriving, folder, checkpoint, RESERVE).await?;
    let come = arrival.come().to_owned();
    let free = task::blocking(move || {
        ckpt_store::archive::free(&come).map_err(CopyError::files("make room for a copy"))
    });
    let room = free.await?.saturating_sub(RESERVE);
    let mut coming = Coming { arrival: &arrival, room, came: BTreeMap::new(), current: None };
    carry::send(link, PeerMessage::Want { transfer, paths: Vec::new() }, Vec::new()).await?;
    loop {
        match carry::receive(link, STORING).await? {
            (PeerMessage::Piece { path, offset, .. }, body) => {
                coming.piece(path, offset, body).await?;
            }
            (PeerMessage::Listing { files, .. }, _) => {
                let paths = coming.lacking(files).await?;
                carry::send(link, PeerMessage::Want { transfer, paths }, Vec::new()).await?;
            }
            (PeerMessage::Sent { .. }, _) => break,
            (other, _) => return Err(CopyError::unexpected(&other)),
        }
    }
    let came = coming.came.into_iter().map(|(path, length)| ImageFile { path, length }).collect();
    let came = sparing::acceptable(folder, checkpoint, came).await?;
    carry::make_durable(arrival.come(), came.clone()).await?;
    files::verify(&arrival, &came, Thoroughness::WhatCame).await?;
    arrival.settle(came, Packs::Keep).await
}

/// What has come so far.
struct Coming<'a> {
    arrival: &'a Arrival,
    /// Bytes that may come yet.
    room: u64,
    /// Files, with their lengths.
    came: BTreeMap<String, u64>,
    /// The one that comes.
    current: Option<(String, Arc<File>)>,
}

impl Coming<'_> {
    async fn piece(&mut self, path: String, offset: u64, body: Vec<u8>) -> Result<(), CopyError> {
        let length = body.len() as u64;
        let file = match &self.current {
            Some((current, file)) if *current == path => file.clone(),
            _ => self.begin(&path).await?,
        };
        let at = self.came.get(&path).copied().unwrap_or_default();
        if offset != at || body.is_empty() {
            return Err(CopyError::OutOfPlace(path));
        }
        let left = self.room.checked_sub(length);
        self.room = left.ok_or(CopyError::NoRoom { needed: length, room: self.room })?;
        carry::write(&file, &path, offset, body).await?;
        self.came.insert(path, at.saturating_add(length));
        Ok(())
    }

    /// A file whose name somebody else has chosen. Each comes once, in one go.
    async fn begin(&mut self, path: &str) -> Result<Arc<File>, CopyError> {
        if self.came.contains_key(path) {
            return Err(CopyError::OutOfPlace(path.to_owned()));
        }
        let named = [ImageFile { path: path.to_owned(), length: 0 }];
        files::check(&named, self.arrival.checkpoint(), false)?;
        if self.came.len() >= files::MOST_FILES {
            return Err(CopyError::TooManyFiles);
        }
        let file = carry::create(self.arrival.come(), path).await?;
        self.came.insert(path.to_owned(), 0);
        self.current = Some((path.to_owned(), file.clone()));
        Ok(file)
    }

    /// Which files of the job are not here. An empty one comes without a piece.
    async fn lacking(&mut self, listed: Vec<ImageFile>) -> Result<Vec<String>, CopyError> {
        let strange = listed.iter().find(|file| !own_files::is_content(&file.path));
        if let Some(file) = strange {
            return Err(CopyError::Unwanted(file.path.clone()));
        }
        let lacking = files::lacking(self.arrival.folder(), &listed).await?;
        for file in lacking.iter().filter(|file| file.length == 0) {
            self.begin(&file.path).await?;
        }
        Ok(paths(&lacking))
    }
}
