//! An epoch that starts from no checkpoint: the job's first process is started.

use super::making::{Attempts, Stage};
use crate::cluster::entry::{ClusterEntry, InstanceRecord, Origin};
use crate::cluster::event::Now;
use crate::cluster::job::instances::Stage as InstanceStage;
use crate::cluster::job::{Job, State, addresses};
use crate::cluster::shared::Shared;
use crate::fault;
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::addresses::AddressMap;
use protocol::cluster::agent::{LaunchOrder, ToAgent};
use std::collections::BTreeMap;

impl Job {
    /// Starts the job's first process: where it was asked for, if that machine takes processes.
    pub(super) fn launch(&mut self, now: Now, shared: &mut Shared, attempts: &Attempts) {
        let is_spare =
            |node: &NodeName| shared.members.get(node).is_some_and(|member| member.profile.spare);
        let may = shared.members.usable_for(&self.ledger).map(|(node, _)| node.clone());
        let mut usable: Vec<NodeName> = may.collect();
        // False comes first: the machine where it was asked for, then the others in the order of their names, spares last.
        usable.sort_by_key(|node| (is_spare(node), self.ledger.client_node.as_ref() != Some(node)));
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
