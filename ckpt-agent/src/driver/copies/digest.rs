//! What binds an image to what was committed: whoever keeps a copy could write another one, with right checksums of its own.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use protocol::agent::CheckpointNumber;
use protocol::task;

use super::error::CopyError;
use super::own_files::{LIST, LONGEST_LIST};

/// Hash of the index files of an image and of its list of the job's files. These hold the hashes of all that is in it.
///
/// # Errors
/// See [`CopyError`].
pub fn digest(folder: &Path, checkpoint: CheckpointNumber) -> Result<String, CopyError> {
    let index = ckpt_store::digest(folder, checkpoint)?;
    let path = folder.join("checkpoints").join(checkpoint.to_string()).join(LIST);
    let mut list = Vec::new();
    let read =
        File::open(&path).and_then(|file| file.take(LONGEST_LIST + 1).read_to_end(&mut list));
    match read {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(CopyError::File { action: "read", path, source: error });
        }
        _ => {}
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("ckptd image {checkpoint} {index}\n").as_bytes());
    hasher.update(&list);
    Ok(hasher.finalize().to_hex().to_string())
}

/// Whether an image is the committed one. `committed`: its digest by the coordinator's log; empty: of an image of before.
///
/// # Errors
/// See [`CopyError`].
pub async fn must_be(
    folder: &Path,
    checkpoint: CheckpointNumber,
    committed: &str,
) -> Result<(), CopyError> {
    if committed.is_empty() {
        return Ok(());
    }
    let (folder, committed) = (folder.to_owned(), committed.to_owned());
    task::blocking(move || match digest(&folder, checkpoint)? == committed {
        true => Ok(()),
        false => Err(CopyError::Changed(checkpoint)),
    })
    .await
}

/// Removes what belongs to one checkpoint alone: nothing of it may be taken for the committed one.
pub async fn reject(folder: &Path, checkpoint: CheckpointNumber) {
    let folder = folder.join("checkpoints").join(checkpoint.to_string());
    let removed = task::spawn_blocking(move || std::fs::remove_dir_all(folder));
    if let Ok(Err(error)) = removed.await {
        tracing::warn!("failed to remove an image that is not the committed one: {error}");
    }
}
