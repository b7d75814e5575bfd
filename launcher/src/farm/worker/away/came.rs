//! What has come of an errand, in a file that is there as a whole or not at all: who reads it may be another worker than the one
//! that has sent it.

use protocol::agent::ExitKind;
use protocol::durable::draft_of;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The longest, in bytes.
const MOST: u64 = 64 * 1024;

/// What has come of an errand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Came {
    /// The task has ended.
    Ended(ExitKind),
    /// Its job could not be begun or brought back, and what there is of it stays.
    Stuck(String),
    /// Its job was ended by somebody who has asked for that: that is no end of the task.
    Asked,
    /// It could not be begun now, for a reason that passes.
    NotNow(String),
}

/// The file beside what an errand says.
pub fn path(said: &Path) -> PathBuf {
    let mut path = said.as_os_str().to_owned();
    path.push(".came");
    path.into()
}

impl Came {
    /// Writes it.
    ///
    /// # Errors
    /// Where that is not possible.
    pub fn write(&self, said: &Path) -> io::Result<()> {
        let path = path(said);
        let new = draft_of(&path);
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        let mut file = File::create(&new)?;
        file.write_all(&text)?;
        fs::rename(new, path)
    }

    /// Reads it; None: nothing has come of it.
    pub fn read(said: &Path) -> Option<Self> {
        let mut text = Vec::new();
        File::open(path(said)).ok()?.take(MOST).read_to_end(&mut text).ok()?;
        protocol::json::read(&text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_come_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let said = dir.path().join("t1.1");
        assert_eq!(Came::read(&said), None);
        for came in [
            Came::Ended(ExitKind::Exited(3)),
            Came::Ended(ExitKind::Signalled(9)),
            Came::Stuck("no".into()),
            Came::NotNow("later".into()),
            Came::Asked,
        ] {
            came.write(&said).unwrap();
            assert_eq!(Came::read(&said), Some(came));
        }
        fs::write(path(&said), "{\"ended\":").unwrap();
        assert_eq!(Came::read(&said), None, "a torn one");
    }
}
