//! What this run of the coordinator knows of an epoch's instances.

use super::Job;
use super::addresses::Whereabouts;
use super::hosts::Hosts;
use super::partners::{self, Partners};
use super::resting::Rest;
use super::roster::enter;
use crate::cluster::entry::InstanceRecord;
use crate::cluster::members::Member;
use crate::cluster::shared::Shared;
use crate::fault;
use protocol::agent::{ExitKind, InstanceId};
use protocol::cluster::addresses::AddressMap;
use protocol::cluster::agent::{RelayLink, ShellCall, ToAgent};
use protocol::cluster::{InstanceKey, NodeName};
use protocol::launch::LaunchSpec;
use std::collections::{BTreeMap, BTreeSet};

/// How far an instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cluster) enum Stage {
    /// Its machine has been told to start it.
    Launching {
        /// When that has taken too long.
        deadline: u64,
    },
    /// It is being restored.
    Restoring,
    /// It runs.
    Running,
    /// No process is left in it.
    Ended,
}

/// One instance.
#[derive(Debug, Clone)]
pub(in crate::cluster) struct Instance {
    pub(in crate::cluster) record: InstanceRecord,
    pub(in crate::cluster) stage: Stage,
    /// Number of its first process, where it was launched.
    pub(in crate::cluster) pid: Option<i32>,
    pub(in crate::cluster) links: Vec<RelayLink>,
    pub(in crate::cluster) partners: Vec<NodeName>,
}

/// A remote shell's call that waits until the job may change.
#[derive(Debug, Clone)]
pub(in crate::cluster) struct Delayed {
    pub(in crate::cluster) call: ShellCall,
    pub(in crate::cluster) logical_node: NodeName,
    pub(in crate::cluster) launch: LaunchSpec,
}

/// The end of a job's first process, before all of its output is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cluster) struct EarlyEnd {
    pub(in crate::cluster) status: ExitKind,
    /// Since when that is known: output that was still to come comes after it.
    pub(in crate::cluster) since: u64,
    /// Whether its machine says it once more behind the last output.
    pub(in crate::cluster) comes_again: bool,
}

/// The instances of one epoch.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Live {
    pub(in crate::cluster) instances: BTreeMap<InstanceId, Instance>,
    /// By their machines.
    by_node: BTreeMap<NodeName, BTreeSet<InstanceId>>,
    /// All that are being launched are among these, by when that has taken too long.
    launching: BTreeSet<(u64, InstanceId)>,
    pub(in crate::cluster) partners: Partners,
    pub(in crate::cluster) whereabouts: Whereabouts,
    pub(in crate::cluster) hosts: Hosts,
    pub(in crate::cluster) delayed: Vec<Delayed>,
    /// Calls of remote shells that were refused, by their callers' instances.
    pub(in crate::cluster) refused: BTreeSet<(InstanceId, u64)>,
    /// Machines on which a launch was given up, which may be under way there.
    pub(in crate::cluster) given_up_on: BTreeSet<NodeName>,
    /// Remote programs whose callers' agent was started again: the callers have to call once more, by then.
    pub(in crate::cluster) uncalled: BTreeMap<InstanceId, u64>,
    /// What has moved, as it was last told.
    pub(in crate::cluster) addresses: AddressMap,
    /// How the job's first process ended, where its machine said that on connecting.
    pub(in crate::cluster) early_end: Option<EarlyEnd>,
    /// How the job's first process ended.
    pub(in crate::cluster) root_end: Option<ExitKind>,
    /// Of a job that does without some of its daemons.
    pub(in crate::cluster) rest: Rest,
    /// Those that have ended, and whose machines still have an image of the checkpoint in flight in hand.
    pub(in crate::cluster) awaiting_release: BTreeSet<InstanceId>,
}

impl Live {
    pub(in crate::cluster) fn node(&self, instance: InstanceId) -> Option<&NodeName> {
        self.instances.get(&instance).map(|instance| &instance.record.node)
    }

    /// An instance of which its agent has just reported: reports are taken only of those of this epoch. Without it, the
    /// fault is our own: it is told, and the step left out.
    pub(in crate::cluster) fn known(
        &mut self,
        instance: InstanceId,
        step: &'static str,
    ) -> Option<&mut Instance> {
        let found = self.instances.get_mut(&instance);
        if found.is_none() {
            fault::tell(step, "an instance of this epoch");
        }
        found
    }

    pub(in crate::cluster) fn insert(
        &mut self,
        instance: InstanceId,
        record: InstanceRecord,
        stage: Stage,
        partners: Vec<NodeName>,
    ) {
        let links = Vec::new();
        if let Stage::Launching { deadline } = stage {
            self.launching.insert((deadline, instance));
        }
        enter(&mut self.by_node, &record.node, instance);
        self.partners.take(instance, &partners);
        self.whereabouts.take_in(&record);
        self.hosts.doubt(&record.logical_node);
        self.instances.insert(instance, Instance { record, stage, pid: None, links, partners });
    }

    /// No process is left in an instance, or it can't be had.
    pub(in crate::cluster) fn end(&mut self, instance: InstanceId) {
        let Some(found) = self.instances.get_mut(&instance) else { return };
        if found.stage != Stage::Ended {
            found.stage = Stage::Ended;
            self.partners.release(instance, &found.partners);
            self.whereabouts.take_out(&found.record);
            self.hosts.doubt(&found.record.logical_node);
        }
    }

    /// Those of one machine that have not ended.
    pub(in crate::cluster) fn present_on(
        &self,
        node: &NodeName,
    ) -> impl Iterator<Item = (InstanceId, &Instance)> {
        let numbers = self.by_node.get(node).into_iter().flatten();
        numbers
            .filter_map(|number| Some((*number, self.instances.get(number)?)))
            .filter(|(_, instance)| instance.stage != Stage::Ended)
    }

    /// Those that have not ended.
    pub(in crate::cluster) fn present(&self) -> impl Iterator<Item = (InstanceId, &Instance)> {
        self.instances
            .iter()
            .filter(|(_, instance)| instance.stage != Stage::Ended)
            .map(|(number, instance)| (*number, instance))
    }

    pub(in crate::cluster) fn is_launching(&self) -> bool {
        self.launching().next().is_some()
    }

    pub(in crate::cluster) fn deadline(&self) -> Option<u64> {
        let launch = self.launching().next().map(|(_, _, deadline)| deadline);
        launch.into_iter().chain(self.uncalled.values().copied()).min()
    }

    /// Those that are being launched, and when that has taken too long: the first in front.
    pub(in crate::cluster) fn launching(
        &self,
    ) -> impl Iterator<Item = (InstanceId, &InstanceRecord, u64)> {
        self.launching.iter().filter_map(|(_, number)| {
            let instance = self.instances.get(number)?;
            match instance.stage {
                Stage::Launching { deadline } => Some((*number, &instance.record, deadline)),
                _ => None,
            }
        })
    }

    /// Forgets who was being launched and is not any more, up to the first that still is.
    pub(in crate::cluster) fn forget_past_launches(&mut self) {
        while let Some((_, number)) = self.launching.first() {
            let instance = self.instances.get(number);
            let launching = |instance: &Instance| matches!(instance.stage, Stage::Launching { .. });
            if instance.is_some_and(launching) {
                break;
            }
            self.launching.pop_first();
        }
    }
}

impl Job {
    /// Partners for an instance on this machine.
    pub(in crate::cluster) fn choose_partners(
        &mut self,
        shared: &Shared,
        node: &NodeName,
    ) -> Vec<NodeName> {
        let Live { partners, by_node, .. } = &mut self.live;
        partners.look(&self.ledger, &shared.members, by_node);
        partners.choose(node, self.ledger.settings().copies)
    }

    /// Replaces partners that can't be reached, and finds the ones that were lacking. An instance whose own machine can't be
    /// reached keeps its own until that is back: when all machines come back one after the other, the first would become the
    /// partner of all the others otherwise.
    pub(in crate::cluster) fn renew_partners(&mut self, shared: &mut Shared) {
        let copies = self.ledger.settings().copies;
        let wanted = partners::wanted(copies);
        let Live { partners, instances, by_node, .. } = &mut self.live;
        partners.look(&self.ledger, &shared.members, by_node);
        for number in partners.doubtful() {
            let Some(instance) = instances.get_mut(&number) else { continue };
            let members = &shared.members;
            let good = |node: &NodeName| members.is_usable(node) && !members.is_full(node);
            let is_good = instance.partners.len() == wanted && instance.partners.iter().all(good);
            let is_reached =
                shared.members.get(&instance.record.node).is_some_and(Member::is_connected);
            if is_good || instance.stage == Stage::Ended || !is_reached {
                continue;
            }
            // Its own choice so far is not to count against it.
            partners.release(number, &instance.partners);
            let nodes = partners.choose(&instance.record.node, copies);
            partners.take(number, &nodes);
            if instance.partners != nodes {
                instance.partners.clone_from(&nodes);
                let (job, epoch) = (self.ledger.id.clone(), self.ledger.epoch);
                let key = InstanceKey { job, epoch, instance: number };
                shared.send(&instance.record.node, ToAgent::Partners { key, nodes });
            }
        }
    }

    /// Tells an agent again what it may have missed about an instance.
    pub(in crate::cluster) fn remind(&mut self, shared: &mut Shared, number: InstanceId) {
        let key = self.key(number);
        // The word that it runs may have been what the job's end had waited for.
        let Some(instance) = self.live.instances.get(&number) else { return };
        let node = instance.record.node.clone();
        let nodes = instance.partners.clone();
        let links = instance.links.clone();
        shared.send(&node, ToAgent::Partners { key: key.clone(), nodes });
        // One that has been started again knows where things are, and learns of listeners anew.
        let addresses = self.addresses(shared);
        if addresses != AddressMap::default() {
            self.live.addresses.clone_from(&addresses);
            shared.send(&node, ToAgent::Addresses { key: key.clone(), addresses });
        }
        if !links.is_empty() {
            shared.send(&node, ToAgent::Links { key: key.clone(), links });
        }
        if self.ledger.root() == Some(number) {
            shared.send(&node, ToAgent::ConsoleKept { key, offset: self.console.offset() });
        }
    }
}
