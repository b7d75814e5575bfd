//! What a task on a cluster has written, in the files of its output. It is written there as it comes; at the end, what is not as
//! in the job's log is written once more: a job that has gone back to a checkpoint has written some of it twice, and who was not
//! connected has missed some.

use crate::cluster::Cluster;
use crate::failure::Failure;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use protocol::cluster::agent::Stream;
use protocol::cluster::client::{Answer, Ask, LogPlace};
use protocol::log_times::{Origin, Piece, Times};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

const WHAT: &str = "fetch the output of a task";
/// How often it is begun anew, at most.
const MOST_BEGINNINGS: u32 = 3;
/// How long it is waited for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The files of a task's output.
#[derive(Debug)]
pub struct Output {
    out: File,
    err: File,
    /// So far they are as the job's log.
    place: LogPlace,
    /// Whether something came that does not follow it.
    is_broken: bool,
}

impl Output {
    /// This process's standard output and standard error, in which nothing is.
    ///
    /// # Errors
    /// Where they are not open.
    pub fn own() -> io::Result<Self> {
        let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let err = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        Ok(Self { out, err, place: LogPlace::default(), is_broken: false })
    }

    /// What there is for people while the task runs.
    pub fn put(&mut self, stream: Stream, bytes: &str, at: LogPlace) {
        let Ok(bytes) = STANDARD.decode(bytes) else {
            self.is_broken = true;
            return;
        };
        let follows = at.length.checked_sub(bytes.len() as u64) == Some(self.place.length);
        let mut file = match stream {
            Stream::Output => &self.out,
            Stream::Error => &self.err,
        };
        // What a full disk does not take is written at the end.
        let is_written = file.write_all(&bytes).is_ok();
        self.is_broken |= !follows || !is_written;
        self.place = at;
    }

    /// Writes to what the task has told, in its place.
    pub fn tell(&mut self, text: &str) {
        // A full disk is told of by others.
        let _ = self.err.write_all(text.as_bytes());
    }

    /// Nothing is in them any more.
    ///
    /// # Errors
    /// Where that is not possible.
    pub fn clear(&mut self) -> io::Result<()> {
        self.out.set_len(0)?;
        self.err.set_len(0)?;
        (self.place, self.is_broken) = (LogPlace::default(), false);
        Ok(())
    }

    /// Makes them like the log of the job, which is over.
    ///
    /// # Errors
    /// Where the cluster does not give it, or the disk does not take it.
    pub fn finish(&mut self, cluster: &Cluster, job: &str) -> Result<(), Failure> {
        if self.is_broken {
            self.clear().map_err(|error| Failure::of(WHAT, error))?;
        }
        let mut beginnings = 0;
        loop {
            let from = self.place;
            let (start, next, length) = self.part(cluster, job, from)?;
            if start != from.length || next.length != self.place.length {
                // It was cut back since; or what the cluster has of it is damaged.
                if beginnings == MOST_BEGINNINGS {
                    return Err(Failure::of(WHAT, "the job's log is not as long as it should be"));
                }
                beginnings += 1;
                self.clear().map_err(|error| Failure::of(WHAT, error))?;
            } else if next.length >= length {
                return Ok(());
            } else {
                self.place = next;
            }
        }
    }

    /// Takes what one answer has of the log from a place on: where that began, where it ends, and the log's length.
    fn part(
        &mut self,
        cluster: &Cluster,
        job: &str,
        from: LogPlace,
    ) -> Result<(u64, LogPlace, u64), Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::of(WHAT, error);
        let ask = Ask::Log { job: job.to_owned(), from, times: true };
        let mut link = cluster.open(&ask).map_err(|error| failed(&error))?;
        let mut known = Times::default();
        loop {
            let answer = link.next_within(PATIENCE).map_err(|error| failed(&error))?;
            match answer.ok_or_else(|| failed(&"there is no answer"))? {
                Answer::Times { pieces } => known = Times::of(pieces, u64::MAX),
                Answer::Output { bytes, at, .. } => {
                    let bytes = STANDARD.decode(bytes).map_err(|error| failed(&error))?;
                    let start = at.length.saturating_sub(bytes.len() as u64);
                    if start == self.place.length {
                        let taken = self.take(start, &bytes, known.pieces());
                        taken.map_err(|error| {
                            // How much of it was written is not known.
                            self.is_broken = true;
                            failed(&error)
                        })?;
                        self.place = at;
                    }
                }
                Answer::Log { start, next, length, .. } => return Ok((start, next, length)),
                Answer::Say { .. } => {}
                Answer::Failed { reason, .. } => return Err(failed(&reason)),
                other => return Err(crate::client::refusal::unexpected(WHAT, &other)),
            }
        }
    }

    /// Takes bytes of the log from a place on: each goes to where the task has written it, and ckptd's own lines nowhere. What
    /// is not known of, as of a long log, counts as standard output.
    fn take(&mut self, start: u64, bytes: &[u8], known: &[Piece]) -> io::Result<()> {
        let end = start.saturating_add(bytes.len() as u64);
        for (from, to, origin) in stretches(start, end, known) {
            let index = |place: u64| usize::try_from(place - start).unwrap_or(usize::MAX);
            let part = bytes.get(index(from)..index(to)).unwrap_or_default();
            match origin {
                Origin::Output | Origin::Mixed => self.out.write_all(part)?,
                Origin::Error => self.err.write_all(part)?,
                Origin::Ckptd => {}
            }
        }
        Ok(())
    }
}

/// A part of a log without gaps: from, to, and what wrote it.
fn stretches(start: u64, end: u64, known: &[Piece]) -> Vec<(u64, u64, Origin)> {
    let mut all = Vec::new();
    let mut place = start;
    for piece in known.iter().filter_map(|piece| piece.within(start, end)) {
        if piece.start > place {
            all.push((place, piece.start, Origin::Output));
        }
        if piece.end > place {
            all.push((piece.start.max(place), piece.end, piece.origin));
            place = piece.end;
        }
    }
    if place < end {
        all.push((place, end, Origin::Output));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u64, end: u64, origin: Origin) -> Piece {
        Piece { start, end, at_ms: 1, span_ms: 0, origin }
    }

    #[test]
    fn what_is_not_known_of_is_standard_output() {
        let known =
            [piece(0, 4, Origin::Output), piece(6, 9, Origin::Error), piece(9, 12, Origin::Ckptd)];
        let all = [
            (2, 4, Origin::Output),
            (4, 6, Origin::Output),
            (6, 9, Origin::Error),
            (9, 12, Origin::Ckptd),
            (12, 20, Origin::Output),
        ];
        assert_eq!(stretches(2, 20, &known), all);
        assert_eq!(stretches(6, 8, &known), [(6, 8, Origin::Error)]);
        assert_eq!(stretches(5, 5, &known), []);
    }

    #[test]
    fn a_log_goes_to_the_files_by_what_wrote_it() {
        let dir = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            File::options().append(true).create(true).open(dir.path().join(name)).unwrap()
        };
        let mut output = Output {
            out: open("out"),
            err: open("err"),
            place: LogPlace::default(),
            is_broken: false,
        };
        let known =
            [piece(0, 2, Origin::Output), piece(2, 4, Origin::Error), piece(4, 7, Origin::Ckptd)];
        output.take(0, b"abcd[x]ef", &known).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!((read("out"), read("err")), ("abef".into(), "cd".into()));
        let at = LogPlace { epoch: 1, length: 3, written: 3 };
        output.put(Stream::Output, &STANDARD.encode("new"), at);
        assert!(!output.is_broken);
        output.put(Stream::Output, &STANDARD.encode("again"), LogPlace { length: 6, ..at });
        assert!(output.is_broken, "it does not follow");
        output.clear().unwrap();
        assert_eq!((read("out"), read("err")), (String::new(), String::new()));
    }
}
