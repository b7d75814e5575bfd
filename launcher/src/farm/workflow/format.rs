//! What is read of WfCommons' format, WfFormat 1.5 and 1.6: https://github.com/wfcommons/WfFormat. Runs are recorded in it
//! and generated, so that much more is in it than is needed to run one: machines, times, sizes of files.

use super::WorkflowError;
use super::names::shown;
use crate::farm::FarmError;
use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The largest file that is read, in bytes: a task takes about a kilobyte.
const MOST: u64 = 512 * 1024 * 1024;
/// The most values that it may have: each takes memory, however short it is.
const MOST_VALUES: usize = 32 << 20;
/// The versions of the format that are understood; they are the same in what is read.
const VERSIONS: [&str; 2] = ["1.5", "1.6"];

/// A workflow and, perhaps, how it was run.
#[derive(Debug, Deserialize)]
pub struct Instance {
    /// The version of the format.
    #[serde(rename = "schemaVersion")]
    pub version: String,
    /// The workflow.
    pub workflow: Workflow,
}

/// A workflow.
#[derive(Debug, Deserialize)]
pub struct Workflow {
    /// What is to be run.
    pub specification: Specification,
    /// How.
    #[serde(default)]
    pub execution: Execution,
}

/// What is to be run.
#[derive(Debug, Deserialize)]
pub struct Specification {
    /// The tasks.
    pub tasks: Vec<Specified>,
}

/// What is said of a task.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Specified {
    /// What others know it by.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// Those that it waits for.
    #[serde(default)]
    pub parents: Vec<String>,
    /// Those that wait for it.
    #[serde(default)]
    pub children: Vec<String>,
    /// Files that it reads.
    #[serde(default)]
    pub input_files: Vec<String>,
    /// Files that it writes.
    #[serde(default)]
    pub output_files: Vec<String>,
}

/// How tasks are run.
#[derive(Debug, Default, Deserialize)]
pub struct Execution {
    /// Each.
    #[serde(default)]
    pub tasks: Vec<Executed>,
}

/// How a task is run.
#[derive(Debug, Deserialize)]
pub struct Executed {
    /// Which.
    pub id: String,
    /// By this.
    pub command: Option<Command>,
}

/// A command.
#[derive(Debug, Deserialize)]
pub struct Command {
    /// The program.
    #[serde(default)]
    pub program: String,
    /// Its arguments. One of them may be several words: in recorded runs, '--percent-cpu 0.6' is one.
    #[serde(default)]
    pub arguments: Vec<String>,
}

impl Command {
    /// It as the shell takes it.
    pub fn line(&self) -> String {
        let mut line = self.program.clone();
        for argument in &self.arguments {
            line.push(' ');
            line.push_str(argument);
        }
        line
    }
}

/// Reads a file.
///
/// # Errors
/// Where it can't be read, or is not in the format.
pub fn read(path: &Path) -> Result<Instance, FarmError> {
    let refused = |reason| FarmError::Workflow { path: path.to_owned(), reason };
    let file = File::open(path).map_err(FarmError::io("open", path))?;
    let mut text = Vec::new();
    // One byte more than may be shows that there is more.
    file.take(MOST + 1).read_to_end(&mut text).map_err(FarmError::io("read", path))?;
    if text.len() as u64 > MOST {
        return Err(refused(WorkflowError::TooLarge(MOST)));
    }
    parse(&text).map_err(refused)
}

/// Reads a text.
///
/// # Errors
/// Where it is not in the format.
pub fn parse(text: &[u8]) -> Result<Instance, WorkflowError> {
    // Commas within strings are taken for more of them.
    if text.iter().filter(|byte| **byte == b',').count() > MOST_VALUES {
        return Err(WorkflowError::TooManyValues(MOST_VALUES));
    }
    let instance: Instance =
        protocol::json::read(text).map_err(|error| WorkflowError::Format(error.to_string()))?;
    match VERSIONS.contains(&instance.version.as_str()) {
        true => Ok(instance),
        false => Err(WorkflowError::Version(shown(&instance.version))),
    }
}
