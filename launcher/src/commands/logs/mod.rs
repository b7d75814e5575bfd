//! `ckptd logs`.
//!
//! - `lines`: what is shown of a log, and how.

mod lines;

use self::lines::{Shown, Wanted};
use super::Context;
use super::target::Target;
use crate::cli::LogsArguments;
use crate::client::refusal::unexpected;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::jobs::JobFolder;
use crate::mpi::tags::{self, Tags};
use crate::text;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::cluster::client::{Answer, Ask, LogPlace};
use protocol::log_times::{self, Times};
use serde_json::Value;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Stdout};
use std::time::Duration;

/// How often a log is looked at while it is followed.
const LOOK: Duration = Duration::from_millis(200);

/// Bytes of a log that are read at once.
const PIECE: u64 = 64 << 10;

pub fn perform(context: &Context, arguments: &LogsArguments) -> Result<(), Failure> {
    let LogsArguments { job: wanted, .. } = arguments;
    let what = format!("show the log of {wanted}");
    let target = context.target(wanted)?;
    let tags = match arguments.rank {
        Some(rank) => Some((tags_of(&target, wanted, &what)?, rank)),
        None => None,
    };
    let shown = Wanted { times: arguments.time, rank: tags };
    let shown = Shown::new(io::stdout(), shown);
    let reading = Reading { what: &what, arguments, shown };
    match target {
        Target::Cluster(cluster) => reading.of_cluster(&cluster),
        Target::Own(job) => reading.of_machine(&job),
    }
}

/// How the job's output tells which rank has written a line.
fn tags_of(target: &Target, wanted: &str, what: &str) -> Result<Tags, Failure> {
    let command = match target {
        Target::Own(job) => job.record().command.clone(),
        Target::Cluster(cluster) => {
            let job = cluster.listing(what, &Ask::Status { job: Some(wanted.to_owned()) })?;
            let words = job.get("command").and_then(Value::as_array);
            words.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        }
    };
    Tags::of(&command).ok_or_else(|| Failure::of(what, tags::HOW))
}

/// A log that is being shown.
struct Reading<'a> {
    what: &'a str,
    arguments: &'a LogsArguments,
    shown: Shown<Stdout>,
}

impl Reading<'_> {
    /// The log of a job without a cluster is a file of the user's own.
    fn of_machine(mut self, job: &JobFolder) -> Result<(), Failure> {
        let path = job.log();
        let failed =
            |error: io::Error| Failure::of(self.what, format!("{}: {error}", path.display()));
        let times = path.with_file_name(log_times::NAME);
        let mut shown = 0;
        if let Some(at_ms) = self.arguments.since {
            let known = log_times::read(&times, u64::MAX);
            self.tell_of_no_times(!known.pieces().is_empty());
            shown = known.since(at_ms);
        }
        loop {
            // Before the log is read: what is written until its end is there then.
            let runs = job.is_running()?;
            let mut log = match File::open(&path) {
                Ok(log) => Some(log),
                // It has not written anything yet.
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(failed(error)),
            };
            if let Some(log) = &mut log {
                let length = log.metadata().map_err(failed)?.len();
                if length < shown {
                    tell_of_cut(shown - length);
                    self.shown.cut();
                    shown = length;
                }
                log.seek(SeekFrom::Start(shown)).map_err(failed)?;
                let known = match self.arguments.time {
                    true => log_times::read(&times, length),
                    false => Times::default(),
                };
                // No more than there was: of what grows all the time there would be no end.
                while shown < length {
                    let mut bytes = Vec::new();
                    let read = log.take(PIECE.min(length - shown)).read_to_end(&mut bytes);
                    if read.map_err(failed)? == 0 {
                        break;
                    }
                    self.shown.put(shown, &bytes, &known)?;
                    shown += bytes.len() as u64;
                }
                self.shown.flush()?;
            }
            if !self.arguments.follow || !runs {
                return self.finish();
            }
            std::thread::sleep(LOOK);
        }
    }

    fn of_cluster(mut self, cluster: &Cluster) -> Result<(), Failure> {
        let mut from = match self.arguments.since {
            Some(at_ms) => self.since(cluster, at_ms)?,
            None => LogPlace::default(),
        };
        loop {
            let (job, times) = (self.arguments.job.clone(), self.arguments.time);
            let mut known = Times::default();
            let (mut last, mut is_cut) = (None, false);
            cluster.each(self.what, &Ask::Log { job, from, times }, |answer| match answer {
                Answer::Times { pieces } => {
                    known = Times::of(pieces, u64::MAX);
                    Ok(true)
                }
                Answer::Output { bytes, at, .. } => {
                    let bytes = STANDARD.decode(bytes).map_err(|error| {
                        Failure::of(self.what, format!("malformed output: {error}"))
                    })?;
                    let start = at.length.saturating_sub(bytes.len() as u64);
                    if start < from.length && !std::mem::replace(&mut is_cut, true) {
                        self.shown.cut();
                    }
                    self.shown.put(start, &bytes, &known)?;
                    Ok(true)
                }
                Answer::Log { start, next, length, over } => {
                    if start < from.length {
                        tell_of_cut(from.length - start);
                        if !is_cut {
                            self.shown.cut();
                        }
                    }
                    last = Some((next, length, over));
                    Ok(false)
                }
                other => Err(unexpected(self.what, &other)),
            })?;
            let Some((next, length, over)) = last else { return self.finish() };
            self.shown.flush()?;
            from = next;
            if next.length < length {
                continue;
            }
            if over || !self.arguments.follow {
                return self.finish();
            }
            std::thread::sleep(LOOK);
        }
    }

    /// There is no more to show.
    fn finish(mut self) -> Result<(), Failure> {
        self.shown.finish()?;
        if let Some(text) = self.shown.missing() {
            eprintln!("ckptd: {}: {text}", self.arguments.job);
        }
        Ok(())
    }

    /// The place in the log before which everything is older.
    fn since(&self, cluster: &Cluster, at_ms: u64) -> Result<LogPlace, Failure> {
        let ask = Ask::LogSince { job: self.arguments.job.clone(), at_ms };
        match cluster.ask(self.what, &ask)? {
            Answer::LogSince { from, known } => {
                self.tell_of_no_times(known);
                Ok(from)
            }
            other => Err(unexpected(self.what, &other)),
        }
    }

    /// The log is an older version's, or empty.
    fn tell_of_no_times(&self, known: bool) {
        if !known {
            eprintln!(
                "ckptd: warning: when {} wrote its log is not known: all of it is shown",
                self.arguments.job
            );
        }
    }
}

fn tell_of_cut(bytes: u64) {
    eprintln!(
        "ckptd: the job went back to a checkpoint: the last {} are not part of its log any more",
        text::size(bytes)
    );
}
