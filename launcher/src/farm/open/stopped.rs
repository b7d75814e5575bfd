//! That somebody has stopped a farm: whoever waits for its tasks leaves it so then.

use super::gate::Gate;
use crate::farm::{FarmError, FarmFolder};
use protocol::durable::remove_if_there;
use std::fs::File;

/// The file that says so, in the farm's folder.
const STOPPED: &str = "stopped";

/// Notes that somebody stops the farm: who waits for its tasks starts no worker from here on, and has started one already
/// where it was about to.
///
/// # Errors
/// Where that can't be written.
pub fn note_stop(folder: &FarmFolder) -> Result<(), FarmError> {
    let _gate = Gate::wait_to_start(folder.path())?;
    let path = folder.path().join(STOPPED);
    File::create(&path).map(drop).map_err(FarmError::io("write", path))
}

/// Notes that somebody wants it to run.
///
/// # Errors
/// Where the note can't be removed.
pub fn note_start(folder: &FarmFolder) -> Result<(), FarmError> {
    let path = folder.path().join(STOPPED);
    remove_if_there(&path).map_err(FarmError::io("remove", path))
}

/// Whether somebody has stopped it, and nobody has started it since.
pub fn is_stopped(folder: &FarmFolder) -> bool {
    folder.path().join(STOPPED).exists()
}
