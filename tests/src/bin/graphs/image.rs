//! The index files of an image as JSON trees, and the seal that makes changed ones count.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ckptd_tests::job::Failure;
use serde_json::Value;

/// The name of the graph among an image's index files.
pub const GRAPH: &str = "graph.json";
const MARK: &str = "COMMITTED";

/// The index files of one checkpoint: graph.json, and one for each process.
#[derive(Debug, Clone, PartialEq)]
pub struct Documents(pub BTreeMap<String, Value>);

impl Documents {
    /// Reads those of a checkpoint's folder.
    pub fn read(checkpoint: &Path) -> Result<Self, Failure> {
        let failed = |e: std::io::Error| Failure(format!("{}: {e}", checkpoint.display()));
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(checkpoint).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.ends_with(".json") {
                let value = serde_json::from_slice(&fs::read(&path).map_err(failed)?)
                    .map_err(|e| Failure(format!("{}: {e}", path.display())))?;
                all.insert(name, value);
            }
        }
        Ok(Self(all))
    }

    /// The graph.
    pub fn graph(&mut self) -> &mut Value {
        self.0.entry(GRAPH.to_owned()).or_default()
    }

    /// The process images.
    pub fn processes(&mut self) -> impl Iterator<Item = &mut Value> {
        self.0.iter_mut().filter(|(name, _)| *name != GRAPH).map(|(_, value)| value)
    }

    /// Writes them in the place of what was there, with a commit mark by which they count.
    pub fn write(&self, checkpoint: &Path) -> Result<(), Failure> {
        let failed = |e: std::io::Error| Failure(format!("{}: {e}", checkpoint.display()));
        let mut sealed = BTreeMap::new();
        for (name, value) in &self.0 {
            let bytes = serde_json::to_vec(value).map_err(|e| failed(e.into()))?;
            fs::write(checkpoint.join(name), &bytes).map_err(failed)?;
            sealed.insert(name.as_str(), (bytes.len(), blake3::hash(&bytes).to_hex()));
        }
        let text = fs::read_to_string(checkpoint.join(MARK)).map_err(failed)?;
        let mut lines = text.lines();
        let (Some(magic), Some(body)) = (lines.next(), lines.next()) else {
            return Err(Failure(format!("{}: no commit mark", checkpoint.display())));
        };
        let mut mark: Value = serde_json::from_str(body).map_err(|e| failed(e.into()))?;
        for file in mark["files"].as_array_mut().into_iter().flatten() {
            let name = file["name"].as_str().unwrap_or_default();
            if let Some((length, hash)) = sealed.get(name) {
                let (length, hash) = (*length, hash.to_string());
                file["length"] = length.into();
                file["hash"] = hash.into();
            }
        }
        let body = format!("{magic}\n{mark}\n");
        let hash = blake3::hash(body.as_bytes()).to_hex();
        fs::write(checkpoint.join(MARK), format!("{body}blake3 {hash}\n")).map_err(failed)
    }
}

/// What every file below a folder is: its length and the hash of its bytes.
pub fn digest(folder: &Path) -> Result<BTreeMap<PathBuf, (u64, String)>, Failure> {
    let failed = |e: std::io::Error| Failure(format!("{}: {e}", folder.display()));
    let mut found = BTreeMap::new();
    let mut left = vec![folder.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(&next).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                left.push(path);
                continue;
            }
            let bytes = fs::read(&path).map_err(failed)?;
            let hash = blake3::hash(&bytes).to_hex().to_string();
            found.insert(path, (bytes.len() as u64, hash));
        }
    }
    Ok(found)
}
