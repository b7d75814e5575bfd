//! What a job has written, for who was away: the pieces of its log that are output, and of which stream. Told by
//! places in the log alone, so that no output is kept in memory.

use super::Job;
use super::ledger::Ledger;
use crate::cluster::event::{ClientId, ClusterAction, LogPiece};
use crate::cluster::shared::Shared;
use protocol::cluster::Epoch;
use protocol::cluster::agent::Stream;
use protocol::cluster::client::{Answer, LogPlace};
use std::collections::VecDeque;

/// Bytes that are sent again, at most; the rest is in the log.
const MOST_AGAIN: u64 = 8 << 20;
/// Bytes of one piece.
const LONGEST_PIECE: u64 = 256 << 10;
/// Bytes of a log that are sent for one request.
const MOST_OF_LOG: u64 = 4 * LONGEST_PIECE;
/// Stretches of one stream that are remembered.
const MOST_STRETCHES: usize = 4096;

/// Which stretches of the log are of which stream, as far as this coordinator has written them.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Stretches(VecDeque<(u64, u64, Stream)>);

impl Stretches {
    /// One more.
    pub(in crate::cluster) fn add(&mut self, start: u64, end: u64, stream: Stream) {
        // What the log was cut back behind.
        self.0.retain(|(_, known, _)| *known <= start);
        match self.0.back_mut() {
            Some((_, last, same)) if *last == start && *same == stream => *last = end,
            _ => {
                if self.0.len() >= MOST_STRETCHES {
                    self.0.pop_front();
                }
                self.0.push_back((start, end, stream));
            }
        }
    }

    /// Bytes of output behind a place.
    pub(in crate::cluster) fn behind(&self, place: u64) -> u64 {
        self.0.iter().map(|(start, end, _)| end.saturating_sub(place.max(*start))).sum()
    }

    /// The stream at a place, and up to where at most. What a coordinator before has written counts as standard
    /// output.
    fn at(&self, place: u64) -> (Stream, u64) {
        let Some((start, end, stream)) = self.0.iter().find(|(_, end, _)| *end > place) else {
            return (Stream::Output, u64::MAX);
        };
        if *start > place { (Stream::Output, *start) } else { (*stream, *end) }
    }
}

impl Ledger {
    /// From where a log of epoch `now` must be shown again to who has seen it up to a place: what was cut off since
    /// was never.
    fn still_shown(&self, shown: LogPlace, now: Epoch) -> u64 {
        let cuts = self.cuts.iter().filter(|(epoch, _)| *epoch > shown.epoch && *epoch <= now);
        cuts.map(|(_, length)| *length).fold(shown.length, u64::min)
    }
}

impl Job {
    /// Where the log stands.
    pub(in crate::cluster) fn log_place(&self) -> LogPlace {
        LogPlace {
            epoch: self.log_epoch(),
            length: self.console.length(),
            written: self.console.offset(),
        }
    }

    /// The epoch that the log is of. Output may come as soon as it is cut back for one, before that is said to run.
    fn log_epoch(&self) -> Epoch {
        self.ledger.ran.max(self.console.epoch())
    }

    /// Sends a client what has been written since it was shown the last.
    pub(in crate::cluster) fn show_again(
        &self,
        shared: &mut Shared,
        client: &ClientId,
        shown: LogPlace,
    ) {
        let end = self.console.length();
        let floor = end.saturating_sub(MOST_AGAIN);
        let (pieces, left_out) = if shown.epoch == self.log_epoch() {
            // Counted from the end: the log may have other marks than that of a coordinator that was lost.
            let wanted = self.console.offset().saturating_sub(shown.written);
            let cut = self.ledger.cuts.iter().find(|(epoch, _)| *epoch == shown.epoch);
            let from = cut.map_or(0, |(_, length)| *length).max(floor);
            last(self.pieces(from, end), wanted)
        } else {
            let start = self.ledger.still_shown(shown, self.log_epoch());
            (self.pieces(start.max(floor), end), floor.saturating_sub(start))
        };
        if left_out > 0 {
            let text = format!(
                "{left_out} bytes of output, from while the connection was lost, are in the job's log alone: \
                 {}/{}/log on the coordinator's machine",
                shared.settings.jobs_folder, self.ledger.id
            );
            shared.answer(client, Answer::Say { text });
        }
        if !pieces.is_empty() {
            let (client, job) = (client.clone(), self.ledger.id.clone());
            shared.act(ClusterAction::Replay { client, job, pieces, times: false });
        }
    }

    /// Sends a client a part of the log from a place on, marks and all; what was sent is the last answer.
    pub(in crate::cluster) fn send_log(
        &self,
        shared: &mut Shared,
        client: &ClientId,
        from: LogPlace,
        times: bool,
    ) -> Answer {
        let (epoch, length) = (self.log_epoch(), self.console.length());
        let start = self.ledger.still_shown(from, epoch).min(length);
        let end = length.min(start.saturating_add(MOST_OF_LOG));
        let place = |length| LogPlace { epoch, length, written: 0 };
        let mut pieces = Vec::new();
        let mut at = start;
        while at < end {
            let to = end.min(at.saturating_add(LONGEST_PIECE));
            pieces.push(LogPiece { start: at, end: place(to), stream: Stream::Output });
            at = to;
        }
        if !pieces.is_empty() {
            let (client, job) = (client.clone(), self.ledger.id.clone());
            shared.act(ClusterAction::Replay { client, job, pieces, times });
        }
        Answer::Log { start, next: place(end), length, over: self.is_over() }
    }

    /// Has a client told from where on the log is not known to be older than that.
    pub(in crate::cluster) fn tell_log_since(
        &self,
        shared: &mut Shared,
        client: &ClientId,
        at_ms: u64,
    ) {
        let (client, job, epoch) = (client.clone(), self.ledger.id.clone(), self.log_epoch());
        shared.act(ClusterAction::LogSince { client, job, at_ms, epoch });
    }

    /// What is output between two places.
    fn pieces(&self, mut from: u64, end: u64) -> Vec<LogPiece> {
        let epoch = self.log_epoch();
        let mut pieces = Vec::new();
        while from < end {
            let mark = self.ledger.mark_places.iter().find(|(_, after)| *after > from);
            if let Some((before, after)) = mark {
                if *before <= from {
                    from = *after;
                    continue;
                }
            }
            let (stream, until) = self.console.stretches().at(from);
            let next = mark.map_or(end, |(before, _)| *before);
            let to = end.min(next).min(until).min(from.saturating_add(LONGEST_PIECE));
            let place = LogPlace { epoch, length: to, written: 0 };
            pieces.push(LogPiece { start: from, end: place, stream });
            from = to;
        }
        let mut written = self.console.offset();
        for piece in pieces.iter_mut().rev() {
            piece.end.written = written;
            written = written.saturating_sub(piece.end.length - piece.start);
        }
        pieces
    }
}

/// The last `wanted` bytes of these pieces, and how many of them are lacking.
fn last(mut pieces: Vec<LogPiece>, mut wanted: u64) -> (Vec<LogPiece>, u64) {
    let mut kept = Vec::new();
    while let Some(mut piece) = pieces.pop().filter(|_| wanted > 0) {
        piece.start = piece.start.max(piece.end.length.saturating_sub(wanted));
        wanted -= piece.end.length - piece.start;
        kept.push(piece);
    }
    kept.reverse();
    (kept, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_pieces_the_last_bytes_are_shown() {
        let piece = |start, length| LogPiece {
            start,
            end: LogPlace { epoch: 1, length, written: length },
            stream: Stream::Output,
        };
        let all = vec![piece(0, 10), piece(12, 20)];
        assert_eq!(last(all.clone(), 0), (vec![], 0));
        assert_eq!(last(all.clone(), 8), (vec![piece(12, 20)], 0));
        assert_eq!(last(all.clone(), 11), (vec![piece(7, 10), piece(12, 20)], 0));
        assert_eq!(last(all.clone(), 20), (all, 2));
    }

    #[test]
    fn stretches_know_their_streams_and_forget_what_was_cut_off() {
        let mut stretches = Stretches::default();
        stretches.add(10, 20, Stream::Output);
        stretches.add(20, 30, Stream::Output);
        stretches.add(30, 35, Stream::Error);
        stretches.add(50, 60, Stream::Error);
        assert_eq!(stretches.at(0), (Stream::Output, 10));
        assert_eq!(stretches.at(29), (Stream::Output, 30));
        assert_eq!(stretches.at(30), (Stream::Error, 35));
        assert_eq!(stretches.at(35), (Stream::Output, 50));
        assert_eq!(stretches.at(60), (Stream::Output, u64::MAX));
        stretches.add(30, 40, Stream::Output);
        assert_eq!(stretches.at(34), (Stream::Output, 40));
        assert_eq!(stretches.at(55), (Stream::Output, u64::MAX));
    }
}
