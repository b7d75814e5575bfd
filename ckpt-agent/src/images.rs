//! Images of a cluster's jobs, as files: for whoever takes them elsewhere.

use std::path::Path;

use ckpt_engine::graph::Graph;
use protocol::agent::CheckpointNumber;
use protocol::cluster::peer::ImageFile;
use protocol::launch::{Kept, StreamKind};

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

/// What an image says of how its job was launched.
#[derive(Debug)]
pub struct Launched {
    /// What its standard streams are.
    pub streams: StreamKind,
    /// What of the file system is the job's.
    pub kept: Kept,
    /// Whether the job's first process is in it.
    pub root: bool,
}

/// Reads that from the image of a job's one instance. If it is encrypted, its key must be beside it.
///
/// # Errors
/// See [`CopyError`].
pub fn launched(folder: &Path, checkpoint: CheckpointNumber) -> Result<Launched, CopyError> {
    let graph: Graph = ckpt_store::read_index(folder, checkpoint, "graph.json")?;
    let streams = match graph.has_console_terminal() {
        true => StreamKind::Terminal,
        false => StreamKind::Pipe,
    };
    Ok(Launched { streams, root: graph.root != 0, kept: graph.kept })
}
