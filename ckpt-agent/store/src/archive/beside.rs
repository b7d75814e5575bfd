//! What lies beside an image in its instance's folder and belongs to it: files of the job, by their hashes, and
//! their list.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::layout::Layout;

/// The name of the list.
const LIST: &str = "FILES";
/// The folder of the files.
const FOLDER: &str = "files/";
/// The most files beside one image.
const MAX_BESIDE: usize = 100_000;

/// One file beside an image: `FILES`, or `files/HASH` with the BLAKE3 of its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beside {
    /// Its path below the image's folder.
    pub name: String,
    /// Its length in bytes.
    pub length: u64,
}

impl Beside {
    /// The hash that is its name.
    pub(super) fn hash(&self) -> Option<&str> {
        let hash = self.name.strip_prefix(FOLDER)?;
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (hash.len() == 64 && hash.bytes().all(hex)).then_some(hash)
    }

    /// Where it is in an instance's folder; None: it has a name of another kind.
    pub(super) fn place(&self, folder: &Path, checkpoint: u64) -> Option<PathBuf> {
        match self.hash() {
            Some(_) => Some(folder.join(&self.name)),
            None if self.name == LIST => {
                Some(Layout::new(folder).checkpoint(checkpoint).join(LIST))
            }
            None => None,
        }
    }
}

/// What is wrong with a list of such files.
pub(super) fn complaint(list: &[Beside]) -> Option<&'static str> {
    let mut seen = HashSet::new();
    if list.len() > MAX_BESIDE {
        return Some("names more files than lie beside any image");
    }
    let known = |file: &Beside| file.hash().is_some() || file.name == LIST;
    match list.iter().all(|file| known(file) && seen.insert(&file.name)) {
        true => None,
        false => Some("names what does not lie beside an image"),
    }
}
