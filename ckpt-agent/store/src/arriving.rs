//! Checking a checkpoint before any of it is where it belongs.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use super::checkpoint::{Checkpoint, read_mark};
use super::chunk::{ChunkRef, PackId};
use super::error::Damage;
use super::layout::Layout;
use super::mark::CommitMark;
use super::reader::ChunkReader;
use super::verify::{verify_copy_in, wounded_in};

/// A checkpoint that has come from elsewhere into a folder of its own. Packs that are not there are those of the job's
/// folder, in which others of its checkpoints need them.
#[derive(Debug, Clone)]
pub struct Arriving {
    layout: Layout,
}

impl Arriving {
    /// What has come into `folder`, for the job kept in `job_dir`.
    #[must_use]
    pub fn new(folder: &Path, job_dir: &Path) -> Self {
        Self { layout: Layout::over(folder, job_dir) }
    }

    /// As [`verify_copy`](super::verify_copy): of trusted packs, chunks of the job's committed checkpoints are not read.
    ///
    /// # Errors
    /// The first damage found.
    pub fn verify(&self, number: u64, trusted: &HashSet<PackId>) -> Result<CommitMark, Damage> {
        verify_copy_in(&self.layout, number, trusted)
    }

    /// As [`wounded`](super::wounded).
    ///
    /// # Errors
    /// Damage to anything but chunks, and what the kernel refused.
    pub fn wounded(&self, number: u64) -> Result<BTreeMap<String, Damage>, Damage> {
        wounded_in(&self.layout, number)
    }

    /// Whether packs that have come could be put in the place of the job's own packs of the same names: what other
    /// committed checkpoints have in those can be read from these as well, as far as it can be read at all.
    ///
    /// # Errors
    /// The first chunk that would be lost.
    pub fn spares_others(&self, number: u64) -> Result<(), Damage> {
        let here = self.layout.lowest();
        let failed = |folder: &Path, error: &std::io::Error| Damage::io(folder, error);
        let packs = self.layout.packs();
        let come = self.layout.pack_ids().map_err(|error| failed(&packs, &error))?;
        let come: HashSet<PackId> = come.into_iter().filter(|id| here.pack(*id).exists()).collect();
        if come.is_empty() {
            return Ok(());
        }
        let checkpoints = here.checkpoints();
        for other in here.numbers().map_err(|error| failed(&checkpoints, &error))? {
            if other == number || read_mark(&here, other).is_err() {
                continue;
            }
            // One that can't be opened has nothing to lose.
            let Ok(checkpoint) = Checkpoint::open_in(here.clone(), other) else { continue };
            self.spares(&checkpoint, &come)?;
        }
        Ok(())
    }

    fn spares(&self, checkpoint: &Checkpoint, come: &HashSet<PackId>) -> Result<(), Damage> {
        let mark = checkpoint.mark();
        if !mark.packs.iter().any(|pack| come.contains(&pack.id)) {
            return Ok(());
        }
        let (now, then) = (checkpoint.stored_reader()?, ChunkReader::open(&self.layout, mark)?);
        let mut chunks: HashSet<ChunkRef> = HashSet::new();
        for file in &mark.files {
            checkpoint.references(file, |chunk| {
                if come.contains(&chunk.pack) {
                    chunks.insert(chunk);
                }
            })?;
        }
        let mut buffer = Vec::new();
        for chunk in &chunks {
            let lost = then.read(chunk, &mut buffer);
            if lost.is_err() && now.read(chunk, &mut buffer).is_ok() {
                return lost;
            }
        }
        Ok(())
    }
}
