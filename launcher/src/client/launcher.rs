//! Asking the process that runs a job without a cluster.

use super::link::{Link, LinkError};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::cluster::client::{Answer, Ask};
use protocol::frame::FrameError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The socket's name in the job's folder.
const SOCKET: &str = "socket";

/// Where the launcher of the job in that folder listens while it runs.
pub fn socket(job_dir: &Path) -> PathBuf {
    job_dir.join(SOCKET)
}

/// Why a running job could not be asked.
#[derive(Debug, Error)]
pub enum AskError {
    /// Nobody listens.
    #[error("it is not running")]
    NotRunning,
    /// The connection failed.
    #[error("its launcher does not answer: {0}")]
    Io(#[from] io::Error),
    /// The launcher's answer is none.
    #[error("its launcher's answer makes no sense: {0}")]
    Frame(#[from] FrameError),
    /// It would answer once it was let go on.
    #[error("it is stopped")]
    Stopped,
    /// The launcher ended without an answer.
    #[error("its launcher ended before it answered")]
    Gone,
}

impl From<LinkError> for AskError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Io(error) => error.into(),
            LinkError::Frame(error) => error.into(),
            LinkError::Gone => Self::Gone,
        }
    }
}

/// How long a launcher may take from its lock to its socket.
const BEGINNING: Duration = Duration::from_secs(10);

/// Like [`ask`], but waits for a launcher that is about to begin: one that holds the job's lock
/// (`begins`) and does not listen yet.
///
/// # Errors
/// As [`ask`].
pub fn ask_beginning(
    job_dir: &Path,
    ask_for: &Ask,
    limit: Option<Duration>,
    begins: impl Fn() -> bool,
) -> Result<Answer, AskError> {
    let since = Instant::now();
    loop {
        match ask(job_dir, ask_for, limit) {
            Err(AskError::NotRunning) if since.elapsed() < BEGINNING && begins() => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
}

/// How often a launcher that has not answered yet is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Asks the process that runs the job kept in that folder, and waits for its answer, at most for
/// `limit` where one is given.
///
/// A launcher that its user has stopped is woken for what is more than a question: it answers, with the job as it is,
/// and stops again.
///
/// # Errors
/// Where it does not run, or does not answer.
pub fn ask(job_dir: &Path, ask: &Ask, limit: Option<Duration>) -> Result<Answer, AskError> {
    let is_question = matches!(ask, Ask::Status { .. });
    let mut link = Link::open(&socket(job_dir), ask).map_err(|error| match error {
        LinkError::Io(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            AskError::NotRunning
        }
        other => other.into(),
    })?;
    let launcher = link.peer();
    let since = Instant::now();
    loop {
        // Seen before the read: what it has said before it was stopped is there to be read.
        let stopped = launcher.filter(|launcher| is_stopped(*launcher));
        if let Some(answer) = link.next_within(LOOK)? {
            return Ok(answer);
        }
        if limit.is_some_and(|limit| since.elapsed() >= limit) {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        match stopped.filter(|launcher| is_stopped(*launcher)) {
            Some(_) if is_question => return Err(AskError::Stopped),
            // What was asked for is with it already; that tells this from the user's `fg`.
            Some(launcher) => drop(kill(launcher, Signal::SIGCONT)),
            None => {}
        }
    }
}

/// Whether a process is stopped by a signal; one that a debugger has stopped is not (proc_pid_stat(5)).
fn is_stopped(process: Pid) -> bool {
    let stat = std::fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    let end = stat.iter().rposition(|byte| *byte == b')');
    end.is_some_and(|end| stat.get(end + 2) == Some(&b'T'))
}
