//! Small things that an agent notes down in a job's folder for agents and restarts to come: a file of JSON each.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest such file that is read.
const LONGEST: u64 = 8192;

/// Notes it down under that name, whole or not at all.
///
/// # Errors
/// The folder takes no file.
pub(super) fn write(job_dir: &Path, name: &str, what: &impl Serialize) -> io::Result<()> {
    let new = job_dir.join(format!("{name}.new"));
    std::fs::write(&new, serde_json::to_vec(what)?)?;
    std::fs::rename(&new, job_dir.join(name))
}

/// What was noted down, if it can be read.
pub(super) fn read<T: DeserializeOwned>(job_dir: &Path, name: &str) -> Option<T> {
    let mut text = Vec::new();
    File::open(job_dir.join(name)).ok()?.take(LONGEST).read_to_end(&mut text).ok()?;
    protocol::json::read(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        for (length, is_read) in [(100, true), (LONGEST as usize, false)] {
            let known = std::collections::BTreeMap::from([("text", "x".repeat(length))]);
            write(folder.path(), "note.json", &known).unwrap();
            let read =
                read::<std::collections::BTreeMap<String, String>>(folder.path(), "note.json");
            assert_eq!(read.is_some_and(|read| read["text"] == known["text"]), is_read);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
