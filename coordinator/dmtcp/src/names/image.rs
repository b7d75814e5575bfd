//! What stands for an image of DMTCP's: a small file that names a job of ours and a checkpoint.

use crate::machine::Identity;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Version of the file.
const FORMAT: u32 = 1;

/// The largest file that is read, in bytes.
const MAX: u64 = 64 * 1024;

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    /// Its version.
    pub ckptd_image: u32,
    /// Where jobs are kept.
    pub dir: PathBuf,
    /// The job.
    pub job: String,
    /// The checkpoint.
    pub checkpoint: u64,
    /// The program.
    pub program: String,
    /// The process: host, time, pid.
    pub identity: (u64, u64, i32),
    /// The computation: host, time, pid, generation.
    pub group: (u64, u64, i32, i32),
    /// How many belong to it.
    pub peers: u32,
}

impl Pointer {
    /// The file for that checkpoint.
    #[allow(clippy::too_many_arguments)] // What it is made of.
    pub fn new(
        dir: &Path,
        job: &str,
        checkpoint: u64,
        program: &str,
        identity: Identity,
        group: Identity,
        peers: u32,
    ) -> Self {
        Self {
            ckptd_image: FORMAT,
            dir: dir.to_owned(),
            job: job.to_owned(),
            checkpoint,
            program: program.to_owned(),
            identity: (identity.host, identity.time, identity.pid),
            group: (group.host, group.time, group.pid, group.generation),
            peers,
        }
    }

    /// The process.
    pub fn identity(&self) -> Identity {
        let (host, time, pid) = self.identity;
        Identity { host, time, pid, generation: 0 }
    }

    /// The computation.
    pub fn group(&self) -> Identity {
        let (host, time, pid, generation) = self.group;
        Identity { host, time, pid, generation }
    }

    /// Writes it under DMTCP's name for an image; its path.
    pub fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(folder)?;
        let program = self.program.replace('/', "_");
        let name = format!("ckpt_{program}_{}.dmtcp", self.identity());
        let new = folder.join(format!(".{name}.new"));
        let _ = fs::remove_file(&new);
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        let path = folder.join(name);
        fs::rename(&new, &path)?;
        Ok(path)
    }

    /// Reads one; None for an image of DMTCP's own. The text fits after "failed to ...".
    pub fn read(path: &Path) -> Result<Option<Self>, String> {
        let failed = |why: &dyn std::fmt::Display| format!("read {}: {why}", path.display());
        let file = fs::File::open(path).map_err(|error| failed(&error))?;
        let mut bytes = Vec::new();
        file.take(MAX).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        if bytes.first() != Some(&b'{') {
            return Ok(None);
        }
        let pointer: Self = protocol::json::read(&bytes).map_err(|error| failed(&error))?;
        if pointer.ckptd_image > FORMAT {
            return Err(failed(&"it is of a newer ckptd"));
        }
        Ok(Some(pointer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_back_and_an_image_of_dmtcp_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let identity = Identity { host: 0x98ff, time: 0x77, pid: 40_000, generation: 0 };
        let pointer = Pointer::new(Path::new("/d"), "job-1", 3, "a/b", identity, identity, 2);
        let path = pointer.write(folder.path()).unwrap();
        assert!(path.ends_with("ckpt_a_b_98ff-40000-77.dmtcp"), "{}", path.display());
        assert_eq!(Pointer::read(&path).unwrap(), Some(pointer));
        fs::write(&path, b"\x1f\x8bDMTCP").unwrap();
        assert_eq!(Pointer::read(&path), Ok(None));
    }
}
