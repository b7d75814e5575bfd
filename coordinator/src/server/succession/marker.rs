//! A coordinator that was told of a newer one must not begin again.

use protocol::cluster::Term;
use protocol::durable::remove_if_there;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;

const NAME: &str = "superseded.json";

/// What is known of the newer one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// Its term.
    pub term: Term,
    /// Where it is, or who follows it.
    pub by: String,
}

impl Marker {
    /// That of a folder, if it has one. One that can't be read says as much.
    ///
    /// # Errors
    /// Where it can't be read.
    pub fn of(folder: &Path) -> io::Result<Option<Self>> {
        match fs::read(folder.join(NAME)) {
            Ok(text) => Ok(Some(protocol::json::read(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Leaves it in a folder.
    ///
    /// # Errors
    /// Where it can't be written.
    pub fn leave(&self, folder: &Path) -> io::Result<()> {
        fs::write(folder.join(NAME), serde_json::to_vec(self)?)?;
        fs::File::open(folder.join(NAME))?.sync_all()
    }

    /// Takes it out of a folder.
    ///
    /// # Errors
    /// Where it can't be removed.
    pub fn remove(folder: &Path) -> io::Result<()> {
        remove_if_there(&folder.join(NAME))
    }
}
