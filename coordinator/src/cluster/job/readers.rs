//! Commands that take a checkpoint elsewhere while the job runs on: it stays until they have it.

use super::{Ahead, ClientId, Job, State};
use protocol::agent::CheckpointNumber;

/// Commands at a time; the checkpoint of one more may be collected while it is read.
const MOST_READERS: usize = 8;

impl Job {
    /// Keeps a checkpoint as long as a command stays connected; whether it does.
    pub(in crate::cluster) fn read_by(
        &mut self,
        client: &ClientId,
        checkpoint: CheckpointNumber,
    ) -> bool {
        if self.readers.len() >= MOST_READERS && !self.readers.contains_key(client) {
            return false;
        }
        self.readers.insert(client.clone(), checkpoint);
        self.note_readers();
        true
    }

    /// What nobody reads any more goes with the next commit.
    pub(super) fn reader_gone(&mut self, client: &ClientId) {
        if self.readers.remove(client).is_some() {
            self.note_readers();
        }
    }

    /// Tells a one-job machine, which may be a new one.
    pub(in crate::cluster) fn note_readers(&mut self) {
        if let State::Running(running) = &mut self.state {
            let ahead = self.ahead.as_ref().map(Ahead::base);
            running.machine.let_read(self.readers.values().copied().chain(ahead));
        }
    }
}
