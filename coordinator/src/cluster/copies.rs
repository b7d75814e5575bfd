//! Images that would be in too few places once a node has gone: others get copies first.

use super::ClusterMachine;
use super::entry::ClusterEntry;
use super::event::Now;
use super::job::{Job, State};
use super::members::{Members, Presence};
use crate::settings::SECOND;
use protocol::agent::{CheckpointNumber, ExitKind, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::agent::ToAgent;
use std::collections::BTreeMap;

/// Copies that are being made at a time.
const MOST_ORDERS: usize = 32;
/// How long one may take, in nanoseconds, before it is ordered elsewhere.
const PATIENCE: u64 = 600 * SECOND;
/// From a copy that failed to the next attempt.
const PAUSE: u64 = 2 * SECOND;

type Name = (String, InstanceId, CheckpointNumber);

/// Copies that were ordered.
#[derive(Debug, Default)]
pub(super) struct Copying {
    orders: BTreeMap<Name, Order>,
    /// Why one failed last.
    failed: Option<String>,
}

#[derive(Debug)]
struct Order {
    node: NodeName,
    /// When it is given up; of one that failed: when it is tried again.
    until: u64,
    failed: bool,
}

/// An image that would be in too few places.
#[derive(Debug)]
struct Lack {
    name: Name,
    holders: Vec<NodeName>,
}

impl Job {
    /// Whether it may be restarted or rolled back: the images of one that has come to a good end are of no
    /// more use.
    fn may_go_back(&self) -> bool {
        let end = self.ledger.history.end().and_then(|end| end.status);
        !(self.is_over() && end == Some(ExitKind::Exited(0)))
    }

    /// Of the checkpoint that it would go back to, images that this node holds and too few others.
    fn lacks(&self, members: &Members, node: &NodeName) -> Vec<Lack> {
        let Some(checkpoint) = self.last_checkpoint().filter(|_| self.may_go_back()) else {
            return Vec::new();
        };
        let able = members.iter().filter(|(other, member)| {
            *other != node
                && member.presence == Presence::There
                && member.is_connected()
                && self.ledger.trusts(member)
        });
        let wanted = usize::try_from(self.ledger.settings().copies).unwrap_or(usize::MAX);
        let wanted = wanted.max(1).min(able.count());
        let images = self.ledger.images.get(&checkpoint).into_iter().flatten();
        let committed = self.ledger.history.record(checkpoint);
        let committed_ms = committed.map_or(0, |record| record.committed_at_ms);
        let id = &self.ledger.id;
        let mut lacks = Vec::new();
        for (instance, image) in images.filter(|(_, image)| image.holders.contains(node)) {
            let has = |holder: &&NodeName| {
                members
                    .get(holder)
                    .filter(|member| member.presence != Presence::Gone)
                    .is_some_and(|member| member.has_image(id, *instance, checkpoint, committed_ms))
            };
            let holders: Vec<NodeName> = image.holders.iter().filter(has).cloned().collect();
            let stays = |holder: &&NodeName| {
                members.get(holder).is_some_and(|member| member.presence == Presence::There)
            };
            if holders.iter().filter(stays).count() < wanted {
                lacks.push(Lack { name: (id.clone(), *instance, checkpoint), holders });
            }
        }
        lacks
    }
}

impl ClusterMachine {
    /// Whether images would be in too few places without this node; what is to be said about it.
    pub(super) fn lacks_copies(&self, node: &NodeName) -> Option<Option<String>> {
        let lacking =
            self.jobs.values().any(|job| !job.lacks(&self.shared.members, node).is_empty());
        lacking.then(|| {
            let failed = self.copying.failed.as_ref();
            failed.map(|reason| format!("{node} can't go yet: its images are needed: {reason}"))
        })
    }

    /// Has copies made of what nodes hold that are about to go. A job that is to be moved away is moved first: that
    /// makes copies by itself.
    pub(super) fn order_copies(&mut self, now: Now) {
        let members = &self.shared.members;
        self.copying.orders.retain(|_, order| {
            now.nanos < order.until && (order.failed || members.is_connected(&order.node))
        });
        let mut lacks: BTreeMap<Name, Vec<NodeName>> = BTreeMap::new();
        for job in self.jobs.values() {
            let moves = self.leaving.keys().any(|node| job.ledger.instances.is_on(node));
            if moves || matches!(job.state, State::Making(_)) {
                continue;
            }
            let of_job = self.leaving.keys().flat_map(|node| job.lacks(members, node));
            lacks.extend(of_job.map(|lack| (lack.name, lack.holders)));
        }
        for (name, holders) in lacks {
            if self.copying.orders.len() >= MOST_ORDERS {
                return;
            }
            if self.copying.orders.contains_key(&name) {
                continue;
            }
            let busy = |node: &NodeName| {
                self.copying.orders.values().filter(|order| order.node == *node).count()
            };
            let able = self.shared.members.iter().filter(|(node, member)| {
                member.is_connected()
                    && member.presence == Presence::There
                    && !holders.contains(*node)
            });
            let Some((node, _)) = able.min_by_key(|(node, _)| (busy(node), *node)) else {
                continue;
            };
            let node = node.clone();
            let (job, instance, checkpoint) = name.clone();
            let until = now.nanos.saturating_add(PATIENCE);
            self.copying.orders.insert(name, Order { node: node.clone(), until, failed: false });
            let images = self.jobs.get(&job).and_then(|job| job.ledger.images.get(&checkpoint));
            let image = images.and_then(|images| images.get(&instance));
            let digest = image.map_or_else(String::new, |image| image.facts.digest.clone());
            let order = ToAgent::Copy { job, instance, checkpoint, holders, digest };
            self.shared.send(&node, order);
        }
    }

    /// A copy was made, or could not be.
    pub(super) fn copied(
        &mut self,
        now: Now,
        node: &NodeName,
        name: Name,
        failure: Option<String>,
    ) {
        let went_ahead = self.jobs.get_mut(&name.0).is_some_and(|job| {
            let (_, instance, checkpoint) = name;
            job.came_ahead(node, instance, checkpoint, failure.as_deref())
        });
        // The order may have been given to another node meanwhile.
        let ordered = self.copying.orders.get_mut(&name).filter(|order| order.node == *node);
        if ordered.is_none() && !went_ahead {
            return;
        }
        if let Some(reason) = failure {
            if let Some(order) = ordered {
                self.copying.failed = Some(format!("{node}: {reason}"));
                order.failed = true;
                order.until = now.nanos.saturating_add(PAUSE);
            }
            return;
        }
        if ordered.is_some() {
            self.copying.orders.remove(&name);
            self.copying.failed = None;
        }
        let (job, instance, checkpoint) = name;
        self.shared.members.note_image(node, &job, instance, checkpoint);
        // It may have been forgotten while it was copied.
        let Some(found) = self.jobs.get_mut(&job) else { return };
        let image = found.ledger.images.get(&checkpoint).and_then(|images| images.get(&instance));
        if image.is_some_and(|image| !image.holders.contains(node)) {
            let node = node.clone();
            found.record(&mut self.shared, ClusterEntry::Held { job, checkpoint, instance, node });
        }
    }
}
