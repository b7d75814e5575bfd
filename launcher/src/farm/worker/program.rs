//! The program of a task.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// What a task runs.
#[derive(Debug)]
pub struct Program {
    /// The program and its arguments; never empty.
    pub words: Vec<OsString>,
    /// Where.
    pub directory: PathBuf,
    /// The environment; None: the worker's.
    pub environment: Option<Vec<(OsString, OsString)>>,
}

impl Program {
    /// As a command of this machine.
    pub fn command(self) -> Command {
        let mut words = self.words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).current_dir(self.directory);
        if let Some(environment) = self.environment {
            command.env_clear().envs(environment);
        }
        command
    }
}
