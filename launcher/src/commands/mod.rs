//! One file a command.

mod checkpoint;
mod doctor;
mod gc;
mod inspect;
mod ls;
mod restart;
mod rm;
mod run;
mod status;
mod stop;
mod summary;
mod target;
mod verify;

use crate::agent::StartAgent;
use crate::cli::{Cli, Command, JobOptions};
use crate::failure::Failure;
use crate::jobs::StateDir;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

/// What every command needs.
struct Context {
    state: StateDir,
    /// The folder, where it was given on the command line.
    asked_dir: Option<PathBuf>,
    start_agent: StartAgent,
}

impl Context {
    /// The command by which a job is restarted, as the user would have to type it here.
    fn resume_command(&self, name: &str) -> String {
        match &self.asked_dir {
            Some(dir) => format!("ckptd restart {name} --dir {}", dir.display()),
            None => format!("ckptd restart {name}"),
        }
    }
}

/// Whether a session tells of each checkpoint.
fn is_loud(options: &JobOptions) -> bool {
    options.verbose || (std::io::stderr().is_terminal() && !options.quiet)
}

/// Prints text, or says that it could not.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints a value as JSON.
fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::of("write JSON", error))?;
    print(&(text + "\n"))
}

/// Does what the command line says; the exit status.
pub fn perform(cli: Cli, start_agent: StartAgent) -> Result<u8, Failure> {
    let context =
        Context { state: StateDir::find(cli.dir.clone())?, asked_dir: cli.dir, start_agent };
    match cli.command {
        Command::Run(arguments) => return run::perform(&context, arguments),
        Command::Restart(arguments) => return restart::perform(&context, &arguments),
        Command::Doctor { list } => return doctor::perform(&context, list),
        Command::Verify { job, list } => return verify::perform(&context, &job, list),
        Command::Checkpoint { job } => checkpoint::perform(&context, &job)?,
        Command::Stop { job, checkpoint } => stop::perform(&context, &job, checkpoint)?,
        Command::Ls(list) => ls::perform(&context, list)?,
        Command::Status { job, list } => status::perform(&context, job.as_deref(), list)?,
        Command::Inspect(arguments) => inspect::perform(&context, &arguments)?,
        Command::Gc { job, list } => gc::perform(&context, job.as_deref(), list)?,
        Command::Rm { jobs } => rm::perform(&context, &jobs)?,
    }
    Ok(0)
}
