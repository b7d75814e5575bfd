//! `ckptd logs`.

use super::Context;
use super::target::Target;
use crate::client::refusal::unexpected;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::jobs::JobFolder;
use crate::text;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::cluster::client::{Answer, Ask, LogPlace};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::time::Duration;

/// How often a log is looked at while it is followed.
const LOOK: Duration = Duration::from_millis(200);

pub fn perform(context: &Context, wanted: &str, follow: bool) -> Result<(), Failure> {
    let what = format!("show the log of {wanted}");
    match context.target(wanted)? {
        Target::Cluster(cluster) => of_cluster(&cluster, wanted, &what, follow),
        Target::Own(job) => of_machine(&job, &what, follow),
    }
}

/// The log of a job without a cluster is a file of the user's own.
fn of_machine(job: &JobFolder, what: &str, follow: bool) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::of(what, format!("{}: {error}", job.log().display()));
    let mut shown = 0;
    loop {
        // Before the log is read: what is written until its end is there then.
        let runs = job.is_running()?;
        let mut log = match File::open(job.log()) {
            Ok(log) => Some(log),
            // It has not written anything yet.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        if let Some(log) = &mut log {
            let length = log.metadata().map_err(failed)?.len();
            if length < shown {
                tell_of_cut(shown - length);
                shown = length;
            }
            log.seek(SeekFrom::Start(shown)).map_err(failed)?;
            // No more than there was: of what grows all the time there would be no end.
            shown += show(log.take(length - shown), failed)?;
        }
        if !follow || !runs {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}

/// Copies to standard output; the bytes.
fn show(mut from: impl Read, failed: impl Fn(io::Error) -> Failure) -> Result<u64, Failure> {
    let mut out = io::stdout().lock();
    let mut buffer = vec![0; 64 << 10];
    let mut shown = 0;
    loop {
        match from.read(&mut buffer).map_err(&failed)? {
            0 => break,
            length => {
                out.write_all(&buffer[..length])?;
                shown += length as u64;
            }
        }
    }
    out.flush()?;
    Ok(shown)
}

fn of_cluster(cluster: &Cluster, wanted: &str, what: &str, follow: bool) -> Result<(), Failure> {
    let mut from = LogPlace::default();
    loop {
        let ask = Ask::Log { job: wanted.to_owned(), from };
        let mut last = None;
        cluster.each(what, &ask, |answer| match answer {
            Answer::Output { bytes, .. } => {
                let bytes = STANDARD
                    .decode(bytes)
                    .map_err(|error| Failure::of(what, format!("malformed output: {error}")))?;
                let mut out = io::stdout().lock();
                out.write_all(&bytes)?;
                out.flush()?;
                Ok(true)
            }
            Answer::Log { start, next, length, over } => {
                if start < from.length {
                    tell_of_cut(from.length - start);
                }
                last = Some((next, length, over));
                Ok(false)
            }
            other => Err(unexpected(what, &other)),
        })?;
        let Some((next, length, over)) = last else { return Ok(()) };
        from = next;
        if next.length < length {
            continue;
        }
        if over || !follow {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}

fn tell_of_cut(bytes: u64) {
    eprintln!(
        "ckptd: the job went back to a checkpoint: the last {} are not part of its log any more",
        text::size(bytes)
    );
}
