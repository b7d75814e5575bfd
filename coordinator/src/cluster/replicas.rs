//! Who gets a copy of the coordinator's folder, and who must hear of a new coordinator.

use super::ClusterMachine;
use super::callers::Caller;
use super::event::{ClientId, ClusterAction};
use super::members::{Member, Presence};
use protocol::cluster::NodeName;
use protocol::cluster::client::Answer;
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

    /// The nodes whose agents keep a copy, as far as they are connected: standbys, and those that hold images, run a part of
    /// a job, or get copies of its images. `may`: whether one may, as the coordinator's own machine may not. One that is about
    /// to go does where no other is left.
    #[must_use]
    pub fn log_holders(&self, may: impl Fn(&NodeName) -> bool) -> BTreeSet<NodeName> {
        let mut holders = self.shared.standbys.clone();
        for job in self.jobs.values() {
            let images = job.ledger.images.values().flat_map(|images| images.values());
            holders.extend(images.flat_map(|image| image.holders.iter().cloned()));
            for (_, instance) in job.live.present() {
                holders.insert(instance.record.node.clone());
                holders.extend(instance.partners.iter().cloned());
            }
        }
        holders.retain(may);
        let stays = self.connected_of(&holders, Presence::There);
        if stays.is_empty() { self.connected_of(&holders, Presence::Leaving) } else { stays }
    }

    fn connected_of(&self, nodes: &BTreeSet<NodeName>, presence: Presence) -> BTreeSet<NodeName> {
        let is = |member: &Member| {
            member.is_connected() && member.presence == presence && !member.dismissed
        };
        let there = |node: &&NodeName| self.shared.members.get(node).is_some_and(is);
        nodes.iter().filter(there).cloned().collect()
    }

    /// Names a member that is to have the cluster's key, or takes the name back.
    pub(super) fn name_standby(
        &mut self,
        client: &ClientId,
        caller: &Caller,
        node: NodeName,
        on: bool,
    ) {
        if !caller.is_operator() {
            let reason = format!(
                "give {node} the cluster's key: only an operator may, on the coordinator's machine or a member of \
                 --role operator"
            );
            return self.shared.fail(client, reason);
        }
        let known = if on {
            self.shared.members.get(&node).is_some()
        } else {
            self.shared.standbys.contains(&node)
        };
        if !known {
            let what = if on { "there is no such node" } else { "it is no standby" };
            return self.shared.fail(client, format!("change what {node} gets: {what}"));
        }
        let text = match on {
            true => format!(
                "{node} is a standby: it gets the cluster's key with its copy of the coordinator's log, and other \
                 members do not, but for standbys named before"
            ),
            false => format!(
                "{node} is no standby any more, and is told to remove the cluster's key; what its owner may have learnt \
                 is not taken back{}",
                if self.shared.standbys.len() > 1 {
                    ""
                } else {
                    "; no machine can carry on for the coordinator now"
                }
            ),
        };
        self.shared.act(ClusterAction::NameStandby { node, on });
        self.shared.answer_last(client, Answer::Done { text: Some(text) });
    }

    /// The nodes that get a [broadcast](ClusterAction::Broadcast).
    #[must_use]
    pub fn connected(&self) -> Vec<NodeName> {
        self.shared.members.connected().cloned().collect()
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
