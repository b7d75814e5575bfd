//! ckptd as dmtcp_launch.

use super::bridge::{Told, Worker, connect};
use super::options::{Options, Parsed, parse};
use crate::cli::{FileArguments, IntervalSetting, JobOptions, RunArguments};
use crate::commands::{Context, run};
use ckpt_dmtcp::wire::Kind;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const USAGE: &str = "\
Usage: dmtcp_launch [OPTIONS] COMMAND...

  -h, --coord-host HOST   where the coordinator is [default: $DMTCP_COORD_HOST, else localhost]
  -p, --coord-port PORT   its port; 0: any free one [default: $DMTCP_COORD_PORT, else 7779]
      --port-file FILE    write its port there
  -j, --join-coordinator  only one that runs already
      --new-coordinator   only a new one, on a free port unless one is given
      --any-coordinator   one that runs, else a new one (the default)
  -i, --interval SECONDS  time between checkpoints, 0 for none [default: $DMTCP_CHECKPOINT_INTERVAL]
      --ckptdir DIR       where images are named [default: $DMTCP_CHECKPOINT_DIR, else where it is launched]
  -q, --quiet             without notes
      --help, --version

This is ckptd under DMTCP's name: the command runs under ckptd's own engine, and images are small files that name
a checkpoint of it. Other options of DMTCP are accepted, and mean nothing.
";

/// Does it; the exit status.
pub fn perform(context: &Context, arguments: Vec<OsString>) -> u8 {
    let options = match parse(arguments) {
        Parsed::Do(options) if !options.rest.is_empty() => options,
        Parsed::Help => {
            print!("{USAGE}");
            return 0;
        }
        Parsed::Version => {
            println!("dmtcp_launch (ckptd) {}", env!("CARGO_PKG_VERSION"));
            return 0;
        }
        Parsed::Do(_) => {
            eprint!("{USAGE}");
            return super::failed();
        }
        Parsed::Wrong(why) => {
            eprintln!("dmtcp_launch: wrong usage: {why}");
            return super::failed();
        }
    };
    note_ignored("dmtcp_launch", &options);
    launch(context, options).unwrap_or_else(|error| {
        eprintln!("dmtcp_launch: failed to {error}");
        super::failed()
    })
}

/// Says which options mean nothing here.
pub fn note_ignored(name: &str, options: &Options) {
    if options.quiet == 0 && !options.ignored.is_empty() {
        eprintln!("{name}: note: no meaning with ckptd's engine: {}", options.ignored.join(" "));
    }
}

/// Where images are named.
pub fn images(options: &Options) -> Result<PathBuf, String> {
    let directory = options.directory.as_deref().unwrap_or_else(|| ".".as_ref());
    std::path::absolute(directory).map_err(|error| format!("find {directory:?}: {error}"))
}

/// Options of a job whose checkpoints the coordinator orders.
pub fn job_options() -> JobOptions {
    JobOptions {
        interval: Some(IntervalSetting::Seconds(0.0)),
        quiet: true,
        ..JobOptions::default()
    }
}

/// Writes the coordinator's port where it is wanted.
pub fn tell_port(options: &Options, port: u16) -> Result<(), String> {
    match &options.port_file {
        Some(file) => std::fs::write(file, format!("{port}\n"))
            .map_err(|error| format!("write the port to {file:?}: {error}")),
        None => Ok(()),
    }
}

fn launch(context: &Context, options: Options) -> Result<u8, String> {
    let images = images(&options)?;
    let program = options.rest.first().map(Path::new).and_then(Path::file_name);
    let program = program.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (stream, port) = connect(&options, &images)?;
    tell_port(&options, port)?;
    let worker = Worker::launch(stream, &program, options.interval)?;
    let told = Arc::new(Told::default());
    let arguments = RunArguments {
        name: None,
        detach: false,
        cpu_baseline: None,
        files: FileArguments::default(),
        options: job_options(),
        command: options.rest,
    };
    let status = run::perform_alone(context, arguments, |job| {
        worker.serve(job.path(), Kind::AfterExec, images, &told);
    });
    match status {
        Ok(_) if told.to_end.load(Ordering::Relaxed) => Ok(0),
        Ok(status) => Ok(status),
        Err(failure) => Err(failure.to_string().trim_start_matches("failed to ").to_owned()),
    }
}
