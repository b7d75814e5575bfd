//! Successors of a coordinator, and the one that is followed.

use ckpt_node::{Event, Question};
use protocol::cluster::succession::{Followed, ToSuccessor};
use tokio::sync::oneshot;

use super::Driver;

impl Driver {
    pub(super) fn state_asked(&mut self, answer: oneshot::Sender<ToSuccessor>) -> Event {
        let (copy, joined) = (self.parts.replica.copy(), self.parts.identity.addresses());
        let asker = self.ask(answer);
        Event::Successor { asker, question: Question::State { copy, joined } }
    }

    pub(super) fn follow_asked(
        &mut self,
        followed: Followed,
        answer: oneshot::Sender<ToSuccessor>,
    ) -> Event {
        let asker = self.ask(answer);
        Event::Successor { asker, question: Question::Follow(followed) }
    }

    fn ask(&mut self, answer: oneshot::Sender<ToSuccessor>) -> u64 {
        self.next_asker += 1;
        self.askers.insert(self.next_asker, answer);
        self.next_asker
    }

    pub(super) fn answer_successor(&mut self, asker: u64, answer: ToSuccessor) {
        if let Some(waiting) = self.askers.remove(&asker) {
            // Whoever asked may have gone.
            let _ = waiting.send(answer);
        }
    }

    pub(super) fn note_followed(&mut self, followed: Followed, asker: Option<u64>) {
        let failure = match self.parts.identity.follow(&followed) {
            Ok(true) => None,
            Ok(false) => Some("a newer coordinator is followed".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        self.events.push_back(Event::FollowedNoted { followed, asker, failure });
    }
}
