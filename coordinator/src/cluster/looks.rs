//! Users who look at images of their jobs that lie in an agent's folder.

use super::ClusterMachine;
use super::callers::Caller;
use super::event::ClientId;
use protocol::agent::CheckpointNumber;
use protocol::cluster::agent::ToAgent;
use protocol::cluster::look::{ImageName, Look};

impl ClusterMachine {
    /// Has the agent of the client's node look at what it holds of the job. It answers the client itself.
    pub(super) fn look(
        &mut self,
        client: &ClientId,
        caller: &Caller,
        wanted: &str,
        only: Option<CheckpointNumber>,
        look: Look,
    ) {
        let job = match self.find(caller, wanted) {
            Ok(job) => job,
            Err(error) => return self.shared.fail(client, error.to_string()),
        };
        let Some(node) = &client.node else {
            let reason = format!("look at the images of {wanted}: no agent listens at this socket");
            return self.shared.fail(client, reason);
        };
        let mut images = Vec::new();
        for (checkpoint, of) in &job.ledger.images {
            let held = of.iter().filter(|(_, image)| image.holders.contains(node));
            if only.is_none_or(|only| only == *checkpoint) {
                let name = |instance| ImageName { instance, checkpoint: *checkpoint };
                images.extend(held.map(|(instance, _)| name(*instance)));
            }
        }
        let job = job.ledger.id.clone();
        let order = ToAgent::Look { client: client.number, job, images, look };
        self.shared.send(&node.clone(), order);
    }
}
