//! Workflows: tasks that wait for others, in WfCommons' format.
//!
//! - `format`: what of the format is read.
//! - `check`: what tasks wait for, and what must not be.
//! - `names`: names in messages.
//! - `place`: where files are.
//! - `steps`: what is kept of it in the run's folder.

mod check;
mod format;
mod names;
mod place;
mod steps;

pub use names::shown;
pub use steps::{STEPS, Step, Steps};

use super::FarmError;
use super::tasks::Writer;
use std::path::Path;
use thiserror::Error;

/// What can be wrong with a workflow; the text fits after "failed to read the workflow FILE: ".
#[derive(Debug, PartialEq, Eq, Error)]
pub enum WorkflowError {
    /// It exceeds this many bytes.
    #[error("it exceeds the limit of {0} bytes")]
    TooLarge(u64),
    /// It is not in the format.
    #[error("{0}")]
    Format(String),
    /// It is in another version of it.
    #[error("it has schemaVersion '{0}': 1.5 and 1.6 are understood")]
    Version(String),
    /// There is none.
    #[error("there is no task")]
    Empty,
    /// There are too many.
    #[error("it has more than {0} tasks")]
    TooMany(u32),
    /// Two have one id.
    #[error("two tasks have the id '{0}'")]
    SameId(String),
    /// One waits for one that there is not.
    #[error("task '{task}' has the parent '{parent}', which there is not")]
    UnknownParent {
        /// Its id.
        task: String,
        /// That of the other.
        parent: String,
    },
    /// One has a child that there is not.
    #[error("task '{task}' has the child '{child}', which there is not")]
    UnknownChild {
        /// Its id.
        task: String,
        /// That of the other.
        child: String,
    },
    /// Nothing is said of how it is run.
    #[error(
        "task '{0}' has no command: workflow.execution.tasks has no 'command' with a 'program' for it"
    )]
    NoCommand(String),
    /// A file lies elsewhere.
    #[error(
        "file '{file}' of task '{task}' is not within the working directory: paths are relative, without '..'"
    )]
    Outside {
        /// The task's id.
        task: String,
        /// The file's.
        file: String,
    },
    /// A link leads to a file, perhaps elsewhere.
    #[error(
        "the file '{file}' of task '{task}' is reached by the link '{link}': name it by a path without"
    )]
    Linked {
        /// The task's id.
        task: String,
        /// The file's.
        file: String,
        /// The link.
        link: String,
    },
    /// An id or a name is too long.
    #[error("the id or name of task '{id}' has more than {most} bytes")]
    LongName {
        /// The id.
        id: String,
        /// How many there may be.
        most: usize,
    },
    /// There is too much in it.
    #[error("it has more than {0} values")]
    TooManyValues(usize),
    /// Two tasks write a file.
    #[error("file '{file}' is written by two tasks, '{first}' and '{second}'")]
    TwoWriters {
        /// The file's id.
        file: String,
        /// One task's.
        first: String,
        /// The other's.
        second: String,
    },
    /// A task writes what it reads.
    #[error("task '{task}' writes the file '{file}' that it reads: it could not be tried again")]
    ReadsItsOutput {
        /// The task's id.
        task: String,
        /// The file's.
        file: String,
    },
    /// Tasks wait for each other.
    #[error("tasks wait for each other in a circle: {0}")]
    Cycle(String),
    /// Too many of them wait for each other.
    #[error("more than {0} pairs of tasks wait for each other")]
    TooManyPairs(usize),
}

/// Writes the tasks of a workflow into the folder of a run that is being made; how many there are.
///
/// # Errors
/// Where it can't be read, is none that can be run, or the folder can't be written.
pub fn collect(file: &Path, folder: &Path) -> Result<u32, FarmError> {
    let refused = |reason| FarmError::Workflow { path: file.to_owned(), reason };
    let instance = format::read(file)?;
    let directory = std::env::current_dir().map_err(FarmError::io("find", "."))?;
    let checked = check::check(instance, &directory).map_err(refused)?;
    let mut writer = Writer::new(folder)?;
    for command in &checked.commands {
        writer.add(command.as_bytes())?;
    }
    steps::write(folder, &checked.steps)?;
    writer.finish()?;
    // In range: there are no more tasks than a run may have.
    Ok(checked.steps.len() as u32)
}
