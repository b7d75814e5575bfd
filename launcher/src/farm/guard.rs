//! The process that the user has started. It has the user's terminal and its signals, and starts the worker, which starts
//! all else. All that the worker leaves behind, however it ends, becomes this one's child, and is ended.

use super::worker::processes;
use super::{FarmError, FarmFolder};
use crate::INNER_CALL;
use crate::cli::FarmSettings;
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::session::signals::is_ignored;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// What is passed on to the worker.
const PASSED_ON: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// What a worker is given.
#[derive(Debug)]
pub struct Charge<'a> {
    /// The run.
    pub folder: &'a FarmFolder,
    /// How its tasks are run.
    pub settings: &'a FarmSettings,
    /// Whether nothing is shown but warnings and failures.
    pub quiet: bool,
    /// The command by which it goes on.
    pub resume: String,
}

/// Has a worker run the tasks; the exit status.
///
/// # Errors
/// Where there is none, or it was killed.
pub fn run(charge: &Charge<'_>) -> Result<u8, Failure> {
    let name = charge.folder.name();
    let mut heard = SigSet::empty();
    heard.add(Signal::SIGCHLD);
    // What nohup or a shell has ignored stays so.
    for signal in PASSED_ON.into_iter().filter(|signal| !is_ignored(*signal as i32)) {
        heard.add(signal);
    }
    let failed = |error: std::io::Error| Failure::of(format!("run {name}"), error);
    mind_children().map_err(failed)?;
    heard.thread_block().map_err(|errno| failed(errno.into()))?;
    nix::sys::prctl::set_child_subreaper(true).map_err(|errno| failed(errno.into()))?;
    let worker = start(charge).map_err(failed)?;
    let ended = wait(worker, &heard);
    processes::end_all().map_err(FarmError::process("end what is left of the tasks"))?;
    match ended {
        Ok(WaitStatus::Exited(_, status)) => Ok(u8::try_from(status).unwrap_or(u8::MAX)),
        Ok(WaitStatus::Signaled(_, signal, _)) => Err(Failure::of(
            format!("run {name}"),
            format!(
                "the process that starts its tasks was ended by {signal}; '{}' goes on",
                charge.resume
            ),
        )),
        Ok(other) => {
            Err(Failure::of(format!("run {name}"), format!("its worker is lost: {other:?}")))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Who has started this process may have ignored SIGCHLD: then nobody is told of a child's end, nor how it has ended. A
/// handler changes that, also for all that is started from here.
fn mind_children() -> std::io::Result<()> {
    signal_hook::flag::register(Signal::SIGCHLD as i32, Arc::default()).map(drop)
}

fn start(charge: &Charge<'_>) -> std::io::Result<Pid> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("ckptd").args(["farm", "work"]).arg(charge.folder.path());
    command.arg(serde_json::to_string(charge.settings)?).arg(std::process::id().to_string());
    command.arg(&charge.resume).env(INNER_CALL, "1").stdin(Stdio::null());
    if charge.quiet {
        command.arg("--quiet");
    }
    let child = Interrupts::spawn_with(SigSet::empty(), &mut command)?;
    Ok(processes::pid_of(&child))
}

/// Waits for the worker's end, and passes signals on to it.
fn wait(worker: Pid, heard: &SigSet) -> std::io::Result<WaitStatus> {
    loop {
        let signal = heard.wait()?;
        if signal != Signal::SIGCHLD {
            // It may just have ended.
            let _ = kill(worker, signal);
            continue;
        }
        // Others are what the worker's tasks have left behind: children of this one once the worker is no more.
        match waitpid(worker, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::StillAlive | WaitStatus::Stopped(..) | WaitStatus::Continued(_) => {}
            ended => return Ok(ended),
        }
    }
}
