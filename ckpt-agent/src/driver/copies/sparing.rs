//! What another node may offer: nothing that is committed here is replaced by it.

use std::collections::BTreeMap;
use std::path::Path;

use ckpt_store::{CheckpointState, CommitMark, Damage};
use protocol::agent::CheckpointNumber;
use protocol::cluster::peer::ImageFile;
use protocol::task;

use super::error::CopyError;
use super::files::{is_index, pack_path};
use super::own_files::LIST;

/// The files of an offer that may come. Of a checkpoint that is committed here, that is what it may have lost since:
/// packs and the job's files.
///
/// # Errors
/// Where a file is offered that differs from one that a committed checkpoint consists of.
pub async fn acceptable(
    folder: &Path,
    checkpoint: CheckpointNumber,
    files: Vec<ImageFile>,
) -> Result<Vec<ImageFile>, CopyError> {
    let folder = folder.to_owned();
    task::blocking(move || {
        let committed = committed(&folder)?;
        let packs = committed.iter().flat_map(|mark| &mark.packs);
        let mut lengths: BTreeMap<String, u64> =
            packs.map(|pack| (pack_path(pack.id), pack.length)).collect();
        let again = committed.iter().find(|mark| mark.checkpoint == checkpoint);
        for file in again.iter().flat_map(|mark| &mark.files) {
            lengths.insert(format!("checkpoints/{checkpoint}/{}", file.name), file.length);
        }
        for file in &files {
            let known = lengths.get(&file.path);
            let is_new_index = || again.is_some() && is_index(&file.path, checkpoint);
            if known.map_or_else(is_new_index, |length| *length != file.length) {
                return Err(CopyError::Differs(file.path.clone()));
            }
        }
        if again.is_none() {
            return Ok(files);
        }
        let is_committed = |path: &str| {
            is_index(path, checkpoint) || path == format!("checkpoints/{checkpoint}/{LIST}")
        };
        Ok(files.into_iter().filter(|file| !is_committed(&file.path)).collect())
    })
    .await
}

/// The checkpoints here that can be restarted from, as far as their marks and index files tell.
fn committed(folder: &Path) -> Result<Vec<CommitMark>, Damage> {
    let all = ckpt_store::list(folder)?;
    let marks = all.into_iter().filter_map(|summary| match summary.state {
        CheckpointState::Committed(mark) => Some(*mark),
        CheckpointState::Damaged(_) | CheckpointState::Incomplete => None,
    });
    Ok(marks.collect())
}
