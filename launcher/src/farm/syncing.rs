//! What makes ends of tasks durable, on a thread of its own: a disk that takes its time must not keep the run from hearing of
//! ends and signals.

use super::FarmError;
use ckptd_farm::Task;
use nix::fcntl::OFlag;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most tasks whose files are made durable one by one.
const FEW: usize = 8;

/// What is to be made durable.
#[derive(Debug)]
pub struct Syncing {
    /// The folder of what tasks have written.
    pub folder: PathBuf,
    /// Where tasks of a workflow write their files.
    pub working: Option<PathBuf>,
    /// The tasks that have ended.
    pub ended: Vec<Task>,
    /// The file of results.
    pub results: File,
    /// The file of the journal, and so many bytes of it.
    pub journal: (Arc<File>, u64),
    /// How many lines that are.
    pub lines: usize,
}

/// How that went.
#[derive(Debug)]
pub struct Synced {
    pub lines: usize,
    pub bytes: u64,
    pub result: Result<(), NotSynced>,
}

/// What is not durable.
#[derive(Debug)]
pub enum NotSynced {
    /// What tasks have written, or their results.
    Outputs(FarmError),
    /// The journal.
    Journal(io::Error),
}

impl Syncing {
    /// Makes it durable.
    pub fn perform(self) -> Synced {
        let (journal, bytes) = &self.journal;
        // What tasks have written comes before that by which they are never run again.
        let outputs = self.sync_outputs().map_err(|error| {
            NotSynced::Outputs(FarmError::io("make durable what is in", &self.folder)(error))
        });
        let result = outputs.and_then(|()| journal.sync_data().map_err(NotSynced::Journal));
        Synced { lines: self.lines, bytes: *bytes, result }
    }

    fn sync_outputs(&self) -> io::Result<()> {
        if let Some(working) = &self.working {
            nix::unistd::syncfs(File::open(working)?)?;
        }
        let folder = File::open(&self.folder)?;
        if self.lines > FEW {
            return nix::unistd::syncfs(&folder).map_err(io::Error::from);
        }
        for task in &self.ended {
            for stream in ["out", "err"] {
                sync_file(&self.folder.join(format!("{}.{stream}", task.0)))?;
            }
        }
        self.results.sync_data()?;
        protocol::durable::sync_folder(&folder)
    }
}

/// Whoever has removed it, or made it another's, does without it.
fn sync_file(path: &Path) -> io::Result<()> {
    // Others may write in the folder.
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let Ok(file) = File::options().read(true).custom_flags(flags).open(path) else { return Ok(()) };
    match file.metadata().is_ok_and(|found| found.is_file()) {
        true => file.sync_data(),
        false => Ok(()),
    }
}
