//! Asking the process that runs a job.

use super::ShortPath;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::Pid;
use protocol::control::{Greeting, Reply, Request};
use protocol::frame::{self, FrameError, MAX_REPLY, MAX_REQUEST};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use thiserror::Error;

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

/// How long a launcher may take from its lock to its socket.
const BEGINNING: Duration = Duration::from_secs(10);

/// Like [`ask`], but waits for a launcher that is about to begin: one that holds the job's lock
/// (`begins`) and does not listen yet.
///
/// # Errors
/// As [`ask`].
pub fn ask_beginning(
    job_dir: &Path,
    request: &Request,
    limit: Option<Duration>,
    begins: impl Fn() -> bool,
) -> Result<Reply, AskError> {
    let since = Instant::now();
    loop {
        match ask(job_dir, *request, limit) {
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
pub fn ask(job_dir: &Path, request: Request, limit: Option<Duration>) -> Result<Reply, AskError> {
    let short = ShortPath::of(job_dir)?;
    let mut stream = UnixStream::connect(&short.path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AskError::NotRunning,
        _ => AskError::Io(error),
    })?;
    let launcher = launcher(&stream);
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    let mut line = frame::encode(&Greeting::new(request), MAX_REQUEST)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    let since = Instant::now();
    let mut answer = Vec::new();
    // One byte more than the limit, so that a longer line is seen as such; and the newline.
    let mut lines = BufReader::new(stream.take(MAX_REPLY as u64 + 2));
    loop {
        // Seen before the read: what it has said before it was stopped is there to be read.
        let stopped = launcher.filter(|launcher| is_stopped(*launcher));
        match lines.read_until(b'\n', &mut answer) {
            Ok(_) => break,
            Err(error) if is_timeout(&error) => {
                if limit.is_some_and(|limit| since.elapsed() >= limit) {
                    return Err(error.into());
                }
                match stopped.filter(|launcher| is_stopped(*launcher)) {
                    Some(_) if request == Request::Status => return Err(AskError::Stopped),
                    // What was asked for is with it already; that tells this from the user's `fg`.
                    Some(launcher) => drop(kill(launcher, Signal::SIGCONT)),
                    None => {}
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    let answer = String::from_utf8_lossy(&answer);
    match answer.strip_suffix('\n') {
        Some(line) => Ok(frame::decode(line, MAX_REPLY)?),
        None if answer.is_empty() => Err(AskError::Gone),
        None => Ok(frame::decode(&answer, MAX_REPLY)?),
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// The process that listens at the other side (SO_PEERCRED, unix(7)); none where it can't be seen from here.
fn launcher(stream: &UnixStream) -> Option<Pid> {
    let peer = getsockopt(stream, PeerCredentials).ok()?.pid();
    (peer > 0).then(|| Pid::from_raw(peer))
}

/// Whether a process is stopped by a signal; one that a debugger has stopped is not (proc_pid_stat(5)).
fn is_stopped(process: Pid) -> bool {
    let stat = std::fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    let end = stat.iter().rposition(|byte| *byte == b')');
    end.is_some_and(|end| stat.get(end + 2) == Some(&b'T'))
}
