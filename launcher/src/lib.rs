//! `ckptd`: the command.
//!
//! A library, so that the tests can run the whole command with an agent of their own.
//!
//! - `bucket`: archives in S3.
//! - [`cli`]: the command line, its help, what is wrong usage.
//! - `commands`: one file a command.
//! - `jobs`: the folders in which jobs are kept.
//! - `session`: a job that runs in the foreground, with its embedded coordinator and agent.
//! - `client`: what commands say to the process that runs a job, a cluster's or its launcher.
//! - `cluster`: the commands where the machine belongs to a cluster.
//! - `interrupts`: signals to a command that has something to clean up.
//! - `mpi`: run times of MPI, and what their launchers are told.
//! - `out`: what commands print.
//! - `recipients`: archives that are encrypted for somebody.
//! - `tables`, `text`: text for people.
//! - `timeline`: what `--trace` writes.

#![forbid(unsafe_code)]

pub mod agent;
mod bucket;
pub mod cli;
mod client;
mod cluster;
mod commands;
mod failure;
mod interrupts;
pub mod jobs;
mod mpi;
mod out;
mod output_file;
mod recipients;
mod session;
mod tables;
mod text;
mod timeline;

use clap::Parser;
use std::process::ExitCode;

/// Exit status when ckptd itself failed.
pub const EXIT_FAILED: u8 = 125;

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
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; clap uses status 2 for all others.
            let status = u8::try_from(error.exit_code()).unwrap_or(2);
            let _ = error.print();
            return ExitCode::from(status);
        }
    };
    match commands::perform(cli, start_agent) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            if !failure.is_broken_pipe() {
                eprintln!("ckptd: {failure}");
            }
            ExitCode::from(failure.exit_status())
        }
    }
}
