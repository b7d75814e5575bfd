//! ckptd called by one of DMTCP's names: DMTCP's options and environment, the native engine.
//!
//! A job is one worker of a coordinator that speaks DMTCP's protocol, ours or DMTCP's own: it reaches the barriers
//! of a checkpoint like any worker, takes its own checkpoint between them, and tells the name of a small file, its
//! *image*, that says which job and checkpoint it is.
//!
//! - `options`: what all of them take.
//! - `command`, `coordinator`, `launch`, `restart`: a file a name.
//! - `bridge`: the job as a worker.
//! - `image`: the small file.

mod bridge;
mod command;
mod coordinator;
mod image;
mod launch;
mod options;
mod restart;

use crate::agent::StartAgent;
use crate::commands::Context;
use crate::jobs::StateDir;
use std::ffi::OsString;
use std::path::Path;

/// Exit status where DMTCP itself failed, unless DMTCP_FAIL_RC is another.
const EXIT_DMTCP: u8 = 99;

/// The exit status by which a failure of DMTCP's is told from the program's own.
fn failed() -> u8 {
    let asked = std::env::var("DMTCP_FAIL_RC").ok().and_then(|text| text.parse().ok());
    asked.filter(|status| *status != 0).unwrap_or(EXIT_DMTCP)
}

/// Does what the name says that ckptd was called by; None where it is none of DMTCP's.
pub fn called(start_agent: StartAgent) -> Result<u8, StartAgent> {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let Some(name) = Path::new(&name).file_name().and_then(|name| name.to_str()) else {
        return Err(start_agent);
    };
    let arguments: Vec<OsString> = arguments.collect();
    let status = match name {
        "dmtcp_command" => command::perform(&arguments),
        "dmtcp_coordinator" => coordinator::perform(&arguments),
        "dmtcp_launch" => with_context(start_agent, |context| launch::perform(context, arguments)),
        "dmtcp_restart" => {
            with_context(start_agent, |context| restart::perform(context, &arguments))
        }
        _ => return Err(start_agent),
    };
    Ok(status)
}

fn with_context(start_agent: StartAgent, perform: impl FnOnce(&Context) -> u8) -> u8 {
    match StateDir::find(None) {
        Ok(state) => perform(&Context { state, asked_dir: None, start_agent }),
        Err(error) => {
            eprintln!("ckptd: failed to {error}");
            failed()
        }
    }
}
