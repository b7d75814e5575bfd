//! The pieces of a copy.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use protocol::cluster::peer::{ImageFile, PeerMessage};
use protocol::task;
use tokio::time::timeout;

use super::error::CopyError;
use super::{SILENCE, own_files};
use crate::driver::link::{Message, PIECE, PeerLink};

/// Sends a message.
pub async fn send(link: &PeerLink, message: PeerMessage, body: Vec<u8>) -> Result<(), CopyError> {
    match timeout(SILENCE, link.to.send((message, body))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(CopyError::Gone),
        Err(_) => Err(CopyError::Stuck),
    }
}

/// The next message; a failure told by the other side is an error.
pub async fn receive(
    link: &mut PeerLink,
    limit: Duration,
) -> Result<Message<PeerMessage>, CopyError> {
    match receive_any(link, limit).await? {
        (PeerMessage::TransferFailed { reason, .. }, _) => Err(CopyError::Told(reason)),
        message => Ok(message),
    }
}

/// The next message, whatever it is.
pub async fn receive_any(
    link: &mut PeerLink,
    limit: Duration,
) -> Result<Message<PeerMessage>, CopyError> {
    match timeout(limit, link.from.recv()).await {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(CopyError::Gone),
        Err(_) => Err(CopyError::Silent(limit)),
    }
}

/// Sends the files that are wanted.
pub async fn push(
    link: &PeerLink,
    folder: &Path,
    files: &[ImageFile],
    wanted: &[String],
    transfer: u64,
) -> Result<(), CopyError> {
    for path in wanted {
        let known = files.iter().find(|file| file.path == *path);
        let length = known.ok_or_else(|| CopyError::NotListed(path.clone()))?.length;
        let file = open(folder.join(path)).await?;
        let mut offset = 0;
        while offset < length {
            let size = (length - offset).min(PIECE as u64) as usize;
            let bytes = read(&file, path, offset, size).await?;
            let message = PeerMessage::Piece { transfer, path: path.clone(), offset };
            send(link, message, bytes).await?;
            offset += size as u64;
        }
    }
    send(link, PeerMessage::Sent { transfer }, Vec::new()).await
}

/// Opens a file that is sent.
pub async fn open(place: PathBuf) -> Result<Arc<File>, CopyError> {
    let opened = move || File::open(&place).map_err(CopyError::file("open", place));
    task::blocking(opened).await.map(Arc::new)
}

/// So many bytes of a file that is sent.
pub async fn read(
    file: &Arc<File>,
    path: &str,
    offset: u64,
    size: usize,
) -> Result<Vec<u8>, CopyError> {
    let (file, path) = (Arc::clone(file), path.to_owned());
    task::blocking(move || {
        let mut bytes = vec![0; size];
        file.read_exact_at(&mut bytes, offset).map_err(CopyError::file("read", path))?;
        Ok(bytes)
    })
    .await
}

/// Receives files into a folder, in which the folders of their paths are, and makes them durable. Each comes whole, in
/// order, without gaps; nothing else comes.
pub async fn pull(
    link: &mut PeerLink,
    folder: &Path,
    lacking: &[ImageFile],
) -> Result<(), CopyError> {
    let mut expected: BTreeMap<String, u64> =
        lacking.iter().map(|file| (file.path.clone(), file.length)).collect();
    let mut current: Option<(String, u64, Arc<File>)> = None;
    // Empty files come without a piece.
    for file in lacking.iter().filter(|file| file.length == 0) {
        create(folder, &file.path).await?;
        expected.remove(&file.path);
    }
    loop {
        let (message, body) = receive(link, SILENCE).await?;
        let (path, offset) = match message {
            PeerMessage::Piece { path, offset, .. } => (path, offset),
            PeerMessage::Sent { .. } => break,
            other => return Err(CopyError::unexpected(&other)),
        };
        // Before anything is made of a name that somebody else has chosen.
        let Some(length) = expected.get(&path).copied() else {
            return Err(CopyError::Unwanted(path));
        };
        let (at, file) = match current.take() {
            Some((known, at, file)) if known == path => (at, file),
            _ => (0, create(folder, &path).await?),
        };
        let end = offset + body.len() as u64;
        if offset != at || end > length || body.is_empty() {
            return Err(CopyError::OutOfPlace(path));
        }
        let (written, of) = (file.clone(), path.clone());
        task::blocking(move || {
            written.write_all_at(&body, offset).map_err(CopyError::file("write", of))
        })
        .await?;
        if end == length {
            expected.remove(&path);
        } else {
            current = Some((path, end, file));
        }
    }
    if let Some((path, _)) = expected.pop_first() {
        return Err(CopyError::DidNotCome(path));
    }
    make_durable(folder, lacking.to_vec()).await
}

async fn create(folder: &Path, path: &str) -> Result<Arc<File>, CopyError> {
    let place = folder.join(path);
    let made = move || {
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(&place).map_err(CopyError::file("create", place))
    };
    task::blocking(made).await.map(Arc::new)
}

async fn make_durable(folder: &Path, files: Vec<ImageFile>) -> Result<(), CopyError> {
    let folder = folder.to_owned();
    task::blocking(move || {
        let failed = CopyError::files("make a copy durable");
        for file in &files {
            let opened = File::open(folder.join(&file.path)).map_err(&failed)?;
            if opened.metadata().map_err(&failed)?.len() != file.length {
                return Err(CopyError::Length(file.path.clone()));
            }
            if own_files::is_content(&file.path) {
                own_files::must_be_content(&opened, &file.path)?;
            }
            opened.sync_all().map_err(&failed)?;
        }
        Ok(())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::channel;

    /// Pulls one file while the other side sends a piece of that path.
    async fn pulled(folder: &Path, path: &str) -> Result<(), CopyError> {
        let (to, _sent) = channel(8);
        let (sender, from) = channel(8);
        let mut link = PeerLink { to, from };
        let piece = PeerMessage::Piece { transfer: 1, path: path.to_owned(), offset: 0 };
        sender.send((piece, b"abc".to_vec())).await.unwrap();
        sender.send((PeerMessage::Sent { transfer: 1 }, Vec::new())).await.unwrap();
        pull(&mut link, folder, &[ImageFile { path: "packs/1.tar".into(), length: 3 }]).await
    }

    #[tokio::test]
    async fn nothing_is_made_of_a_name_that_was_not_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("image");
        for part in ["packs", "checkpoints"] {
            std::fs::create_dir_all(folder.join(part)).unwrap();
        }
        let refused = pulled(&folder, "../outside").await;
        assert!(matches!(refused, Err(CopyError::Unwanted(path)) if path == "../outside"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        pulled(&folder, "packs/1.tar").await.unwrap();
        assert_eq!(std::fs::read(folder.join("packs/1.tar")).unwrap(), b"abc");
    }
}
