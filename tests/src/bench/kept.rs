//! Results that outlive a benchmark which is cut off: every finished run is kept in a file, and the next start of the same
//! benchmark goes on where it was.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::host::Origin;
use super::subject::failure;
use crate::job::Failure;

/// What identifies a benchmark that may be gone on with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Session {
    /// The executable that is measured, by its hash.
    ckptd: String,
    machine: String,
    quick: bool,
    /// Parts that are not finished.
    pending: Vec<String>,
}

/// One part's results.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Part<T> {
    /// Where they come from.
    pub origin: Origin,
    /// Whether it is all there.
    pub finished: bool,
    /// What was measured.
    pub data: T,
}

#[derive(Serialize, Deserialize)]
#[serde(bound = "T: Serialize + DeserializeOwned")]
struct File<T> {
    session: Option<Session>,
    parts: BTreeMap<String, Part<T>>,
}

/// The file of a benchmark's results, part by part.
pub struct Kept<T> {
    path: PathBuf,
    file: File<T>,
}

impl<T: Serialize + DeserializeOwned + Default> Kept<T> {
    /// The results that are there; none, if there are none or they can't be read.
    #[must_use]
    pub fn read(path: &Path) -> Kept<T> {
        let found = fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let file = found.unwrap_or(File { session: None, parts: BTreeMap::new() });
        Kept { path: path.to_owned(), file }
    }

    /// Begins with these parts, or goes on with those of them that an earlier start has not finished; the parts to be
    /// measured.
    ///
    /// # Errors
    /// When the executable can't be read or the file not written.
    pub fn begin(
        &mut self,
        ckptd: &Path,
        machine: &str,
        quick: bool,
        wanted: &[&str],
        fresh: bool,
    ) -> Result<Vec<String>, Failure> {
        let executable = fs::read(ckptd).map_err(failure)?;
        let session = Session {
            ckptd: blake3::hash(&executable).to_hex().to_string(),
            machine: machine.to_owned(),
            quick,
            pending: wanted.iter().map(|&name| name.to_owned()).collect(),
        };
        let same = |old: &&Session| {
            Session { pending: Vec::new(), ..(*old).clone() }
                == Session { pending: Vec::new(), ..session.clone() }
        };
        let left: Vec<String> = match self.file.session.as_ref().filter(same) {
            Some(old) if !fresh => {
                let all = old.pending.iter();
                all.filter(|name| wanted.contains(&name.as_str())).cloned().collect()
            }
            _ => Vec::new(),
        };
        if !left.is_empty() {
            return Ok(left);
        }
        for name in &session.pending {
            self.file.parts.remove(name);
        }
        let pending = session.pending.clone();
        self.file.session = Some(session);
        self.save()?;
        Ok(pending)
    }

    /// A part's results so far, to be added to; from `origin` if there are none.
    pub fn part(&mut self, name: &str, origin: impl FnOnce() -> Origin) -> &mut T {
        let part = self.file.parts.entry(name.to_owned());
        let empty = || Part { origin: origin(), finished: false, data: T::default() };
        &mut part.or_insert_with(empty).data
    }

    /// A part is complete.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn finish(&mut self, name: &str) -> Result<(), Failure> {
        if let Some(part) = self.file.parts.get_mut(name) {
            part.finished = true;
        }
        if let Some(session) = &mut self.file.session {
            session.pending.retain(|pending| pending != name);
        }
        self.save()
    }

    /// Writes the file; one that is read meanwhile is the old or the new one.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn save(&self) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(&self.file).map_err(failure)?;
        let new = self.path.with_extension("new");
        fs::write(&new, text + "\n").map_err(failure)?;
        fs::rename(&new, &self.path).map_err(failure)
    }

    /// All parts of which there is anything.
    #[must_use]
    pub fn parts(&self) -> &BTreeMap<String, Part<T>> {
        &self.file.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin { machine: "m".into(), date: "d".into(), command: "c".into(), quick: true }
    }

    #[test]
    fn what_was_cut_off_goes_on() -> Result<(), Failure> {
        let folder = tempfile::tempdir().map_err(failure)?;
        let (path, ckptd) = (folder.path().join("x.json"), folder.path().join("ckptd"));
        fs::write(&ckptd, "one").map_err(failure)?;
        let begin = |kept: &mut Kept<Vec<u32>>, wanted: &[&str]| {
            kept.begin(&ckptd, "m", true, wanted, false)
        };
        let mut kept = Kept::<Vec<u32>>::read(&path);
        assert_eq!(begin(&mut kept, &["a", "b"])?, ["a", "b"]);
        kept.part("a", origin).push(1);
        kept.finish("a")?;
        kept.part("b", origin).push(2);
        kept.save()?;
        let mut again = Kept::<Vec<u32>>::read(&path);
        assert_eq!(begin(&mut again, &["a", "b"])?, ["b"], "a is done");
        assert_eq!(again.part("b", origin), &[2], "what was measured is kept");
        again.finish("b")?;
        assert_eq!(begin(&mut again, &["b"])?, ["b"], "all was done: from the beginning");
        assert!(again.part("b", origin).is_empty());
        assert!(again.parts()["a"].finished);
        fs::write(&ckptd, "two").map_err(failure)?;
        assert_eq!(begin(&mut again, &["a", "b"])?, ["a", "b"], "another executable");
        Ok(())
    }
}
