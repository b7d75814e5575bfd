//! What the process does that copies the log of a cluster's job.

use super::mirror::Mirror;
use super::{LOOK, PATIENCE, RETRY};
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
use std::thread::sleep;
use std::time::Instant;

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
            Err(_) if lost.get_or_insert_with(Instant::now).elapsed() < LOST_LIMIT => {
                // The log of another coordinator may differ in what it has of the last moments.
                from = LogPlace::default();
                sleep(RETRY);
            }
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
