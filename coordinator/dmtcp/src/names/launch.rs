//! ckptd as dmtcp_launch.

use super::bridge::{Told, Worker, connect, tell_port};
use super::error::CallError;
use super::options::{Options, VERSION, launched};
use super::{Native, failed};
use crate::wire::Kind;
use clap::Parser;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

/// Runs a command under ckptd's own engine: its images are small files that name a checkpoint of it
///
/// This is ckptd under DMTCP's name. Other options of DMTCP are accepted, and mean nothing.
#[derive(Debug, Parser)]
#[command(name = "dmtcp_launch", version = VERSION, disable_help_flag = true, args_override_self = true)]
pub struct Launch {
    #[command(flatten)]
    pub options: Options,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Does it; the exit status.
pub fn perform(native: &dyn Native, arguments: &[OsString]) -> u8 {
    let asked = match launched(arguments, |asked: &Launch| &asked.options) {
        Ok(asked) => asked,
        Err(status) => return status,
    };
    launch(native, asked).unwrap_or_else(|error| {
        eprintln!("dmtcp_launch: failed to {error}");
        failed()
    })
}

fn launch(native: &dyn Native, asked: Launch) -> Result<u8, CallError> {
    let Launch { options, command } = asked;
    let images = options.images()?;
    let program = command.first().map(Path::new).and_then(Path::file_name);
    let program = program.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (stream, port) = connect(&options, &images)?;
    tell_port(&options, port)?;
    let worker = Worker::launch(stream, &program, options.interval)?;
    let told = Arc::new(Told::default());
    let ask = native.ask();
    let status = native.run(command, worker.begins(ask, Kind::AfterExec, images, &told))?;
    Ok(told.status(status))
}
