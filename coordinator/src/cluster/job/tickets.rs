//! Callers who wait for a checkpoint or for the end of a job.

use crate::cluster::event::ClientId;
use crate::cluster::shared::Shared;
use crate::event::Ticket;
use protocol::cluster::client::Answer;
use std::collections::BTreeMap;

/// Who waits, by tickets that are never used twice.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Tickets {
    waiting: BTreeMap<Ticket, ClientId>,
    last: Ticket,
}

impl Tickets {
    /// Somebody waits for an answer.
    pub(in crate::cluster) fn issue(&mut self, client: ClientId) -> Ticket {
        self.last += 1;
        self.waiting.insert(self.last, client);
        self.last
    }

    pub(in crate::cluster) fn answer(
        &mut self,
        shared: &mut Shared,
        ticket: Ticket,
        answer: Answer,
    ) {
        // A caller may have gone before its answer.
        if let Some(client) = self.waiting.remove(&ticket) {
            shared.answer_last(&client, answer);
        }
    }

    /// Everybody who waits gets the same answer.
    pub(in crate::cluster) fn answer_all(&mut self, shared: &mut Shared, answer: &Answer) {
        for client in std::mem::take(&mut self.waiting).into_values() {
            shared.answer_last(&client, answer.clone());
        }
    }

    /// Everybody who waits is told that it can't be had.
    pub(in crate::cluster) fn fail_all(&mut self, shared: &mut Shared, reason: &str) {
        for client in std::mem::take(&mut self.waiting).into_values() {
            shared.fail(&client, reason);
        }
    }

    /// A client no longer waits.
    pub(in crate::cluster) fn client_gone(&mut self, client: &ClientId) {
        self.waiting.retain(|_, waiting| waiting != client);
    }
}
