//! Running a command on a node, with this process' streams.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use std::os::unix::process::{CommandExt, ExitStatusExt};

use super::{InsideError, call, join};

/// Signals that are handed on.
const FORWARDED: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// What runs where.
#[derive(Debug, clap::Args)]
pub struct EnterArguments {
    /// The node's first process
    #[arg(long)]
    pub init: i32,
    /// Where the command starts
    #[arg(long)]
    pub folder: PathBuf,
    /// A control group for the command
    #[arg(long)]
    pub group: Vec<PathBuf>,
    /// The command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub command: Vec<OsString>,
}

/// Runs the command to its end; its exit status, 128 + N for signal N.
///
/// # Errors
/// When the node is gone or the command cannot be started.
pub fn run(arguments: &EnterArguments) -> Result<u8, InsideError> {
    for group in &arguments.group {
        let file = group.join("cgroup.procs");
        let own = std::process::id().to_string();
        call(format!("write {}", file.display()), std::fs::write(&file, own))?;
    }
    join::join(arguments.init, join::NODE)?;
    let [program, rest @ ..] = arguments.command.as_slice() else { return Ok(2) };
    let what = format!("start {}", program.to_string_lossy());
    // A group of its own: a terminal's signals come once, through here.
    let child =
        Command::new(program).args(rest).current_dir(&arguments.folder).process_group(0).spawn();
    let mut child = call(what, child)?;
    // Not before: the command would inherit it.
    let mut awaited: SigSet = FORWARDED.into_iter().collect();
    awaited.add(Signal::SIGCHLD);
    call("block signals", awaited.thread_block())?;
    let pid = i32::try_from(child.id()).map_err(std::io::Error::other);
    let pid = Pid::from_raw(call("read the command's process id", pid)?);
    loop {
        if let Some(status) = call("wait for the command", child.try_wait())? {
            return Ok(code(status));
        }
        match call("wait for a signal", awaited.wait())? {
            Signal::SIGCHLD => {}
            // It may have ended just now, which the next round sees.
            signal => {
                let _ = kill(pid, signal);
            }
        }
    }
}

fn code(status: ExitStatus) -> u8 {
    let number = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(125);
    u8::try_from(number).unwrap_or(125)
}
