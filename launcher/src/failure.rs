//! Why a command did not do what it was asked.

use crate::EXIT_FAILED;
use crate::mpi::GroupError;
use std::io;
use thiserror::Error;

/// Why a command did not do what it was asked; its text follows `ckptd: `.
#[derive(Debug, Error)]
pub enum Failure {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Ranks can't be grouped as it says.
    #[error("wrong usage: {0}")]
    Group(#[from] GroupError),
    /// It could not be done; the text fits after "failed to ...".
    #[error("failed to {0}")]
    Failed(String),
    /// The job's program can't be run; the text fits after "failed to ...".
    #[error("failed to {told}")]
    Program {
        /// Which one, and why.
        told: String,
        /// As a shell would end.
        status: u8,
    },
    /// What it prints could not be written.
    #[error("failed to write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    /// A failure to do something, with its cause.
    pub fn of(what: impl std::fmt::Display, cause: impl std::fmt::Display) -> Failure {
        Failure::Failed(format!("{what}: {cause}"))
    }

    /// The exit status that it leads to.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Failure::Usage(_) | Failure::Group(_) => 2,
            Failure::Program { status, .. } => *status,
            // As a shell shows a program that SIGPIPE has ended.
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 141,
            Failure::Failed(_) | Failure::Output(_) => EXIT_FAILED,
        }
    }

    /// Whether the reader of standard output went away, which is nothing to complain about.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
