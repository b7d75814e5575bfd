//! Which coordinator this node follows: that of the highest term that it has heard of.

use protocol::cluster::succession::{Followed, ToSuccessor};

use super::Node;
use crate::daemon::lease::boot_time;
use crate::daemon::succession::Question;

/// A coordinator that has said nothing for so many beats is taken for silent. It answers each.
const SILENT_BEATS: u32 = 3;

impl Node {
    /// Whether a coordinator that bids welcome is to be obeyed. One of a lower term is left.
    pub(super) fn is_followed(&mut self, coordinator: &Followed) -> bool {
        let identity = &self.parts.identity;
        let known = identity.followed();
        // The one that was joined, and nobody has carried on for it.
        let followed = if known.term == 0 && coordinator.term <= 1 {
            Ok(true)
        } else {
            identity.follow(coordinator)
        };
        match followed {
            Ok(true) => return true,
            Ok(false) => tracing::warn!(
                "the coordinator of term {} is not obeyed: one of term {} carries on for it",
                coordinator.term,
                known.term
            ),
            // After the next start it is found by its address, or says so again.
            Err(error) => {
                tracing::warn!("failed to note the new coordinator: {error}");
                return true;
            }
        }
        self.leave_coordinator();
        false
    }

    /// Ends the connection; another is made at once.
    pub(super) fn leave_coordinator(&mut self) {
        if let Some(number) = self.coordinator.as_ref().map(|known| known.number) {
            self.disconnected(number);
            self.parts.give_up.send_replace(number);
        } else {
            // It may be waiting, or trying the lost one.
            self.parts.give_up.send_modify(|_| {});
        }
    }

    pub(super) fn successor(&mut self, question: Question) {
        // Whoever asked may have gone.
        match question {
            Question::State(answer) => drop(answer.send(self.state_of_coordinator())),
            Question::Follow(followed, answer) => drop(answer.send(self.follow(&followed))),
        }
    }

    fn state_of_coordinator(&self) -> ToSuccessor {
        let silence = self.beat.borrow().saturating_mul(SILENT_BEATS);
        let answers = self.coordinator.as_ref().is_some_and(|known| {
            let heard = boot_time().saturating_sub(known.heard);
            known.welcome && u128::from(heard) < silence.as_nanos()
        });
        let mut followed = self.parts.identity.followed();
        if followed.term == 0 {
            followed.addresses = self.parts.identity.addresses();
        }
        ToSuccessor::State { followed, answers, copy: self.parts.replica.copy() }
    }

    fn follow(&mut self, followed: &Followed) -> ToSuccessor {
        match self.parts.identity.follow(followed) {
            Ok(true) => {}
            Ok(false) => return ToSuccessor::Refused { followed: self.parts.identity.followed() },
            Err(error) => return ToSuccessor::Failed { reason: error.to_string() },
        }
        let current = self.coordinator.as_ref().and_then(|known| known.term);
        if current != Some(followed.term) {
            tracing::info!(
                "following the coordinator of term {} at {}",
                followed.term,
                followed.addresses.join(", ")
            );
            self.leave_coordinator();
        }
        ToSuccessor::Follows
    }
}
