//! What this run of the coordinator knows of an epoch's instances.

use super::Job;
use super::partners::Candidates;
use super::resting::Rest;
use crate::cluster::entry::InstanceRecord;
use crate::cluster::shared::Shared;
use crate::fault;
use protocol::agent::{ExitKind, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::addresses::AddressMap;
use protocol::cluster::agent::{MovedListener, RelayLink, ShellCall, ToAgent};
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
    /// All that are being launched are among these.
    launching: BTreeSet<InstanceId>,
    pub(in crate::cluster) delayed: Vec<Delayed>,
    /// Calls of remote shells that were refused, by their callers' instances.
    pub(in crate::cluster) refused: BTreeSet<(InstanceId, u64)>,
    /// Machines on which a launch was given up, which may be under way there.
    pub(in crate::cluster) given_up_on: BTreeSet<NodeName>,
    /// Remote programs whose callers' agent was started again: the callers have to call once more, by then.
    pub(in crate::cluster) uncalled: BTreeMap<InstanceId, u64>,
    /// Listening sockets, where they are told.
    pub(in crate::cluster) listeners: Vec<(InstanceId, MovedListener)>,
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
        if matches!(stage, Stage::Launching { .. }) {
            self.launching.insert(instance);
        }
        self.instances.insert(instance, Instance { record, stage, pid: None, links, partners });
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
        let launches = self.launching().map(|(_, _, deadline)| deadline);
        launches.chain(self.uncalled.values().copied()).min()
    }

    /// Those that are being launched, and when that has taken too long.
    pub(in crate::cluster) fn launching(
        &self,
    ) -> impl Iterator<Item = (InstanceId, &InstanceRecord, u64)> {
        self.launching.iter().filter_map(|number| {
            let instance = self.instances.get(number)?;
            match instance.stage {
                Stage::Launching { deadline } => Some((*number, &instance.record, deadline)),
                _ => None,
            }
        })
    }

    /// Forgets who was being launched and is not any more.
    pub(in crate::cluster) fn forget_past_launches(&mut self) {
        let instances = &self.instances;
        self.launching.retain(|number| {
            let instance = instances.get(number);
            instance.is_some_and(|instance| matches!(instance.stage, Stage::Launching { .. }))
        });
    }

    /// How often each machine is a partner.
    fn partner_load(&self) -> BTreeMap<NodeName, u32> {
        let mut load = BTreeMap::new();
        for (_, instance) in self.present() {
            for partner in &instance.partners {
                *load.entry(partner.clone()).or_default() += 1;
            }
        }
        load
    }
}

impl Job {
    /// Partners for an instance on this machine.
    pub(in crate::cluster) fn choose_partners(
        &self,
        shared: &Shared,
        node: &NodeName,
    ) -> Vec<NodeName> {
        let copies = self.ledger.settings().copies;
        self.partner_candidates(shared).choose(node, copies)
    }

    fn partner_candidates(&self, shared: &Shared) -> Candidates {
        Candidates::new(&self.ledger, &shared.members, &self.live.partner_load())
    }

    /// Replaces partners that can't be reached, and finds the ones that were lacking.
    pub(in crate::cluster) fn renew_partners(&mut self, shared: &mut Shared) {
        let copies = self.ledger.settings().copies;
        let wanted = usize::try_from(copies.saturating_sub(1)).unwrap_or(usize::MAX);
        let good = |node: &NodeName| shared.members.is_usable(node);
        let numbers: Vec<InstanceId> = self
            .live
            .present()
            .filter(|(_, instance)| {
                instance.partners.len() != wanted || !instance.partners.iter().all(good)
            })
            .map(|(number, _)| number)
            .collect();
        if numbers.is_empty() {
            return;
        }
        let mut candidates = self.partner_candidates(shared);
        for number in numbers {
            let Some(instance) = self.live.instances.get(&number) else { continue };
            let node = instance.record.node.clone();
            // Its own choice so far is not to count against it.
            instance.partners.iter().for_each(|partner| candidates.release(partner));
            let nodes = candidates.choose(&node, copies);
            let key = self.key(number);
            if let Some(instance) = self.live.instances.get_mut(&number) {
                if instance.partners != nodes {
                    instance.partners.clone_from(&nodes);
                    shared.send(&node, ToAgent::Partners { key, nodes });
                }
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
