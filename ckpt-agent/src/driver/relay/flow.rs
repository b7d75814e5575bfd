//! What a relay's side has sent and what it has received: pure bookkeeping.
//!
//! Everything that was sent is kept until the other side has passed it on, so that a lost connection
//! loses nothing. Offsets count bytes; a datagram counts one more than its length, so that an
//! empty one counts, too.

use std::collections::VecDeque;

use ckpt_node::RelayState;

/// Bytes that may be under way, and so in memory on either side.
pub const WINDOW: u64 = 256 * 1024;
/// What may be under way beyond that, when everything that a job has written is read for a checkpoint: far
/// more than pipes, sockets and terminals hold by default.
pub const MOST_DRAINED: usize = 4 * 1024 * 1024;
/// The longest datagram: more than a Unix socket's default buffer takes.
pub const LONGEST: usize = 256 * 1024;

/// What was sent.
#[derive(Debug, Default)]
pub struct Sending {
    sent: u64,
    taken: u64,
    frames: VecDeque<Frame>,
    /// Nothing more will be.
    pub ended: bool,
}

/// A piece of a stream, or a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What was sent before it.
    pub offset: u64,
    /// Whether its bounds count.
    pub datagram: bool,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Frame {
    fn end(&self) -> u64 {
        self.offset + weight(self.datagram, self.bytes.len())
    }
}

fn weight(datagram: bool, length: usize) -> u64 {
    length as u64 + u64::from(datagram)
}

impl Sending {
    /// What was sent in all.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// How much more may be.
    pub fn room(&self) -> usize {
        WINDOW.saturating_sub(self.sent - self.taken) as usize
    }

    /// Something more, to be sent now.
    pub fn push(&mut self, datagram: bool, bytes: Vec<u8>) -> &Frame {
        let frame = Frame { offset: self.sent, datagram, bytes };
        self.sent = frame.end();
        self.frames.push_back(frame);
        &self.frames[self.frames.len() - 1]
    }

    /// The other side has passed on so much. One that claims more than there was is not believed.
    pub fn taken(&mut self, taken: u64) {
        if taken <= self.taken || taken > self.sent {
            return;
        }
        self.taken = taken;
        while self.frames.front().is_some_and(|frame| frame.end() <= taken) {
            self.frames.pop_front();
        }
    }

    /// What is not known to be passed on, from the frame on that has the byte after `offset`.
    pub fn frames(&self, offset: u64) -> impl Iterator<Item = &Frame> {
        self.frames.iter().skip_while(move |frame| frame.end() <= offset)
    }

    /// Whether everything has been passed on.
    pub fn is_clear(&self) -> bool {
        self.taken == self.sent
    }
}

/// What has come and is to be passed on.
#[derive(Debug, Default)]
pub struct Receiving {
    received: u64,
    taken: u64,
    told: u64,
    waiting: VecDeque<Piece>,
    bytes: usize,
    end: Option<u64>,
}

#[derive(Debug)]
struct Piece {
    datagram: bool,
    bytes: Vec<u8>,
    start: usize,
    /// False: from an image, not from the other side.
    counted: bool,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It is new.
    New,
    /// It was here before.
    Known,
    /// Something is missing before it; it will come again.
    Early,
    /// The other side does not keep to the window.
    TooMuch,
}

impl Receiving {
    /// Begins with what an image holds.
    pub fn with(state: &RelayState, datagrams: bool) -> Self {
        let mut receiving = Self::default();
        for bytes in split(&state.undelivered, datagrams) {
            receiving.bytes += bytes.len();
            let (bytes, start) = (bytes.to_vec(), 0);
            receiving.waiting.push_back(Piece {
                datagram: datagrams,
                bytes,
                start,
                counted: false,
            });
        }
        if state.far_closed {
            receiving.end = Some(0);
        }
        receiving
    }

    /// A frame has come.
    pub fn accept(&mut self, offset: u64, datagram: bool, mut bytes: Vec<u8>) -> Arrival {
        let Some(end) = offset.checked_add(weight(datagram, bytes.len())) else {
            return Arrival::TooMuch;
        };
        if end <= self.received {
            return Arrival::Known;
        }
        if offset > self.received {
            return Arrival::Early;
        }
        let most = WINDOW + MOST_DRAINED as u64;
        if self.received - self.taken > most || bytes.len() > LONGEST {
            return Arrival::TooMuch;
        }
        if offset < self.received {
            if datagram {
                return Arrival::TooMuch;
            }
            bytes.drain(..(self.received - offset) as usize);
        }
        self.received = end;
        self.bytes += bytes.len();
        self.waiting.push_back(Piece { datagram, bytes, start: 0, counted: true });
        Arrival::New
    }

    /// The other side sends nothing beyond that.
    pub fn end_at(&mut self, offset: u64) {
        self.end.get_or_insert(offset);
    }

    /// What has come in all.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// What is to be written next, a whole datagram or some bytes.
    pub fn front(&self) -> Option<&[u8]> {
        self.waiting.front().map(|piece| &piece.bytes[piece.start..])
    }

    /// So many bytes of it were written; of a datagram all.
    pub fn wrote(&mut self, length: usize) {
        let piece = self.waiting.front_mut().expect("what was written waits until then");
        let rest = piece.bytes.len() - piece.start;
        let length = if piece.datagram { rest } else { length.min(rest) };
        piece.start += length;
        self.bytes -= length;
        if piece.counted {
            self.taken += length as u64;
        }
        if piece.start == piece.bytes.len() {
            if piece.counted && piece.datagram {
                self.taken += 1;
            }
            self.waiting.pop_front();
        }
    }

    /// Nobody is there any more to whom it could be written.
    pub fn discard(&mut self) {
        // What the other side no longer has will not come.
        self.received = self.received.max(self.end.unwrap_or(0));
        self.waiting.clear();
        self.bytes = 0;
        self.taken = self.received;
    }

    /// How much was passed on, if it is time to tell the other side.
    pub fn due_tell(&mut self) -> Option<u64> {
        let due = self.taken - self.told >= WINDOW / 4 || self.waiting.is_empty();
        (due && self.taken > self.told).then(|| {
            self.told = self.taken;
            self.taken
        })
    }

    /// How much was passed on in all.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether everything has come.
    pub fn has_end(&self) -> bool {
        self.end.is_some_and(|end| self.received >= end)
    }

    /// Whether everything has come and was passed on.
    pub fn is_over(&self) -> bool {
        self.has_end() && self.waiting.is_empty()
    }

    /// For an image: what is not passed on yet.
    pub fn state(&self) -> RelayState {
        let mut undelivered = Vec::with_capacity(self.bytes);
        for piece in &self.waiting {
            let bytes = &piece.bytes[piece.start..];
            if piece.datagram {
                undelivered.extend((bytes.len() as u32).to_le_bytes());
            }
            undelivered.extend(bytes);
        }
        RelayState { undelivered, far_closed: self.has_end() }
    }
}

/// Takes the form in an image apart. What does not fit the form is one last piece.
fn split(mut bytes: &[u8], datagrams: bool) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    if !datagrams {
        pieces.extend((!bytes.is_empty()).then_some(bytes));
        return pieces;
    }
    while let Some((head, rest)) = bytes.split_first_chunk::<4>() {
        let length = (u32::from_le_bytes(*head) as usize).min(rest.len());
        let (piece, after) = rest.split_at(length);
        pieces.push(piece);
        bytes = after;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_passed_on_is_kept() {
        let mut sending = Sending::default();
        sending.push(false, b"abc".to_vec());
        sending.push(false, b"de".to_vec());
        sending.taken(2);
        assert_eq!(sending.frames(0).count(), 2);
        sending.taken(3);
        assert_eq!(sending.frames(0).next().unwrap().bytes, b"de");
        sending.taken(99);
        assert!(!sending.is_clear());
        sending.taken(5);
        assert!(sending.is_clear() && sending.frames(0).next().is_none());
        assert_eq!(sending.room() as u64, WINDOW);
    }

    #[test]
    fn repeated_overlapping_and_early_frames() {
        let mut receiving = Receiving::default();
        assert_eq!(receiving.accept(0, false, b"abc".to_vec()), Arrival::New);
        assert_eq!(receiving.accept(0, false, b"abc".to_vec()), Arrival::Known);
        assert_eq!(receiving.accept(1, false, b"bcd".to_vec()), Arrival::New);
        assert_eq!(receiving.accept(7, false, b"x".to_vec()), Arrival::Early);
        assert_eq!(receiving.front().unwrap(), b"abc");
        receiving.wrote(2);
        assert_eq!(receiving.state().undelivered, b"cd");
        receiving.wrote(1);
        receiving.wrote(1);
        assert_eq!(receiving.due_tell(), Some(4));
        receiving.end_at(4);
        assert!(receiving.is_over());
    }

    #[test]
    fn datagrams_keep_their_bounds_through_an_image() {
        let mut receiving = Receiving::default();
        for (offset, bytes) in [(0, &b"ab"[..]), (3, b""), (4, b"c")] {
            assert_eq!(receiving.accept(offset, true, bytes.to_vec()), Arrival::New);
        }
        receiving.end_at(6);
        let state = receiving.state();
        assert!(state.far_closed);
        let mut again = Receiving::with(&state, true);
        for expected in [&b"ab"[..], b"", b"c"] {
            assert_eq!(again.front().unwrap(), expected);
            again.wrote(expected.len());
        }
        assert!(again.is_over());
        assert_eq!(again.taken(), 0);
    }

    #[test]
    fn nobody_may_send_beyond_the_window() {
        let mut receiving = Receiving::default();
        let piece = vec![0; LONGEST];
        let most = (WINDOW as usize + MOST_DRAINED) / LONGEST;
        for number in 0..=most {
            let offset = (number * LONGEST) as u64;
            assert_eq!(receiving.accept(offset, false, piece.clone()), Arrival::New);
        }
        let offset = ((most + 1) * LONGEST) as u64;
        assert_eq!(receiving.accept(offset, false, piece), Arrival::TooMuch);
        assert_eq!(receiving.accept(u64::MAX, false, vec![1]), Arrival::TooMuch);
    }
}
