//! What ends the daemons of an allocation, and with them the job, where the command that has started them is killed. Nobody
//! tells it of that: the pipe from there closes.

use super::ending::{self, Process};
use super::remove;
use crate::INNER_CALL;
use crate::commands::Context;
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use nix::sys::signal::Signal;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// How the coordinator is called in what the guard is told.
const COORDINATOR: &str = "coordinator";
/// How the step of the agents is.
const AGENTS: &str = "agents";

/// The guard's process. Dropped, it is not needed any more.
pub struct Guard(Child);

impl Guard {
    /// Starts it for what has its place in that folder.
    ///
    /// # Errors
    /// Where there can't be another process.
    pub fn start(own: &Path, folder: &Path, interrupts: &Interrupts) -> io::Result<Self> {
        let mut command = Command::new(own);
        command.arg("--dir").arg(folder).args(["slurm", "guard"]);
        command.env(INNER_CALL, "1");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        // It outlives what tells all of an allocation to end, as the coordinator does.
        interrupts.spawn_without(Signal::SIGTERM, &mut command).map(Self)
    }

    /// Tells it of the coordinator.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn coordinator_is(&mut self, process: &Process) -> io::Result<()> {
        self.tell(COORDINATOR, process)
    }

    /// Tells it of the step of the agents.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn agents_are(&mut self, process: &Process) -> io::Result<()> {
        self.tell(AGENTS, process)
    }

    fn tell(&mut self, what: &str, process: &Process) -> io::Result<()> {
        let Some(pipe) = &mut self.0.stdin else { return Ok(()) };
        writeln!(pipe, "{what} {}", process.pid())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Before the pipe closes.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `ckptd slurm guard`: waits until the pipe closes, and ends what it was told of.
///
/// # Errors
/// None so far: nobody would hear of it.
pub fn perform(context: &Context) -> Result<u8, Failure> {
    let (mut coordinator, mut agents) = (None, None);
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match line.split_once(' ').map(|(what, pid)| (what, pid.parse().map(Process::of))) {
            Some((COORDINATOR, Ok(process))) => coordinator = Some(process),
            Some((AGENTS, Ok(process))) => agents = Some(process),
            _ => {}
        }
    }
    let folder = context.state.path();
    // Whoever reads that may be gone, too.
    let _ = writeln!(io::stderr(), "ckptd: 'ckptd slurm run' was killed: its job ends");
    if let Some(coordinator) = coordinator {
        ending::end(folder, &coordinator, agents.as_ref());
    }
    remove(folder);
    Ok(0)
}
