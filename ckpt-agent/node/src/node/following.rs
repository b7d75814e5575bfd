//! Which coordinator this node follows: that of the highest term that it has heard of.

use std::cmp::Ordering;

use protocol::cluster::succession::{Followed, ToSuccessor};

use super::Node;
use crate::{Action, Question};

/// A coordinator that has said nothing for so many beats is taken for silent. It answers each.
const SILENT_BEATS: u32 = 3;

/// What a coordinator is to this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The one that it follows, and nothing about it has changed.
    Known,
    /// To be followed from now on.
    Newer,
    /// Another one is followed.
    Older,
}

impl Node {
    /// One of a lower term is older than the one that is followed, and so is another of the same term.
    fn standing(&self, coordinator: &Followed) -> Standing {
        let known = &self.own.followed;
        if coordinator == known {
            return Standing::Known;
        }
        match coordinator.term.cmp(&known.term) {
            Ordering::Less => Standing::Older,
            Ordering::Equal if coordinator.claim != known.claim => Standing::Older,
            Ordering::Equal | Ordering::Greater => Standing::Newer,
        }
    }

    /// Whether a coordinator that bids welcome is to be obeyed. One of a lower term is left.
    pub(super) fn is_followed(&mut self, coordinator: &Followed) -> bool {
        let known = self.own.followed.term;
        // The one that was joined, and nobody has carried on for it.
        if known == 0 && coordinator.term <= 1 {
            return true;
        }
        match self.standing(coordinator) {
            Standing::Known => true,
            Standing::Newer => {
                self.own.followed = coordinator.clone();
                let followed = coordinator.clone();
                self.voice.act(Action::NoteFollowed { followed, asker: None });
                true
            }
            Standing::Older => {
                tracing::warn!(
                    "the coordinator of term {} is not obeyed: one of term {known} carries on for it",
                    coordinator.term,
                );
                self.leave_coordinator();
                false
            }
        }
    }

    /// Ends the connection; another is made at once.
    pub(super) fn leave_coordinator(&mut self) {
        let number = self.coordinator.as_ref().map(|known| known.number);
        if let Some(number) = number {
            self.disconnected(number);
        }
        // Without a connection the agent may be waiting, or trying the lost one.
        self.voice.act(Action::GiveUp(number));
    }

    pub(super) fn successor(&mut self, asker: u64, question: Question) {
        let answer = match question {
            Question::State { copy, joined } => {
                let mut followed = self.own.followed.clone();
                if followed.term == 0 {
                    followed.addresses = joined;
                }
                ToSuccessor::State { followed, answers: self.coordinator_answers(), copy }
            }
            Question::Follow(followed) => match self.standing(&followed) {
                Standing::Known => return self.follow(followed, asker),
                // Whoever has a copy of the cluster's key could say so: it counts only where it can be true. The
                // coordinator that is heard learns from the new one itself that it is to end.
                Standing::Newer if self.coordinator_answers() => {
                    ToSuccessor::Refused { followed: self.own.followed.clone() }
                }
                Standing::Newer => {
                    return self.voice.act(Action::NoteFollowed { followed, asker: Some(asker) });
                }
                Standing::Older => ToSuccessor::Refused { followed: self.own.followed.clone() },
            },
        };
        self.voice.act(Action::AnswerSuccessor(asker, answer));
    }

    fn coordinator_answers(&self) -> bool {
        let silence = self.beat.saturating_mul(SILENT_BEATS);
        self.coordinator.as_ref().is_some_and(|known| {
            let heard = self.now.saturating_sub(known.heard);
            self.is_welcome() && u128::from(heard) < silence.as_nanos()
        })
    }

    pub(super) fn followed_noted(
        &mut self,
        followed: Followed,
        asker: Option<u64>,
        failure: Option<String>,
    ) {
        match (failure, asker) {
            (None, Some(asker)) => {
                self.own.followed = followed.clone();
                self.follow(followed, asker);
            }
            (None, None) => {}
            (Some(reason), Some(asker)) => {
                self.voice.act(Action::AnswerSuccessor(asker, ToSuccessor::Failed { reason }));
            }
            // After the next start it is found by its address, or says so again.
            (Some(reason), None) => {
                tracing::warn!("failed to note the new coordinator: {reason}");
            }
        }
    }

    /// It is followed, and that will be known after the next start, too.
    fn follow(&mut self, followed: Followed, asker: u64) {
        let current = self.coordinator.as_ref().and_then(|known| known.term);
        if current != Some(followed.term) {
            tracing::info!(
                "following the coordinator of term {} at {}",
                followed.term,
                followed.addresses.join(", ")
            );
            self.leave_coordinator();
        }
        self.voice.act(Action::AnswerSuccessor(asker, ToSuccessor::Follows));
    }
}
