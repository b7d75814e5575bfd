//! Who may add tasks: one process at a time. A worker that is about to end for want of tasks has it until it has ended, so
//! that whoever comes then finds that nobody runs the farm.

use crate::farm::{FarmError, locked};
use nix::fcntl::Flock;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// The file that is locked for that.
const GATE: &str = "gate";
/// That for starting a worker.
const STARTING: &str = "starting";
/// How long another process may have it: whoever waits for a slow disk has it meanwhile, or a worker that ends, or one that
/// waits for a worker to begin.
const LONGEST: Duration = Duration::from_secs(150);
/// How often it is tried for.
const BETWEEN: Duration = Duration::from_millis(5);

/// Held by the one process that adds tasks, or starts a worker: it goes with that.
#[derive(Debug)]
pub struct Gate {
    _file: Flock<File>,
}

impl Gate {
    /// Waits for the right to add tasks.
    ///
    /// # Errors
    /// Where the folder is gone, or another process does not let go.
    pub fn wait(folder: &Path) -> Result<Self, FarmError> {
        wait(folder, GATE)
    }

    /// The same for the right to start a worker.
    ///
    /// # Errors
    /// As [`Gate::wait`].
    pub fn wait_to_start(folder: &Path) -> Result<Self, FarmError> {
        wait(folder, STARTING)
    }

    /// The right to add tasks; None: another process has it.
    ///
    /// # Errors
    /// Where the folder is gone.
    pub fn of(folder: &Path) -> Result<Option<Self>, FarmError> {
        take(folder, GATE).map_err(FarmError::io("lock", folder))
    }
}

fn wait(folder: &Path, name: &str) -> Result<Gate, FarmError> {
    let since = Instant::now();
    loop {
        match take(folder, name) {
            Ok(Some(gate)) => return Ok(gate),
            Ok(None) if since.elapsed() < LONGEST => std::thread::sleep(BETWEEN),
            Ok(None) => {
                let busy = io::Error::other("another process holds it for minutes");
                return Err(FarmError::io("lock", folder.join(name))(busy));
            }
            Err(error) => return Err(FarmError::io("lock", folder)(error)),
        }
    }
}

fn take(folder: &Path, name: &str) -> io::Result<Option<Gate>> {
    let file = locked::take(&folder.join(name))?;
    Ok(file.map(|file| Gate { _file: file }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let gate = Gate::wait(folder.path()).unwrap();
        assert!(Gate::of(folder.path()).unwrap().is_none());
        assert!(Gate::wait_to_start(folder.path()).is_ok());
        drop(gate);
        assert!(Gate::of(folder.path()).unwrap().is_some());
        let gone = folder.path().join("gone");
        assert!(Gate::wait(&gone).is_err());
    }
}
