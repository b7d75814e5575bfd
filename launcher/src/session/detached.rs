//! A job of this machine alone that nobody stays with: `--detach`.
//!
//! The command that is called starts itself once more, and waits until that one says that the job runs. The other one stays
//! with the job, in a session of its own: what a terminal's end does to those who sit at it does not reach the job.

use crate::failure::Failure;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::process::{Command, Stdio};

/// In the environment of the command that stays: the process that waits for its word. Of no other process it means anything.
const VARIABLE: &str = "CKPTD_DETACHED";
/// Longer than any name of a job.
const LONGEST: u64 = 4096;

/// The command that stays with a job, which does not run yet.
#[derive(Debug, Clone, Copy)]
pub struct Staying(());

/// What a command does that may be asked not to stay with its job: on with that, or an end with a status, since another one stays.
///
/// # Errors
/// Where the other one can't be started, or this one, which is that, may not have a session of its own.
pub fn stay(is_asked: bool, what: &str) -> Result<ControlFlow<u8, Option<Staying>>, Failure> {
    if !is_asked {
        return Ok(ControlFlow::Continue(None));
    }
    match Staying::claim()? {
        Some(staying) => Ok(ControlFlow::Continue(Some(staying))),
        None => begin(what).map(ControlFlow::Break),
    }
}

impl Staying {
    /// Whether this is that command; if so, it leaves its terminal.
    fn claim() -> Result<Option<Self>, Failure> {
        let waiting = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
        if waiting != Some(nix::unistd::getppid().as_raw()) {
            return Ok(None);
        }
        nix::unistd::setsid().map_err(|errno| Failure::of("leave the terminal", errno))?;
        Ok(Some(Self(())))
    }

    /// Says that the job runs. From then on nobody reads what this process writes.
    ///
    /// # Errors
    /// Where nobody waits for it any more: whoever has called the command has interrupted it.
    pub fn job_runs(self, name: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{name}")?;
        out.flush()?;
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        nix::unistd::dup2_stdin(&nothing)?;
        nix::unistd::dup2_stdout(&nothing)?;
        nix::unistd::dup2_stderr(&nothing)?;
        Ok(())
    }
}

/// Takes the mark of the command that stays out of what a job's environment is to be.
pub fn forget(environment: &mut Vec<(std::ffi::OsString, std::ffi::OsString)>) {
    environment.retain(|(name, _)| name != VARIABLE);
}

/// Starts this command once more, to stay with the job; prints the job's name once that runs. What goes wrong before that, the
/// other one says; its exit status.
fn begin(what: &str) -> Result<u8, Failure> {
    let failed = |error: io::Error| Failure::of(what, error);
    let own = std::env::current_exe().map_err(failed)?;
    let mut staying = Command::new(own)
        .args(std::env::args_os().skip(1))
        .env(VARIABLE, std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut name = String::new();
    if let Some(said) = staying.stdout.take() {
        BufReader::new(said.take(LONGEST)).read_line(&mut name).map_err(failed)?;
    }
    if name.ends_with('\n') {
        print!("{name}");
        return Ok(0);
    }
    let status = staying.wait().map_err(failed)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.ok_or_else(|| Failure::of(what, format!("the command that was to stay with it: {status}")))
}
