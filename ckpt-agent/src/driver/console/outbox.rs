//! Output that is not known to be in the job's log.

use std::collections::VecDeque;

use protocol::cluster::agent::Stream;

/// Bytes that may wait before the job's streams are left unread, so that the job feels the pace of the
/// log.
const MOST: usize = 1024 * 1024;

/// Output in order, numbered by its bytes over both streams.
#[derive(Debug, Default)]
pub struct Outbox {
    pieces: VecDeque<(u64, Stream, Vec<u8>)>,
    waiting: usize,
    offset: u64,
}

impl Outbox {
    /// So much came before.
    pub fn begin_at(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// Bytes so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether more may be read.
    pub fn has_room(&self) -> bool {
        self.waiting < MOST
    }

    /// More output.
    pub fn put(&mut self, stream: Stream, bytes: Vec<u8>) {
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        self.waiting += bytes.len();
        self.pieces.push_back((offset, stream, bytes));
    }

    /// Everything before this offset is in the log. An offset beyond the end counts as the end.
    pub fn kept(&mut self, offset: u64) {
        while let Some((start, _, bytes)) = self.pieces.front_mut() {
            let length = bytes.len() as u64;
            if *start + length <= offset {
                self.waiting -= bytes.len();
                self.pieces.pop_front();
                continue;
            }
            if *start < offset {
                let kept = (offset - *start) as usize;
                bytes.drain(..kept);
                self.waiting -= kept;
                *start = offset;
            }
            return;
        }
    }

    /// What is not known to be kept, in order.
    pub fn unkept(&self) -> impl Iterator<Item = (u64, Stream, &[u8])> {
        self.pieces.iter().map(|(offset, stream, bytes)| (*offset, *stream, bytes.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_forgotten_and_nothing_else() {
        let mut outbox = Outbox::default();
        outbox.put(Stream::Output, b"hello".to_vec());
        outbox.put(Stream::Error, b"oh".to_vec());
        outbox.kept(3);
        let left: Vec<_> = outbox.unkept().collect();
        assert_eq!(left, [(3, Stream::Output, &b"lo"[..]), (5, Stream::Error, &b"oh"[..])]);
        outbox.kept(2);
        assert_eq!(outbox.unkept().count(), 2);
        outbox.kept(100);
        assert_eq!(outbox.unkept().count(), 0);
        assert_eq!((outbox.offset(), outbox.waiting), (7, 0));
    }

    #[test]
    fn reading_stops_at_the_bound() {
        let mut outbox = Outbox::default();
        outbox.put(Stream::Output, vec![0; MOST]);
        assert!(!outbox.has_room());
        outbox.kept(1);
        assert!(outbox.has_room());
    }
}
