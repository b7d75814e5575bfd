//! Asking the process that runs a job.

use super::ShortPath;
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

/// Asks the process that runs the job kept in that folder, and waits for its answer, at most for
/// `limit` where one is given.
///
/// # Errors
/// Where it does not run, or does not answer.
pub fn ask(job_dir: &Path, request: Request, limit: Option<Duration>) -> Result<Reply, AskError> {
    let short = ShortPath::of(job_dir)?;
    let mut stream = UnixStream::connect(&short.path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AskError::NotRunning,
        _ => AskError::Io(error),
    })?;
    stream.set_read_timeout(limit)?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    let mut line = frame::encode(&Greeting::new(request), MAX_REQUEST)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    let mut answer = String::new();
    // One byte more than the limit, so that a longer line is seen as such; and the newline.
    BufReader::new(stream.take(MAX_REPLY as u64 + 2)).read_line(&mut answer)?;
    match answer.strip_suffix('\n') {
        Some(line) => Ok(frame::decode(line, MAX_REPLY)?),
        None if answer.is_empty() => Err(AskError::Gone),
        None => Ok(frame::decode(&answer, MAX_REPLY)?),
    }
}
