//! Lines that the user's own commands want in the job's log, such as that one has failed.

use super::Job;
use crate::cluster::event::{ClientId, Now};
use crate::cluster::shared::Shared;
use protocol::cluster::client::Answer;

/// The longest line, in bytes; the rest of one is left out.
const LONGEST: usize = 600;

/// Lines that are taken one after the other, and then in each minute: each is an entry of the coordinator's log.
const MOST: u32 = 120;
const EACH_MINUTE: u64 = 30;

/// In nanoseconds.
const MINUTE: u64 = 60_000_000_000;

/// How many lines a job's user may still write.
#[derive(Debug)]
pub(super) struct Notes {
    left: u32,
    /// Since when more are awaited, in nanoseconds.
    since: u64,
}

impl Default for Notes {
    fn default() -> Self {
        Self { left: MOST, since: 0 }
    }
}

impl Notes {
    /// Whether one more may be written.
    fn take(&mut self, now: u64) -> bool {
        let minutes = now.saturating_sub(self.since) / MINUTE;
        let more = u32::try_from(minutes.saturating_mul(EACH_MINUTE)).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(more).min(MOST);
        self.since = self.since.saturating_add(minutes.saturating_mul(MINUTE));
        let is_one = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_one
    }
}

/// One line of what may be several, or control a terminal.
fn line(text: &str) -> String {
    let mut line = String::new();
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if line.len() + c.len_utf8() > LONGEST {
            break;
        }
        line.push(c);
    }
    line
}

impl Job {
    /// A line for the log.
    pub(in crate::cluster) fn note(
        &mut self,
        now: Now,
        shared: &mut Shared,
        client: &ClientId,
        text: &str,
    ) {
        if !self.notes.take(now.nanos) {
            let name = &self.ledger.name;
            let reason = format!("write to the log of {name}: there are too many lines");
            return shared.fail(client, reason);
        }
        self.mark(shared, &line(text));
        shared.answer_last(client, Answer::Done { text: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_in_number_and_length() {
        let mut notes = Notes::default();
        assert_eq!((0..500).filter(|_| notes.take(MINUTE)).count() as u32, MOST);
        assert_eq!((0..500).filter(|_| notes.take(2 * MINUTE)).count() as u64, EACH_MINUTE);
        assert_eq!((0..500).filter(|_| notes.take(99 * MINUTE)).count() as u32, MOST);
        assert_eq!(line("a\nb\x1b[2J"), "a b [2J");
        assert_eq!(line(&"ä".repeat(LONGEST)).len(), LONGEST);
    }
}
