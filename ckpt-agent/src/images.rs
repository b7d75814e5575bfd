//! Images of a cluster's jobs, as files: for whoever takes them elsewhere.

use std::path::Path;

use protocol::agent::CheckpointNumber;
use protocol::cluster::peer::ImageFile;

use super::driver::copies;
pub use super::driver::copies::CopyError;

/// Whether all names are those of a committed image's files, and none twice.
///
/// # Errors
/// See [`CopyError`].
pub fn check(files: &[ImageFile], checkpoint: CheckpointNumber) -> Result<(), CopyError> {
    copies::check(files, checkpoint, true)
}

/// What an image is told from any other by.
///
/// # Errors
/// See [`CopyError`].
pub fn digest(folder: &Path, checkpoint: CheckpointNumber) -> Result<String, CopyError> {
    copies::digest(folder, checkpoint)
}

/// What lies beside an image: the job's files as `files/HASH`, and their list as `FILES`. With the lengths.
///
/// # Errors
/// See [`CopyError`].
pub fn beside(
    folder: &Path,
    checkpoint: CheckpointNumber,
) -> Result<Vec<(String, u64)>, CopyError> {
    let named = copies::own_files(folder, checkpoint)?;
    let list = format!("checkpoints/{checkpoint}/{}", copies::LIST);
    let name = |path: String| if path == list { copies::LIST.to_owned() } else { path };
    Ok(named.into_iter().map(|(path, length)| (name(path), length)).collect())
}
