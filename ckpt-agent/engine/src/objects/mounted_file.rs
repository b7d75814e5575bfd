//! Files and folders that are open in a file system in memory (tmpfs) which processes have mounted among mounts of their own.
//! What is in it is in the image with the mount, so they are opened once the mount is there: by the path that their processes
//! know, as [`super::super::restore`] opens all files among such mounts.

use serde::{Deserialize, Serialize};

use super::super::error::{Refusal, Result};
use super::super::sys::abi::{S_IFDIR, S_IFREG};
use super::{DumpContext, Fate, ObjectKind, Probe, RestoreContext, Saved, reopen};

/// A file, a folder, or with O_PATH anything that may be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedFile {
    /// File offset in bytes.
    #[serde(default)]
    pub offset: u64,
}

impl ObjectKind for MountedFile {
    fn recognise(probe: &Probe) -> bool {
        probe.is_in_memory
    }

    fn dump(probe: &Probe, context: &mut DumpContext) -> Result<Self> {
        let is_path_only = probe.flags & libc::O_PATH != 0;
        let kind = probe.file_type();
        if !is_path_only && !matches!(kind, S_IFREG | S_IFDIR) {
            return Err(probe.unknown().into());
        }
        let offset = probe.info.position()?;
        let passing = |what: &str| -> Result<Self> {
            let what = format!("{}, in a tmpfs of its own, {what}", probe.link);
            Err(Refusal::passing(what, "close it while checkpoints are taken").into())
        };
        if kind == S_IFDIR && offset != 0 {
            // What comes next after this number is the file system's own.
            return passing("whose list is being read");
        }
        if context.leased.has(probe.stat.st_ino) {
            return passing("has a lease on it (F_SETLEASE)");
        }
        if !is_path_only {
            // As a restart does, in which nobody has it open already.
            let _acting = context.act_as_user()?;
            if reopen::reopen(&probe.copy, probe.flags).is_err() {
                return passing("which its mode forbids to open again");
            }
        }
        Ok(Self { offset })
    }

    fn restore(all: &[Saved<'_, Self>], context: &mut RestoreContext) -> Result<()> {
        all.iter().try_for_each(|saved| context.await_process(saved.id))
    }

    fn when_divided(&self, _flags: i32) -> Fate {
        Fate::Undivided
    }
}
