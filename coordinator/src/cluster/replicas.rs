//! Who gets a copy of the coordinator's folder, and who must hear of a new coordinator.

use super::ClusterMachine;
use super::members::Presence;
use protocol::cluster::NodeName;
use protocol::cluster::succession::Followed;
use std::collections::BTreeSet;
use std::net::SocketAddr;

impl ClusterMachine {
    /// What agents know this coordinator by.
    #[must_use]
    pub fn coordinator(&self) -> &Followed {
        &self.shared.coordinator
    }

    /// With the seal by which agents show it to others.
    pub fn seal_coordinator(&mut self, sealed: Followed) {
        self.shared.coordinator.seal = sealed.seal;
    }

    /// Where coordinators were from which this one took over, HOST:PORT.
    #[must_use]
    pub fn lost_coordinators(&self) -> &[String] {
        &self.shared.lost
    }

    /// The nodes whose agents keep a copy, as far as they are connected: those that hold images, run
    /// a part of a job, or get copies of its images. They have the memory of whole jobs on
    /// their disks anyway, or will.
    #[must_use]
    pub fn log_holders(&self) -> BTreeSet<NodeName> {
        let mut holders = BTreeSet::new();
        for job in self.jobs.values() {
            let images = job.ledger.images.values().flat_map(|images| images.values());
            holders.extend(images.flat_map(|image| image.holders.iter().cloned()));
            for (_, instance) in job.live.present() {
                holders.insert(instance.record.node.clone());
                holders.extend(instance.partners.iter().cloned());
            }
        }
        holders.retain(|node| {
            self.shared
                .members
                .get(node)
                .is_some_and(|member| member.is_connected() && member.presence == Presence::There)
        });
        holders
    }

    /// Members that are not connected, and where their agents were last: they may follow a coordinator
    /// that is no more.
    #[must_use]
    pub fn absent(&self) -> Vec<(NodeName, SocketAddr)> {
        let members = self.shared.members.iter();
        members
            .filter(|(_, member)| !member.is_connected())
            .map(|(node, member)| (node.clone(), member.profile.address))
            .collect()
    }

    /// All members, and where their agents were last.
    #[must_use]
    pub fn members(&self) -> Vec<(NodeName, SocketAddr)> {
        let members = self.shared.members.iter();
        members.map(|(node, member)| (node.clone(), member.profile.address)).collect()
    }
}
