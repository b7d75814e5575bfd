//! ckptd as dmtcp_restart.

use super::bridge::{Told, Worker, connect};
use super::image::Pointer;
use super::launch::{images, job_options, note_ignored, tell_port};
use super::options::{Options, Parsed, parse};
use crate::cli::RestartArguments;
use crate::commands::{Context, restart};
use crate::jobs::StateDir;
use ckpt_dmtcp::wire::Kind;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const USAGE: &str = "\
Usage: dmtcp_restart [OPTIONS] IMAGE...

Options as those of dmtcp_launch. This is ckptd under DMTCP's name: IMAGE is a file that its dmtcp_launch has
written at a checkpoint.
";

/// Does it; the exit status.
pub fn perform(context: &Context, arguments: &[OsString]) -> u8 {
    let options = match parse(arguments.to_vec()) {
        Parsed::Do(options) if !options.rest.is_empty() => options,
        Parsed::Help => {
            print!("{USAGE}");
            return 0;
        }
        Parsed::Version => {
            println!("dmtcp_restart (ckptd) {}", env!("CARGO_PKG_VERSION"));
            return 0;
        }
        Parsed::Do(_) => {
            eprint!("{USAGE}");
            return super::failed();
        }
        Parsed::Wrong(why) => {
            eprintln!("dmtcp_restart: wrong usage: {why}");
            return super::failed();
        }
    };
    note_ignored("dmtcp_restart", &options);
    go_on(context, &options).unwrap_or_else(|error| {
        eprintln!("dmtcp_restart: failed to {error}");
        super::failed()
    })
}

fn go_on(context: &Context, options: &Options) -> Result<u8, String> {
    let pointers = options
        .rest
        .iter()
        .map(|file| Pointer::read(Path::new(file)))
        .collect::<Result<Vec<_>, _>>()?;
    let images = images(options)?;
    let (stream, port) = connect(options, &images)?;
    tell_port(options, port)?;
    // Each further job has a process of its own.
    let others = options.rest[1..]
        .iter()
        .map(|file| spawn(options, port, file))
        .collect::<Result<Vec<_>, _>>()?;
    let pointer = &pointers[0];
    let worker = Worker::restart(stream, pointer, options.interval)?;
    let told = Arc::new(Told::default());
    let state = StateDir::find(Some(pointer.dir.clone())).map_err(|error| error.to_string())?;
    let context =
        Context { state, asked_dir: Some(pointer.dir.clone()), start_agent: context.start_agent };
    let job = context.state.find_job(&pointer.job).map_err(|error| error.to_string())?;
    worker.serve(job.path(), Kind::Resuming, images, &told);
    let arguments = RestartArguments {
        job: job.id().to_owned(),
        checkpoint: Some(pointer.checkpoint),
        force: false,
        detach: false,
        options: job_options(),
    };
    let status = restart::perform_alone(&context, &arguments);
    for mut other in others {
        // Its own exit status is its own.
        let _ = other.wait();
    }
    match status {
        Ok(_) if told.to_end.load(Ordering::Relaxed) => Ok(0),
        Ok(status) => Ok(status),
        Err(failure) => Err(failure.to_string().trim_start_matches("failed to ").to_owned()),
    }
}

fn spawn(options: &Options, port: u16, file: &OsString) -> Result<Child, String> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("dmtcp_restart")
        .args(["--join-coordinator", "--quiet", "--coord-host", &options.host])
        .args(["--coord-port", &port.to_string()]);
    if let Some(directory) = &options.directory {
        command.arg("--ckptdir").arg(directory);
    }
    command.arg(file).spawn().map_err(|error| format!("restart {file:?}: {error}"))
}
