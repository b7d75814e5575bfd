//! An epoch that starts from no checkpoint: the job's first process is started.

use super::making::{Attempts, Stage};
use crate::cluster::entry::{ClusterEntry, InstanceRecord, Origin};
use crate::cluster::event::Now;
use crate::cluster::job::instances::Stage as InstanceStage;
use crate::cluster::job::{Job, State, addresses};
use crate::cluster::members::Member;
use crate::cluster::shared::Shared;
use crate::fault;
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::addresses::AddressMap;
use protocol::cluster::agent::{LaunchOrder, ToAgent};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// What one more process would find on a machine.
struct Room {
    is_full: bool,
    /// How fast it would be.
    speed: f64,
    /// Processes for each that the machine takes.
    crowd: f64,
}

impl Room {
    fn of(member: &Member, busy: u32) -> Self {
        let slots = member.profile.slots;
        let part = member.cores() / (f64::from(busy) + 1.0);
        Self {
            is_full: busy >= slots,
            speed: member.speed() * part.min(1.0),
            crowd: f64::from(busy) / f64::from(slots.max(1)),
        }
    }

    /// The better one first. Where processes would be about as fast, machines fill up evenly: what is measured differs a
    /// little from moment to moment.
    fn compare(&self, other: &Self) -> Ordering {
        let class = |speed: f64| (speed.max(f64::MIN_POSITIVE).log2() * 2.0).round();
        let by_speed = || class(other.speed).total_cmp(&class(self.speed));
        let by_crowd = || self.crowd.total_cmp(&other.crowd);
        self.is_full.cmp(&other.is_full).then_with(by_speed).then_with(by_crowd)
    }
}

impl Job {
    /// Starts the job's first process: where it was asked for, if that machine takes processes, or where there is most room.
    pub(super) fn launch(&mut self, now: Now, shared: &mut Shared, attempts: &Attempts) {
        let usable = self.in_order(shared);
        let unavoided = usable.iter().find(|node| !attempts.avoid.contains(node));
        let Some(node) = unavoided.or(usable.first()).cloned() else {
            fault::tell("launch a job", "a machine that takes processes");
            return;
        };
        let instance = self.ledger.next_instance();
        let record = InstanceRecord {
            node: node.clone(),
            logical_node: node.clone(),
            root: true,
            origin: Origin::Run,
            addresses: addresses::of_machine(&shared.members, &node),
        };
        let instances = BTreeMap::from([(instance, record.clone())]);
        let job = self.ledger.id.clone();
        self.record(shared, ClusterEntry::Instances { job: job.clone(), instances });
        shared.occupied.insert(job, BTreeMap::from([(node.clone(), 1)]));
        let partners = self.choose_partners(shared, &node);
        let limit = shared.settings.rollback.launch;
        let stage = InstanceStage::Launching { deadline: now.nanos.saturating_add(limit) };
        self.live.insert(instance, record, stage, partners.clone());
        let mut launch = self.ledger.request.launch.clone();
        launch.window = self.console.window().or(launch.window);
        let order = LaunchOrder {
            key: self.key(instance),
            logical_node: node.clone(),
            hosts: self.live.hosts.content(&self.ledger, &shared.members),
            launch,
            is_root: true,
            user: self.ledger.user.clone(),
            settings: self.instance_settings(),
            partners,
            shell: None,
            addresses: AddressMap::default(),
        };
        self.enter(Stage::Launching, now, limit);
        self.cut_log_back(shared);
        shared.send(&node, ToAgent::Launch(Box::new(order)));
    }

    /// Where the job's first process could be started, the best machine first: where it was asked for, or where there is most
    /// room. Spares come last; of machines that are alike, the first by name comes first.
    fn in_order(&self, shared: &Shared) -> Vec<NodeName> {
        let busy = match self.ledger.request.anywhere {
            true => shared.busy(None),
            false => BTreeMap::new(),
        };
        let mut usable: Vec<(&NodeName, &Member)> =
            shared.members.usable_for(&self.ledger).collect();
        let room = |(node, member): &(&NodeName, &Member)| {
            Room::of(member, busy.get(*node).copied().unwrap_or(0))
        };
        let is_elsewhere = |node: &NodeName| self.ledger.client_node.as_ref() != Some(node);
        usable.sort_by(|one, other| {
            let by_place = || match self.ledger.request.anywhere {
                true => room(one).compare(&room(other)),
                false => is_elsewhere(one.0).cmp(&is_elsewhere(other.0)),
            };
            let by_spare = one.1.profile.spare.cmp(&other.1.profile.spare);
            by_spare.then_with(by_place).then_with(|| one.0.cmp(other.0))
        });
        usable.into_iter().map(|(node, _)| node.clone()).collect()
    }

    /// The job's first process runs.
    pub(in crate::cluster) fn launched(
        &mut self,
        now: Now,
        shared: &mut Shared,
        instance: InstanceId,
        pid: Option<i32>,
    ) {
        let launching = matches!(&self.state, State::Making(making) if making.is_launching());
        if launching && self.ledger.root() == Some(instance) {
            if let Some(found) = self.live.instances.get_mut(&instance) {
                found.stage = InstanceStage::Running;
                found.pid = pid;
            }
            self.complete(now, shared);
        } else {
            self.shell_launched(now, shared, instance, pid);
        }
    }
}
