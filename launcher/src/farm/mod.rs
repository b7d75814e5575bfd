//! Many tasks, each of which ends once. `ckptd_farm` decides; this does what it says.
//!
//! - `template`: commands made of values.
//! - `quoting`: where in a command values may stand.
//! - `folder`: the folder of a run.
//! - `tasks`: the commands, in a file.
//! - `workflow`: tasks that wait for others.
//! - `locked`: a file that one process at a time has locked.
//! - `journal`: what has ended; `line`: a line of it; `syncing`: what makes that durable.
//! - `results`: a line of the results.
//! - `history`: the journal between the parts of a run.
//! - `guard`: the process that the user has started; it looks after the one that starts the tasks.
//! - `worker`: that one.
//! - `idl`: functions that a program in C calls as tasks.
//! - `limits`: how much a run may have.
//! - `open`: a farm whose tasks are submitted one by one.

mod folder;
mod guard;
mod history;
pub mod idl;
mod journal;
mod limits;
mod line;
mod locked;
mod open;
mod quoting;
mod results;
mod syncing;
mod tasks;
mod template;
mod worker;
mod workflow;

pub use folder::{Draft, FarmFolder, Open};
pub use guard::{Charge, run as guard};
pub use history::{History, Part, Span, history, reopen};
pub use journal::{check_results, check_tries};
pub use open::{
    Ends, Gate, Reply, Request, RunningTask, Stuck, Submission, ask, begin, go_on, is_stopped,
    note_stop, serve, submit, until_gone,
};
pub use results::{line_of_end, line_of_stuck, outcome, status, words};
pub use tasks::{Collected, Tasks, collect};
pub use template::stem;
pub use worker::processes::end_left;
pub use worker::{change_apart, cluster_of, errand, remove_jobs, work};
pub use workflow::collect as collect_workflow;

use crate::failure::Failure;
use crate::jobs::JobError;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use template::TemplateError;
use thiserror::Error;

/// In the environment of all that a run starts: the run's folder.
pub const MARK: &str = "CKPTD_FARM";
/// In the environment of a task: its number.
pub const TASK: &str = "CKPTD_FARM_TASK";

/// Says something on standard error. A terminal that is gone, or a pipe that nobody reads, must not end a run:
/// `eprintln!` would panic.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "ckptd: {text}");
}

/// What can be wrong with a run; the text fits after "failed to ...".
#[derive(Debug, Error)]
pub enum FarmError {
    /// The system refused.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no such run.
    #[error("find the run {0}: there is none of that name; 'ckptd farm ls' lists them")]
    Unknown(String),
    /// The name is another run's.
    #[error(
        "name the run {0}: there is one of that name; 'ckptd farm run --resume {0}' goes on with it, 'ckptd farm rm {0}' forgets it"
    )]
    NameTaken(String),
    /// It is an open farm.
    #[error(
        "go on with {0} like that: its tasks are submitted one by one; 'ckptd farm start {0}' goes on with it"
    )]
    Open(String),
    /// It is a run whose tasks are all there from the beginning.
    #[error(
        "use the run {0} as a farm of single tasks: it has all its tasks already; '--farm NAME' names another one"
    )]
    NotOpen(String),
    /// There is no such farm yet.
    #[error("find the farm {0}: there is none of that name; 'ckptd farm submit' begins it")]
    NoFarm(String),
    /// It has no such task.
    #[error(
        "find task {task} of {name}: there is none; 'ckptd farm status {name}' shows its tasks"
    )]
    NoTask {
        /// The farm.
        name: String,
        /// The number.
        task: u32,
    },
    /// Nobody runs an open farm that somebody waits for.
    #[error(
        "wait for {left} of {name}: nobody runs it, and {left} has not ended; 'ckptd farm start {name}' goes on"
    )]
    Idle {
        /// The farm.
        name: String,
        /// What is waited for.
        left: String,
    },
    /// What somebody waits for can't be brought back.
    #[error(
        "wait for {left} of {name}: task {task} can't be brought back from its checkpoint: {reason}; 'ckptd farm stop {name}' \
         and 'ckptd farm start {name}' try it again, 'ckptd farm cancel --farm {name} {task}' gives it up"
    )]
    Stuck {
        /// The farm.
        name: String,
        /// What is waited for.
        left: String,
        /// The first one.
        task: u32,
        /// Why not.
        reason: String,
    },
    /// Somebody has removed an open farm while somebody waits for it.
    #[error("wait for {left} of {name}: the farm was removed")]
    Removed {
        /// The farm.
        name: String,
        /// What is waited for.
        left: String,
    },
    /// A worker can't be started.
    #[error("start the farm {name}: {reason}; 'ckptd farm start {name}' tries it again")]
    NotBegun {
        /// The farm.
        name: String,
        /// Why not.
        reason: String,
    },
    /// A worker does not answer.
    #[error("ask the farm {name}: {source}; 'ckptd farm status {name}' shows what is recorded")]
    Unanswered {
        /// The farm.
        name: String,
        /// Why not.
        source: io::Error,
    },
    /// A worker refuses.
    #[error("{0}")]
    Refused(String),
    /// The cluster does not answer, or there is none.
    #[error("{0}")]
    Cluster(String),
    /// It runs.
    #[error("lock the run {0}: it is running")]
    Running(String),
    /// Its record can't be used.
    #[error("read {}: {reason}", path.display())]
    BadRecord {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Its journal can't be used.
    #[error("read the journal {}: {reason}", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A command can't be a task.
    #[error("make task {number} of this: {reason}")]
    BadTask {
        /// Its number.
        number: u64,
        /// Why not.
        reason: &'static str,
    },
    /// A workflow can't be run.
    #[error("read the workflow {}: {reason}", path.display())]
    Workflow {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: workflow::WorkflowError,
    },
    /// A description of functions is none.
    #[error("read the description {}:{error}", path.display())]
    Idl {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        error: idl::IdlError,
    },
    /// Results of another run would be mixed with this one's.
    #[error("keep results in {}: there are some of another run; take a new folder", .0.display())]
    OtherResults(PathBuf),
    /// The journal would be too large to be read.
    #[error("keep a record of all tries: {tasks} tasks can have at most {most} retries each")]
    TooManyTries {
        /// How many tasks there are.
        tasks: u32,
        /// How often each can be tried again.
        most: u64,
    },
    /// Values can't take their places.
    #[error("make tasks of the values: {0}")]
    Template(#[from] template::TemplateError),
    /// As of a job.
    #[error("{0}")]
    Job(#[from] JobError),
    /// A process could not be looked after.
    #[error("{action}: {source}")]
    Process {
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl FarmError {
    fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> FarmError {
        let path = path.as_ref().to_owned();
        move |source| FarmError::Io { action, path, source }
    }

    /// What a cluster that tasks run on has come to.
    fn cluster(failure: Failure) -> Self {
        match failure {
            Failure::Failed(text) => Self::Cluster(text),
            other => Self::Cluster(other.to_string()),
        }
    }

    pub fn process<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> FarmError {
        move |source| FarmError::Process { action, source: source.into() }
    }
}

impl From<FarmError> for Failure {
    fn from(error: FarmError) -> Self {
        match error {
            FarmError::Template(TemplateError::Quoted(_) | TemplateError::NoList { .. }) => {
                Failure::Usage(format!("wrong usage: {error}"))
            }
            error => Failure::Failed(error.to_string()),
        }
    }
}
