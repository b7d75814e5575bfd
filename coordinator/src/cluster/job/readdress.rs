//! A machine has another address. What agents have between them they make again, and relays lose nothing by it. A job's
//! own connections between machines went by the old address and carry nothing any more, without anybody being told. So
//! the job is parked, as for a move, and goes on with new ones: nothing is lost if none of its bytes were under way,
//! which no kernel can bring to rest without the address. Else it goes back to its last checkpoint.

use super::{Job, State};
use crate::cluster::entry::Cause;
use crate::cluster::event::Now;
use crate::cluster::shared::Shared;
use crate::event::Event;
use protocol::cluster::NodeName;

impl Job {
    /// A node has said Hello from another address than before.
    pub(in crate::cluster) fn address_changed(
        &mut self,
        now: Now,
        shared: &mut Shared,
        node: &NodeName,
    ) {
        let State::Running(running) = &self.state else { return };
        let nodes = self.nodes();
        if !nodes.contains(node) || nodes.len() < 2 || running.machine.is_ending() {
            return;
        }
        if running.held.is_some() {
            // Its end may have come of the lost connections.
            let reason = "it has another address".to_owned();
            self.roll_back(now, shared, Cause::Broken { node: node.clone(), reason });
            return;
        }
        self.readdressed = Some(node.clone());
        self.feed(now, shared, Event::Park);
    }

    /// A checkpoint was given up: one in which the job was to stand still for a new address is not tried again.
    pub(in crate::cluster) fn address_comes_first(&mut self, now: Now, shared: &mut Shared) {
        if let Some(node) = self.readdressed.take() {
            let reason =
                "it has another address, and connections could not come to rest".to_owned();
            self.roll_back(now, shared, Cause::Broken { node, reason });
        }
    }
}
