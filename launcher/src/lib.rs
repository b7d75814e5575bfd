//! `ckptd`: the command.
//!
//! A library, so that the tests can run the whole command with an agent of their own.
//!
//! - `bucket`: archives in S3.
//! - [`cli`]: the command line, its help, what is wrong usage.
//! - `commands`: one file a command.
//! - `configuration`: what options are where the command line does not say.
//! - `jobs`: the folders in which jobs are kept.
//! - `session`: a job that runs in the foreground, with its embedded coordinator and agent.
//! - `client`: what commands say to the process that runs a job, a cluster's or its launcher.
//! - `cluster`: the commands where the machine belongs to a cluster.
//! - `exporting`: whether spans are to be exported.
//! - `farm`: many tasks on this machine.
//! - `hooks`: commands that are called when something happens to a job.
//! - `interrupts`: signals to a command that has something to clean up.
//! - `journal`: the journal of systemd, with fields.
//! - `last_line`: why a command has failed.
//! - `mpi`: run times of MPI, and what their launchers are told.
//! - `nearest`: names that were perhaps meant.
//! - `out`: what commands print.
//! - `progress`: how far long work is.
//! - `resolving`: hosts of servers.
//! - `recipients`: archives that are encrypted for somebody.
//! - `spans`: spans for a collector of OpenTelemetry.
//! - `tables`, `text`: text for people.
//! - `timeline`: what `--trace` writes.

#![forbid(unsafe_code)]

pub mod agent;
mod bucket;
pub mod cli;
mod client;
mod cluster;
mod commands;
#[cfg(feature = "configuration")]
mod configuration;
mod exporting;
mod failure;
mod farm;
mod hooks;
mod interrupts;
pub mod jobs;
mod journal;
mod last_line;
mod mpi;
#[cfg(any(feature = "configuration", feature = "manual"))]
mod nearest;
mod out;
mod output_file;
mod progress;
mod recipients;
#[cfg(any(feature = "opentelemetry", feature = "s3", feature = "webhooks"))]
mod resolving;
mod session;
#[cfg(feature = "opentelemetry")]
mod spans;
#[cfg(not(feature = "opentelemetry"))]
#[path = "without_spans.rs"]
mod spans;
mod tables;
mod text;
mod timeline;

use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;
use std::process::ExitCode;

/// In the environment of what ckptd calls of itself, which is told all that it is to know: no configuration is read.
const INNER_CALL: &str = "CKPTD_INNER";

/// Exit status when ckptd itself failed.
pub const EXIT_FAILED: u8 = 125;

/// Exit status when the job's program is there and can't be executed, as of a shell.
pub const EXIT_NOT_EXECUTABLE: u8 = 126;

/// Exit status when there is no such program, as of a shell.
pub const EXIT_NOT_FOUND: u8 = 127;

/// Runs the command of this process's arguments, with embedded agents from `start_agent`.
pub fn main_with(start_agent: agent::StartAgent) -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == session::TERMINAL_GUARD_NAME) {
        session::keep_terminal();
        return ExitCode::SUCCESS;
    }
    let start_agent = match commands::called(start_agent) {
        Ok(status) => return ExitCode::from(status),
        Err(start_agent) => start_agent,
    };
    #[cfg(feature = "manual")]
    match commands::complete() {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return ExitCode::from(told(&error)),
    }
    let cli = match parse() {
        Ok(cli) => cli,
        Err(status) => return ExitCode::from(status),
    };
    let pending = hooks::Pending::default();
    let status = match commands::perform(cli, start_agent, &pending) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            if !failure.is_broken_pipe() {
                eprintln!("ckptd: {failure}");
            }
            ExitCode::from(failure.exit_status())
        }
    };
    pending.finish();
    status
}

/// What the command line says, and the configuration where it says nothing; or the exit status, once what is wrong has been
/// told.
fn parse() -> Result<cli::Cli, u8> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let definition = cli::Cli::command();
    // Nothing else shows paragraphs.
    let definition = match arguments.iter().any(|word| word == "--help") {
        true => cli::flowing(definition),
        false => definition,
    };
    #[cfg(feature = "configuration")]
    let arguments = configuration::apply(&definition, arguments).map_err(|error| {
        eprintln!("ckptd: {error}");
        2
    })?;
    let matches = definition.try_get_matches_from(arguments);
    matches.and_then(|matches| cli::Cli::from_arg_matches(&matches)).map_err(|error| told(&error))
}

/// Says what clap has found; the exit status of it.
fn told(error: &clap::Error) -> u8 {
    // Help and version are no errors; clap uses status 2 for all others.
    let _ = error.print();
    let arguments = std::env::args_os().skip(1);
    let arguments: Vec<_> = arguments.map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(hint) = cli::elsewhere::hint(error, &arguments) {
        eprintln!("\n  tip: {hint}");
    }
    u8::try_from(error.exit_code()).unwrap_or(2)
}
