//! Where images would be needed, if a job were moved now.

use super::departed::{self, Departing};
use super::plan;
use crate::cluster::entry::Origin;
use crate::cluster::job::Job;
use crate::cluster::shared::Shared;
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::settings::Daemons;
use std::collections::BTreeSet;

impl Job {
    /// Which image would be needed on which machine, if the job were moved from its newest checkpoint now. None: there
    /// is no place for all of it. `takers`: machines that get a share.
    pub(in crate::cluster) fn destinations(
        &self,
        shared: &Shared,
        takers: &BTreeSet<NodeName>,
    ) -> Option<BTreeSet<(InstanceId, NodeName)>> {
        let images = self.ledger.images.get(&self.last_checkpoint()?)?;
        let members = &shared.members;
        let departing = match self.ledger.settings().daemons {
            Daemons::Fallback => departed::fallback(images, |node| !members.is_gone(node)),
            Daemons::Restore => Departing::default(),
        };
        let busy = shared.busy(Some(&self.ledger.id));
        let on = images.values().map(|image| image.node.clone()).collect();
        let offered = plan::machines(&self.ledger, members, &busy, &BTreeSet::new(), &on);
        let parts =
            plan::parts(&self.ledger, images, &offered.machines, &departing, takers).ok()?;
        let places = parts.instances.into_values().filter_map(|record| match record.origin {
            Origin::Image { instance, .. } => Some((instance, record.node)),
            Origin::Run | Origin::Shell { .. } => None,
        });
        Some(places.collect())
    }
}
