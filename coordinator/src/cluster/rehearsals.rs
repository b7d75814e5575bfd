//! Rehearsals of restarts of jobs: who is asked, and who waits for the answers.

use super::ClusterMachine;
use super::callers::Caller;
use super::entry::ImageRecord;
use super::event::{ClientId, Now};
use super::job::{Job, hosts};
use super::members::Members;
use super::shared::Shared;
use crate::settings::SECOND;
use protocol::agent::{CheckpointNumber, InstanceId};
use protocol::cluster::NodeName;
use protocol::cluster::agent::ToAgent;
use protocol::cluster::client::Answer;
use protocol::cluster::look::ImageName;
use protocol::cluster::rehearsal::{RehearsalOrder, RehearsedImage, RehearsedInstance};
use protocol::control::{Rehearsal as RehearsalOf, RehearsalOutcome};
use std::collections::{BTreeMap, BTreeSet};

/// Rehearsals at a time.
const MOST: usize = 64;
/// How long no agent may say a word of one, ns: an agent gives an instance ten minutes.
const PATIENCE: u64 = 660 * SECOND;

/// All rehearsals.
#[derive(Debug, Default)]
pub(super) struct Rehearsals {
    going_on: BTreeMap<u64, Rehearsal>,
    next: u64,
}

/// One that goes on.
#[derive(Debug)]
struct Rehearsal {
    job: String,
    /// Who waits for it; None: it was due by the job's settings.
    client: Option<ClientId>,
    checkpoint: CheckpointNumber,
    /// What was heard, where nobody waits for it.
    heard: Vec<(Option<NodeName>, RehearsedInstance)>,
    /// Where each instance is rehearsed of which nothing was heard.
    waiting: BTreeMap<InstanceId, NodeName>,
    /// When it is given up.
    until: u64,
}

/// A rehearsal that is about to begin.
#[derive(Debug)]
pub(super) struct Plan {
    checkpoint: CheckpointNumber,
    /// Each image with the node that rehearses it; None: no machine that holds it is there.
    places: Vec<(RehearsedImage, Option<NodeName>)>,
    /// What every node is told, but for the number of the rehearsal and the node's images.
    order: RehearsalOrder,
}

impl Rehearsals {
    /// Whether one more may begin.
    pub(super) fn have_place(&self) -> bool {
        self.going_on.len() < MOST
    }

    fn take_if_all_heard(&mut self, number: u64) -> Option<Rehearsal> {
        let rehearsal = self.going_on.get(&number)?;
        if rehearsal.waiting.is_empty() { self.going_on.remove(&number) } else { None }
    }
}

impl Rehearsal {
    /// Passes an instance's outcome on to who waits for it, or keeps it for the job.
    fn tell(&mut self, shared: &mut Shared, node: Option<NodeName>, instance: RehearsedInstance) {
        match &self.client {
            Some(client) => shared.answer(client, Answer::Rehearsed { node, instance }),
            None => self.heard.push((node, instance)),
        }
    }

    /// Those on a node that are waited for; all, without one.
    fn on(&self, node: Option<&NodeName>) -> Vec<(InstanceId, NodeName)> {
        let waiting = self.waiting.iter().map(|(instance, at)| (*instance, at.clone()));
        waiting.filter(|(_, at)| node.is_none_or(|node| node == at)).collect()
    }
}

impl ClusterMachine {
    /// Has agents rehearse what they hold of a checkpoint.
    pub(super) fn rehearse(
        &mut self,
        now: Now,
        client: &ClientId,
        caller: &Caller,
        wanted: &str,
        only: Option<CheckpointNumber>,
    ) {
        let job = match self.find(caller, wanted) {
            Ok(job) => job,
            Err(error) => return self.shared.fail(client, error.to_string()),
        };
        let newest = || job.ledger.history.newest().map(|record| record.checkpoint);
        let refusal = match only.or_else(newest) {
            None => "no checkpoint of it was committed".to_owned(),
            Some(number) if !job.ledger.images.contains_key(&number) => {
                format!("no checkpoint {number} is committed")
            }
            Some(_) if !self.rehearsals.have_place() => {
                format!("{MOST} others are being rehearsed: try again")
            }
            Some(checkpoint) => {
                let plan = job.plan_rehearsal(&self.shared.members, checkpoint);
                return self.begin_rehearsal(now, Some(client.clone()), plan);
            }
        };
        let what = format!("rehearse the restart of {}", job.ledger.name);
        self.shared.fail(client, format!("{what}: {refusal}"));
    }

    pub(super) fn begin_rehearsal(&mut self, now: Now, client: Option<ClientId>, plan: Plan) {
        let Plan { checkpoint, places, order } = plan;
        let number = self.rehearsals.next;
        self.rehearsals.next += 1;
        let (mut orders, mut lacking) = (BTreeMap::<NodeName, Vec<_>>::new(), Vec::new());
        let mut waiting = BTreeMap::new();
        for (image, node) in places {
            match node {
                Some(node) => {
                    waiting.insert(image.image.instance, node.clone());
                    orders.entry(node).or_default().push(image);
                }
                None => lacking.push(image.image),
            }
        }
        for (node, images) in orders {
            let order = RehearsalOrder { number, images, ..order.clone() };
            self.shared.send(&node, ToAgent::Rehearse(Box::new(order)));
        }
        let until = now.nanos.saturating_add(PATIENCE);
        let (job, heard) = (order.job, Vec::new());
        let mut rehearsal = Rehearsal { job, client, checkpoint, heard, waiting, until };
        for image in lacking {
            let reason = "no machine that holds its image is there".to_owned();
            rehearsal.tell(&mut self.shared, None, unknown(image, reason));
        }
        self.rehearsals.going_on.insert(number, rehearsal);
        self.end_if_all_heard(number);
    }

    /// An agent has rehearsed an instance.
    pub(super) fn rehearsed(
        &mut self,
        now: Now,
        node: &NodeName,
        number: u64,
        instance: RehearsedInstance,
    ) {
        // Its client may have gone, or the rehearsal been given up.
        let Some(rehearsal) = self.rehearsals.going_on.get_mut(&number) else { return };
        let image = instance.image;
        let is_awaited = rehearsal.waiting.get(&image.instance) == Some(node);
        if !is_awaited || image.checkpoint != rehearsal.checkpoint {
            return;
        }
        rehearsal.waiting.remove(&image.instance);
        rehearsal.until = now.nanos.saturating_add(PATIENCE);
        rehearsal.tell(&mut self.shared, Some(node.clone()), instance);
        self.end_if_all_heard(number);
    }

    /// The connection to a node is gone: what it was to rehearse is not known.
    pub(super) fn rehearsals_lost(&mut self, node: &NodeName) {
        let reason = format!("the connection to {node} was lost");
        self.give_up_rehearsals(Some(node), &reason, |_| true);
    }

    /// Gives up what nobody has said a word of for too long.
    pub(super) fn check_rehearsals(&mut self, now: Now) {
        let late = |rehearsal: &Rehearsal| rehearsal.until <= now.nanos;
        self.give_up_rehearsals(None, "there was no answer", late);
    }

    /// Nobody waits any more.
    pub(super) fn forget_rehearsals(&mut self, client: &ClientId) {
        self.rehearsals.going_on.retain(|_, rehearsal| rehearsal.client.as_ref() != Some(client));
    }

    /// When the first one is given up.
    pub(super) fn rehearsals_deadline(&self) -> Option<u64> {
        self.rehearsals.going_on.values().map(|rehearsal| rehearsal.until).min()
    }

    fn give_up_rehearsals(
        &mut self,
        node: Option<&NodeName>,
        reason: &str,
        which: impl Fn(&Rehearsal) -> bool,
    ) {
        let going_on = self.rehearsals.going_on.iter_mut();
        let given_up: Vec<u64> = going_on
            .filter(|(_, rehearsal)| which(rehearsal))
            .map(|(number, rehearsal)| {
                for (instance, at) in rehearsal.on(node) {
                    rehearsal.waiting.remove(&instance);
                    let image = ImageName { instance, checkpoint: rehearsal.checkpoint };
                    let instance = unknown(image, reason.to_owned());
                    rehearsal.tell(&mut self.shared, Some(at), instance);
                }
                *number
            })
            .collect();
        for number in given_up {
            self.end_if_all_heard(number);
        }
    }

    /// Ends it if all have been heard.
    fn end_if_all_heard(&mut self, number: u64) {
        if let Some(rehearsal) = self.rehearsals.take_if_all_heard(number) {
            match &rehearsal.client {
                Some(client) => self.shared.answer_last(client, Answer::Done { text: None }),
                None => {
                    if let Some(job) = self.jobs.get_mut(&rehearsal.job) {
                        job.was_rehearsed(&mut self.shared, rehearsal.checkpoint, rehearsal.heard);
                    }
                }
            }
        }
    }
}

impl Job {
    /// The rehearsal that is due now that a checkpoint was committed, if one is.
    pub(super) fn rehearsal_due(
        &mut self,
        shared: &mut Shared,
        checkpoint: CheckpointNumber,
        has_place: bool,
    ) -> Option<Plan> {
        let every = self.ledger.settings().rehearse;
        self.rehearsed.since = self.rehearsed.since.saturating_add(1);
        if every == 0 || self.rehearsed.since < every || !has_place {
            return None;
        }
        if self.rehearsed.goes_on() {
            let why = "another rehearsal is going on";
            let line = format!("checkpoint {checkpoint} is not rehearsed: {why}");
            self.mark(shared, &line);
            return None;
        }
        self.rehearsed.since = 0;
        self.rehearsed.newest = Some(RehearsalOf { checkpoint, outcome: None });
        Some(self.plan_rehearsal(&shared.members, checkpoint))
    }

    /// Where each instance of a checkpoint is rehearsed: where it lives, if its image is there, else where it was taken, else
    /// wherever a copy of it is.
    fn plan_rehearsal(&self, members: &Members, checkpoint: CheckpointNumber) -> Plan {
        let images = self.ledger.images.get(&checkpoint).into_iter().flatten();
        let place = |(instance, record): (&InstanceId, &ImageRecord)| {
            let image = ImageName { instance: *instance, checkpoint };
            let digest = record.facts.digest.clone();
            let logical_node = record.logical_node.clone();
            let home = self.live.node(*instance).cloned();
            let there = record.holders.iter().filter(|node| members.is_connected(node));
            let best =
                there.min_by_key(|node| (Some(*node) != home.as_ref(), **node != record.node));
            (RehearsedImage { image, digest, logical_node }, best.cloned())
        };
        let order = RehearsalOrder {
            number: 0,
            job: self.ledger.id.clone(),
            images: Vec::new(),
            hosts: hosts::content(&self.ledger, members),
            user: self.ledger.user.clone(),
            settings: self.instance_settings(),
        };
        Plan { checkpoint, places: images.map(place).collect(), order }
    }

    /// A rehearsal that was due has come to its end.
    fn was_rehearsed(
        &mut self,
        shared: &mut Shared,
        checkpoint: CheckpointNumber,
        heard: Vec<(Option<NodeName>, RehearsedInstance)>,
    ) {
        let warnings: BTreeSet<String> =
            heard.iter().flat_map(|(_, instance)| instance.warnings.clone()).collect();
        let outcome = sum(heard);
        let is_restorable = matches!(outcome, RehearsalOutcome::Restorable { .. });
        if !is_restorable && !self.ledger.images.contains_key(&checkpoint) {
            self.rehearsed.newest = None;
            let line = format!("checkpoint {checkpoint} was removed before it was rehearsed");
            return self.mark(shared, &line);
        }
        let (line, failure) = match &outcome {
            RehearsalOutcome::Restorable { processes, took_ms } => {
                let s = if *processes == 1 { "" } else { "es" };
                let line = format!(
                    "checkpoint {checkpoint} can be restored: {processes} process{s}, {took_ms} ms"
                );
                (line, None)
            }
            RehearsalOutcome::Failed(reason) => {
                let line = format!(
                    "warning: checkpoint {checkpoint} is committed, but a restart from it would fail: {reason}"
                );
                (line, Some(reason.clone()))
            }
            RehearsalOutcome::Unknown(reason) => {
                let line = format!("warning: checkpoint {checkpoint} is not rehearsed: {reason}");
                (line, Some(reason.clone()))
            }
        };
        let is_news = self.rehearsed.failure != failure && failure.is_some();
        self.rehearsed.failure = failure;
        self.rehearsed.newest = Some(RehearsalOf { checkpoint, outcome: Some(outcome) });
        match is_news {
            true => self.tell_user(shared, &line),
            false => self.mark(shared, &line),
        }
        for warning in warnings {
            self.mark(shared, &format!("a restart would warn: {warning}"));
        }
    }
}

/// That of all instances: who would fail comes first.
fn sum(heard: Vec<(Option<NodeName>, RehearsedInstance)>) -> RehearsalOutcome {
    let (mut all, mut longest) = (0_u32, 0);
    let (mut failed, mut not_known) = (Vec::new(), Vec::new());
    for (node, RehearsedInstance { image, outcome, .. }) in heard {
        let place = node.map_or(String::new(), |node| format!(" on {node}"));
        let line = |reason: String| format!("instance {}{place}: {reason}", image.instance.0);
        match outcome {
            RehearsalOutcome::Restorable { processes, took_ms } => {
                all = all.saturating_add(processes);
                longest = longest.max(took_ms);
            }
            RehearsalOutcome::Failed(reason) => failed.push(line(reason)),
            RehearsalOutcome::Unknown(reason) => not_known.push(line(reason)),
        }
    }
    if !failed.is_empty() {
        RehearsalOutcome::Failed(failed.join("; "))
    } else if !not_known.is_empty() {
        RehearsalOutcome::Unknown(not_known.join("; "))
    } else {
        RehearsalOutcome::Restorable { processes: all, took_ms: longest }
    }
}

fn unknown(image: ImageName, reason: String) -> RehearsedInstance {
    let outcome = RehearsalOutcome::Unknown(reason);
    RehearsedInstance { image, outcome, warnings: Vec::new() }
}
