//! ckptd as dmtcp_restart.

use super::bridge::{Told, Worker, connect, tell_port};
use super::error::CallError;
use super::image::Pointer;
use super::options::{Options, VERSION, launched};
use super::{Native, failed};
use crate::wire::Kind;
use clap::Parser;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;

/// Restarts what dmtcp_launch has run, from the files that it has written at a checkpoint
///
/// This is ckptd under DMTCP's name. Images of DMTCP's own are passed on to DMTCP's own dmtcp_restart, which must be in PATH.
#[derive(Debug, Parser)]
#[command(name = "dmtcp_restart", version = VERSION, disable_help_flag = true, args_override_self = true)]
struct Restart {
    #[command(flatten)]
    options: Options,
    /// What dmtcp_launch has written
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<PathBuf>,
}

/// Does it; the exit status.
pub fn perform(native: &dyn Native, arguments: &[OsString]) -> u8 {
    let asked = match launched(arguments, |asked: &Restart| &asked.options) {
        Ok(asked) => asked,
        Err(status) => return status,
    };
    go_on(native, &asked, arguments).unwrap_or_else(|error| {
        eprintln!("dmtcp_restart: failed to {error}");
        failed()
    })
}

fn go_on(native: &dyn Native, asked: &Restart, arguments: &[OsString]) -> Result<u8, CallError> {
    let Restart { options, images: files } = asked;
    let pointers = files.iter().map(|file| Pointer::read(file)).collect::<Result<Vec<_>, _>>()?;
    if pointers.iter().all(Option::is_none) {
        // They hold DMTCP's library.
        let program = native.program("dmtcp_restart");
        let program = program.ok_or_else(|| CallError::WithoutDmtcp(files[0].clone()))?;
        let error = Command::new(&program).args(arguments).exec();
        return Err(CallError::file("execute", program)(error));
    }
    let pointers: Option<Vec<Pointer>> = pointers.into_iter().collect();
    let pointers = pointers.ok_or(CallError::Mixed)?;
    let images = options.images()?;
    let (stream, port) = connect(options, &images)?;
    tell_port(options, port)?;
    // Each further job has a process of its own.
    let others = files[1..].iter().map(|file| spawn(options, port, file));
    let others = others.collect::<Result<Vec<_>, _>>()?;
    let worker = Worker::restart(stream, &pointers[0], options.interval)?;
    let told = Arc::new(Told::default());
    let begins = worker.begins(native.ask(), Kind::Resuming, images, &told);
    let status = native.restart(&pointers[0], begins);
    for mut other in others {
        // Its own exit status is its own.
        let _ = other.wait();
    }
    Ok(told.status(status?))
}

fn spawn(options: &Options, port: u16, file: &PathBuf) -> Result<Child, CallError> {
    Command::new("/proc/self/exe")
        .arg0("dmtcp_restart")
        .args(["--join-coordinator", "--quiet", "--coord-host", &options.host])
        .args(["--coord-port", &port.to_string()])
        .arg("--ckptdir")
        .arg(&options.directory)
        .arg(file)
        .spawn()
        .map_err(CallError::file("restart", file))
}
