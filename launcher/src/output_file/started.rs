//! The copy of the log of a cluster's job: a process of the user's own, since the job outlives the command that was its
//! launcher, and only here are the user's rights and the file.

use super::OutputFile;
use crate::INNER_CALL;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the last output is waited for where the job has ended.
const LAST: Duration = Duration::from_secs(10);

/// The hidden command of that process.
pub const COMMAND: &str = "copy-output";

/// A copy that is to be begun when there is a job, or that goes on.
#[derive(Debug)]
pub enum Follower {
    /// The job does not run yet.
    Waits(OutputFile),
    /// It runs.
    Runs(Child),
    /// It could not be started, which was said.
    Failed,
}

impl Follower {
    /// Begins to copy, if that has not been begun; `alone`: nobody waits for it, or sees what it says.
    pub fn start(&mut self, socket: &Path, job: &str, alone: bool) {
        // It goes on where the command has found its cluster again.
        if !matches!(self, Self::Waits(_)) {
            return;
        }
        let Self::Waits(output) = std::mem::replace(self, Self::Failed) else { return };
        let spawn = || -> io::Result<Child> {
            let mut command = Command::new(std::env::current_exe()?);
            command.env(INNER_CALL, "1");
            command.arg(COMMAND).arg(socket).arg(job).arg(&output.path);
            command.stdin(Stdio::null()).stdout(output.file.try_clone()?);
            command.stderr(if alone { Stdio::null() } else { Stdio::inherit() });
            command.spawn()
        };
        match spawn() {
            Ok(child) => *self = Self::Runs(child),
            Err(error) => eprintln!(
                "ckptd: warning: {} is not written: {error}; 'ckptd logs {job}' shows the output",
                output.path.display()
            ),
        }
    }

    /// Waits until all is copied, or it takes too long.
    pub fn finish(&mut self) {
        let Self::Runs(child) = self else { return };
        let since = Instant::now();
        while since.elapsed() < LAST && matches!(child.try_wait(), Ok(None)) {
            sleep(Duration::from_millis(5));
        }
    }
}
