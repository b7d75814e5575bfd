//! What is shown of a log: its bytes as they are, or lines with the time and origin of each, or those of one rank.

use crate::mpi::tags::Tags;
use protocol::log_times::{Origin, Piece, Times};
use std::borrow::Cow;
use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

/// A line that is longer is shown in parts.
const LONGEST: usize = 1 << 20;

/// From this span on a time is said to be about that.
const COARSE_MS: u32 = 1000;

/// Bytes of a time, as in 2026-11-28T15:04:05.123Z.
const WIDTH: usize = 24;

/// What is wanted of a log.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    /// The time and origin of each line.
    pub times: bool,
    /// Only what this rank has written, by the tags of its run time.
    pub rank: Option<(Tags, u32)>,
}

/// Shows pieces of a log, in their order.
#[derive(Debug)]
pub struct Shown<W> {
    out: W,
    wanted: Wanted,
    /// The line that has not ended yet, and the piece in which it began.
    line: Vec<u8>,
    began: Option<Piece>,
    /// Whether there is a line of the rank that is wanted.
    has_rank: bool,
    /// The highest rank of those that have written anything.
    highest: Option<u32>,
}

impl<W: Write> Shown<W> {
    /// Nothing yet.
    pub fn new(out: W, wanted: Wanted) -> Self {
        Self { out, wanted, line: Vec::new(), began: None, has_rank: false, highest: None }
    }

    /// One piece more: the bytes of the log from a place on.
    pub fn put(&mut self, start: u64, bytes: &[u8], times: &Times) -> io::Result<()> {
        if !self.wanted.times && self.wanted.rank.is_none() {
            return self.out.write_all(bytes);
        }
        let mut place = start;
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.is_empty() {
                self.began = times.at(place).copied();
            }
            self.line.extend_from_slice(part);
            place += part.len() as u64;
            if part.ends_with(b"\n") || self.line.len() > LONGEST {
                self.end_line()?;
            }
        }
        Ok(())
    }

    /// The job went back behind what has come last.
    pub fn cut(&mut self) {
        self.line.clear();
    }

    /// What has come so far is to be seen, lines that have not ended excepted.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// There is no more.
    pub fn finish(&mut self) -> io::Result<()> {
        self.end_line()?;
        self.out.flush()
    }

    /// What is to be said where the rank that is wanted has written nothing. Whether the job has such a rank at all, a log does
    /// not tell.
    pub fn missing(&self) -> Option<String> {
        let (_, rank) = self.wanted.rank.filter(|_| !self.has_rank)?;
        Some(match self.highest {
            Some(highest) => format!(
                "there is no line of rank {rank}; the highest rank that has written one is {highest}"
            ),
            None => format!("there is no line of rank {rank}, nor of any other"),
        })
    }

    fn end_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let shown = match self.wanted.rank {
            Some((tags, rank)) => {
                self.highest = self.highest.max(tags.highest(&line));
                let of_it = tags.of_rank(&line, rank);
                self.has_rank |= !of_it.is_empty();
                Cow::Owned(of_it)
            }
            None => Cow::Borrowed(line.as_slice()),
        };
        if shown.is_empty() {
            return Ok(());
        }
        if self.wanted.times {
            self.out.write_all(head(self.began.as_ref()).as_bytes())?;
        }
        self.out.write_all(&shown)?;
        if shown.ends_with(b"\n") { Ok(()) } else { self.out.write_all(b"\n") }
    }
}

/// The time and origin of a line.
fn head(piece: Option<&Piece>) -> String {
    let Some(piece) = piece else { return format!("{:<WIDTH$}  {:<5}  ", "-", "-") };
    let at = UNIX_EPOCH.checked_add(Duration::from_millis(piece.at_ms));
    // From an archive a time may be one that has no form.
    let at = at.filter(|_| piece.at_ms < 253_402_300_800_000);
    let time = at.map_or("-".to_owned(), |at| humantime::format_rfc3339_millis(at).to_string());
    let about = if piece.span_ms > COARSE_MS { '~' } else { ' ' };
    let origin = match piece.origin {
        Origin::Output => "out",
        Origin::Error => "err",
        Origin::Ckptd => "ckptd",
        Origin::Mixed => "-",
    };
    format!("{time:<WIDTH$}{about} {origin:<5}  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(start: u64, end: u64, span_ms: u32, origin: Origin) -> Piece {
        Piece { start, end, at_ms: 1_700_000_000_000 + start, span_ms, origin }
    }

    fn shown(wanted: Wanted, pieces: &[(u64, &str)], times: &Times) -> String {
        let mut out = Vec::new();
        let mut shown = Shown::new(&mut out, wanted);
        for (start, text) in pieces {
            shown.put(*start, text.as_bytes(), times).unwrap();
        }
        shown.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_bear_the_time_of_their_first_byte() {
        let known = [piece(0, 6, 0, Origin::Output), piece(6, 10, 5000, Origin::Error)];
        let times = Times::of(known, 100);
        let text = shown(
            Wanted { times: true, rank: None },
            &[(0, "one\ntw"), (6, "o\n"), (8, "3\n"), (10, "later")],
            &times,
        );
        let expected = "2023-11-14T22:13:20.000Z  out    one\n\
                        2023-11-14T22:13:20.000Z  out    two\n\
                        2023-11-14T22:13:20.006Z~ err    3\n\
                        -                         -      later\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn without_a_wish_bytes_are_as_they_are() {
        let text = shown(Wanted::default(), &[(0, "a\r\nb"), (4, "c")], &Times::default());
        assert_eq!(text, "a\r\nbc");
    }

    #[test]
    fn of_a_rank_only_its_lines_are_shown() {
        let wanted = Wanted { times: false, rank: Some((Tags::OpenMpi, 1)) };
        let log = "[ckptd: restarted]\n[1,0]<stdout>:a\n[1,1]<stdout>:b[1,0]<stdout>:c\n[1,1]<stderr>:d\n";
        let text = shown(wanted, &[(0, &log[..40]), (40, &log[40..])], &Times::default());
        assert_eq!(text, "[1,1]<stdout>:b\n[1,1]<stderr>:d\n");
    }

    #[test]
    fn a_rank_without_a_line_is_told_of() {
        let missing = |rank: Option<u32>, log: &str| {
            let rank = rank.map(|rank| (Tags::Hydra, rank));
            let mut shown = Shown::new(Vec::new(), Wanted { times: false, rank });
            shown.put(0, log.as_bytes(), &Times::default()).unwrap();
            shown.finish().unwrap();
            shown.missing()
        };
        let log = "[0] a\n[3] b\n[1] c";
        assert_eq!(missing(Some(1), log), None, "a line without an end");
        assert_eq!(missing(None, log), None);
        let said = missing(Some(7), log).unwrap();
        assert_eq!(said, "there is no line of rank 7; the highest rank that has written one is 3");
        assert_eq!(
            missing(Some(0), "a\n").unwrap(),
            "there is no line of rank 0, nor of any other"
        );
    }
}
