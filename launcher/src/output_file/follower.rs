//! The copy of the log of a cluster's job: a process of the user's own, since the job outlives the command that was its
//! launcher, and only here are the user's rights and the file.

use super::mirror::Mirror;
use super::{LOOK, OutputFile, PATIENCE, RETRY};
use crate::client::LOST_LIMIT;
use crate::cluster::Cluster;
use crate::failure::Failure;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::cluster::client::{Answer, Ask, LogPlace};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the last output is waited for where the job has ended.
const LAST: Duration = Duration::from_secs(10);

/// The hidden command of that process.
pub const COMMAND: &str = "copy-output";

/// A copy that is to be begun when there is a job, or that goes on.
#[derive(Debug)]
pub enum Follower {
    /// The job does not run yet.
    Waits(OutputFile),
    /// It runs.
    Runs(Child),
    /// It could not be started, which was said.
    Failed,
}

impl Follower {
    /// Begins to copy, if that has not been begun; `alone`: nobody waits for it, or sees what it says.
    pub fn start(&mut self, socket: &Path, job: &str, alone: bool) {
        let Self::Waits(output) = std::mem::replace(self, Self::Failed) else { return };
        let spawn = || -> io::Result<Child> {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg(COMMAND).arg(socket).arg(job).arg(&output.path);
            command.stdin(Stdio::null()).stdout(output.file.try_clone()?);
            command.stderr(if alone { Stdio::null() } else { Stdio::inherit() });
            command.spawn()
        };
        match spawn() {
            Ok(child) => *self = Self::Runs(child),
            Err(error) => eprintln!(
                "ckptd: warning: {} is not written: {error}; 'ckptd logs {job}' shows the output",
                output.path.display()
            ),
        }
    }

    /// Waits until all is copied, or it takes too long.
    pub fn finish(&mut self) {
        let Self::Runs(child) = self else { return };
        let since = Instant::now();
        while since.elapsed() < LAST && matches!(child.try_wait(), Ok(None)) {
            sleep(Duration::from_millis(5));
        }
    }
}

/// What that process does: standard output becomes like the job's log, until that is over.
///
/// # Errors
/// Where the cluster has gone.
pub fn follow(socket: PathBuf, job: &str, path: &Path) -> Result<(), Failure> {
    let what = format!("copy the output of {job}");
    // The end of the terminal where the job was run is not the end of the job.
    let _ = nix::unistd::setsid();
    let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut mirror = Mirror::new(file, path.to_owned());
    let cluster = Cluster::at(socket);
    let mut from = LogPlace::default();
    let mut lost: Option<Instant> = None;
    loop {
        match copy(&cluster, job, &what, from, &mut mirror) {
            Ok(Copied { next, length, over }) => {
                lost = None;
                from = next.unwrap_or(from);
                let caught_up = next.is_some_and(|next| next.length >= length);
                if over && caught_up {
                    return Ok(());
                }
                match mirror.failing() {
                    Some(since) if over && since > PATIENCE => {
                        mirror.tell_of_lack(length, job);
                        return Ok(());
                    }
                    Some(_) => sleep(RETRY),
                    None if caught_up => sleep(LOOK),
                    None => {}
                }
            }
            // An agent that is started again is there soon, and so is another coordinator.
            Err(_) if lost.get_or_insert_with(Instant::now).elapsed() < LOST_LIMIT => sleep(RETRY),
            Err(failure) => return Err(failure),
        }
    }
}

/// What came of one request.
struct Copied {
    /// From where on the next one is; None: from where this one was.
    next: Option<LogPlace>,
    /// The log's length.
    length: u64,
    /// Whether the job is over.
    over: bool,
}

fn copy(
    cluster: &Cluster,
    job: &str,
    what: &str,
    from: LogPlace,
    mirror: &mut Mirror,
) -> Result<Copied, Failure> {
    let ask = Ask::Log { job: job.to_owned(), from, times: false };
    let mut copied = Copied { next: None, length: 0, over: false };
    let mut takes = true;
    cluster.each(what, &ask, |answer| match answer {
        Answer::Output { bytes, at, .. } => {
            let bytes = STANDARD
                .decode(bytes)
                .map_err(|error| Failure::of(what, format!("malformed output: {error}")))?;
            let start = at.length.saturating_sub(bytes.len() as u64);
            takes = takes && mirror.put(start, &bytes);
            Ok(true)
        }
        Answer::Log { next, length, over, .. } => {
            let is_whole = next.length >= length;
            takes = takes && (!is_whole || mirror.end_at(length));
            copied = Copied { next: takes.then_some(next), length, over };
            Ok(false)
        }
        Answer::Failed { reason, .. } => Err(Failure::of(what, reason)),
        _ => Ok(true),
    })?;
    Ok(copied)
}
