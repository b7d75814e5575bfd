//! What stands for an image of DMTCP's: a small file that names a job of ours and a checkpoint.

use super::error::CallError;
use crate::machine::Identity;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Version of the file.
pub const FORMAT: u32 = 1;

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

    /// Reads one; None for an image of DMTCP's own.
    pub fn read(path: &Path) -> Result<Option<Self>, CallError> {
        let file = fs::File::open(path).map_err(CallError::file("read", path))?;
        let mut bytes = Vec::new();
        file.take(MAX).read_to_end(&mut bytes).map_err(CallError::file("read", path))?;
        if bytes.first() != Some(&b'{') {
            return Ok(None);
        }
        let pointer: Self = protocol::json::read(&bytes)
            .map_err(|source| CallError::NoImage { path: path.to_owned(), source })?;
        if pointer.ckptd_image > FORMAT {
            return Err(CallError::Newer(path.to_owned()));
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
        let pointer = Pointer {
            ckptd_image: FORMAT,
            dir: "/d".into(),
            job: "job-1".into(),
            checkpoint: 3,
            program: "a/b".into(),
            identity: (0x98ff, 0x77, 40_000),
            group: (0x98ff, 0x77, 40_000, 0),
            peers: 2,
        };
        let path = pointer.write(folder.path()).unwrap();
        assert!(path.ends_with("ckpt_a_b_98ff-40000-77.dmtcp"), "{}", path.display());
        assert_eq!(Pointer::read(&path).unwrap(), Some(pointer));
        fs::write(&path, b"\x1f\x8bDMTCP").unwrap();
        assert_eq!(Pointer::read(&path).unwrap(), None);
    }
}
