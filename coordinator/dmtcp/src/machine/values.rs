//! The key-value store, and what is put right in it.

use super::{Action, Connection, Machine};
use crate::address::{publish, published, seen_from_outside};
use crate::store::Request;
use crate::wire::{Kind, Message, Operation, StoreResult};
use std::collections::BTreeSet;

/// Where the accepting side of each connection publishes its restore listener, by the connection's name.
const LISTENERS: &str = "/plugin/socket/rst";

/// The barrier after which listeners are looked up.
pub(super) const LISTENERS_COMPLETE: &str = "Socket::Restart_Ns_Register_Data";

impl Machine {
    pub(super) fn store_request(&mut self, connection: Connection, message: &Message) {
        let found = match Request::of(message) {
            None => {
                self.warn(format!(
                    "{} sent a request for the key-value store whose sizes are wrong",
                    self.label(connection)
                ));
                Err(StoreResult::InvalidRequest)
            }
            Some(request) if request.database == LISTENERS => self.listener(connection, &request),
            Some(request) => self.store.perform(&request),
        };
        let mut reply = self.say(Kind::StoreResponse);
        match found {
            Ok(value) => {
                reply.store_code = StoreResult::Success.number();
                reply.payload = value;
                reply.payload.push(0);
                reply.value_length = u32::try_from(reply.payload.len()).unwrap_or(u32::MAX);
            }
            Err(result) => reply.store_code = result.number(),
        }
        self.send(connection, reply);
    }

    fn listener(
        &mut self,
        connection: Connection,
        request: &Request<'_>,
    ) -> Result<Vec<u8>, StoreResult> {
        if request.operation == Operation::Get {
            let found = self.store.get(LISTENERS, request.key);
            self.round.fetched(request.key);
            return match (found, self.settings.stand_in) {
                // Its peer will not come: who asks is given somebody who accepts and keeps silent.
                (Err(_), Some(stand_in)) if self.round.has_departed() => {
                    Ok(publish(stand_in).into_bytes())
                }
                (found, _) => found,
            };
        }
        let value = std::str::from_utf8(request.value).ok();
        let seen = self.workers.get(&connection).map(|worker| self.seen(worker.remote));
        let replaced = value.zip(seen).and_then(|(value, seen)| seen_from_outside(value, seen));
        match replaced {
            None => self.store.perform(request),
            Some(value) => self.store.perform(&Request { value: value.as_bytes(), ..*request }),
        }
    }

    /// Connects to the listeners that nobody has asked for, in the stead of the departed: else they are waited for.
    pub(super) fn dial_for_departed(&mut self) {
        let fetched: BTreeSet<Vec<u8>> = self.round.take_fetched();
        let mut dials = Vec::new();
        for (key, value) in self.store.values(LISTENERS) {
            if fetched.contains(key) {
                continue;
            }
            let address = std::str::from_utf8(value).ok().and_then(published);
            if let (Some(address), Ok(key)) = (address, std::str::from_utf8(key)) {
                dials.push(Action::DialFor { address, key: key.to_owned() });
            }
        }
        self.actions.append(&mut dials);
    }
}
