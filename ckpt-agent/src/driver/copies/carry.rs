//! The pieces of a copy.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use protocol::cluster::peer::{ImageFile, PeerMessage};
use protocol::task;
use tokio::time::timeout;

use super::{SILENCE, own_files};
use crate::driver::link::{Message, PIECE, PeerLink};

/// What a file is called until all of it is there.
const DRAFT: &str = ".part";

/// Sends a message.
pub async fn send(link: &PeerLink, message: PeerMessage, body: Vec<u8>) -> Result<(), String> {
    match timeout(SILENCE, link.to.send((message, body))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err("the connection is gone".to_owned()),
        Err(_) => Err("the connection does not move".to_owned()),
    }
}

/// The next message; a failure told by the other side is an error.
pub async fn receive(link: &mut PeerLink, limit: Duration) -> Result<Message<PeerMessage>, String> {
    match receive_any(link, limit).await? {
        (PeerMessage::TransferFailed { reason, .. }, _) => Err(reason),
        message => Ok(message),
    }
}

/// The next message, whatever it is.
pub async fn receive_any(
    link: &mut PeerLink,
    limit: Duration,
) -> Result<Message<PeerMessage>, String> {
    match timeout(limit, link.from.recv()).await {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err("the connection is gone".to_owned()),
        Err(_) => Err(format!("nothing came for {} s", limit.as_secs())),
    }
}

/// Says that a message has no place here.
pub fn unexpected(message: &PeerMessage) -> String {
    let text = protocol::json::to_value(message).unwrap_or_default();
    format!("unexpected message {}", text["peer"])
}

async fn blocking<T: Send + 'static>(
    what: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, String> {
    match task::spawn_blocking(what).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Sends the files that are wanted.
pub async fn push(
    link: &PeerLink,
    folder: &Path,
    files: &[ImageFile],
    wanted: &[String],
    transfer: u64,
) -> Result<(), String> {
    for path in wanted {
        let known = files.iter().find(|file| file.path == *path);
        let length = known.ok_or_else(|| format!("{path} is no file of the image"))?.length;
        let place = folder.join(path);
        let file = Arc::new(blocking(move || File::open(place)).await?);
        let mut offset = 0;
        while offset < length {
            let size = (length - offset).min(PIECE as u64) as usize;
            let file = file.clone();
            let read = move || {
                let mut bytes = vec![0; size];
                file.read_exact_at(&mut bytes, offset).map(|()| bytes)
            };
            let bytes = blocking(read).await?;
            let message = PeerMessage::Piece { transfer, path: path.clone(), offset };
            send(link, message, bytes).await?;
            offset += size as u64;
        }
    }
    send(link, PeerMessage::Sent { transfer }, Vec::new()).await
}

/// Receives files under temporary names, makes them durable, and gives them their names. Each comes whole,
/// in order, without gaps; nothing else comes.
pub async fn pull(
    link: &mut PeerLink,
    folder: &Path,
    lacking: Vec<ImageFile>,
) -> Result<(), String> {
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
            other => return Err(unexpected(&other)),
        };
        // Before anything is made of a name that somebody else has chosen.
        let length = *expected.get(&path).ok_or_else(|| format!("{path} was not wanted"))?;
        let (at, file) = match current.take() {
            Some((known, at, file)) if known == path => (at, file),
            _ => (0, create(folder, &path).await?),
        };
        let end = offset + body.len() as u64;
        if offset != at || end > length || body.is_empty() {
            return Err(format!("a piece of {path} is out of place"));
        }
        let written = file.clone();
        blocking(move || written.write_all_at(&body, offset)).await?;
        if end == length {
            expected.remove(&path);
        } else {
            current = Some((path, end, file));
        }
    }
    if let Some((path, _)) = expected.first_key_value() {
        return Err(format!("{path} did not come"));
    }
    make_durable(folder, lacking).await
}

async fn create(folder: &Path, path: &str) -> Result<Arc<File>, String> {
    let place = folder.join(format!("{path}{DRAFT}"));
    let made =
        move || File::options().write(true).create(true).truncate(true).mode(0o600).open(place);
    blocking(made).await.map(Arc::new)
}

async fn make_durable(folder: &Path, files: Vec<ImageFile>) -> Result<(), String> {
    let folder = folder.to_owned();
    blocking(move || {
        let mut parents = std::collections::BTreeSet::new();
        for file in &files {
            let (draft, last) =
                (folder.join(format!("{}{DRAFT}", file.path)), folder.join(&file.path));
            let opened = File::open(&draft)?;
            if opened.metadata()?.len() != file.length {
                return Err(std::io::Error::other(format!("{} has another length", file.path)));
            }
            if own_files::is_content(&file.path) {
                own_files::must_be_content(&opened, &file.path)?;
            }
            opened.sync_all()?;
            std::fs::rename(draft, &last)?;
            parents.extend(last.parent().map(Path::to_owned));
        }
        parents.insert(folder.join("checkpoints"));
        parents.insert(folder);
        parents.into_iter().try_for_each(|parent| File::open(parent)?.sync_all())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::channel;

    /// Pulls one file while the other side sends a piece of that path.
    async fn pulled(folder: &Path, path: &str) -> Result<(), String> {
        let (to, _sent) = channel(8);
        let (sender, from) = channel(8);
        let mut link = PeerLink { to, from };
        let piece = PeerMessage::Piece { transfer: 1, path: path.to_owned(), offset: 0 };
        sender.send((piece, b"abc".to_vec())).await.unwrap();
        sender.send((PeerMessage::Sent { transfer: 1 }, Vec::new())).await.unwrap();
        pull(&mut link, folder, vec![ImageFile { path: "packs/1.tar".into(), length: 3 }]).await
    }

    #[tokio::test]
    async fn nothing_is_made_of_a_name_that_was_not_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("image");
        for part in ["packs", "checkpoints"] {
            std::fs::create_dir_all(folder.join(part)).unwrap();
        }
        let refused = pulled(&folder, "../outside").await;
        assert_eq!(refused.unwrap_err(), "../outside was not wanted");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        pulled(&folder, "packs/1.tar").await.unwrap();
        assert_eq!(std::fs::read(folder.join("packs/1.tar")).unwrap(), b"abc");
    }
}
