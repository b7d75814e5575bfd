//! What the log says of one job. Live and recovered jobs come to be by the same entries.

use super::events::Events;
use super::roster::Roster;
use crate::cluster::entry::{
    Cause, ClusterEntry, DepartedDaemon, ImageRecord, InstanceRecord, JobCreated, JobImported,
    KnownJob, RollbackRecord,
};
use crate::cluster::image_keys::WrappedKey;
use crate::cluster::work::Works;
use crate::history::{Entry, History};
use protocol::agent::{CheckpointNumber, CommitRecord, ExitKind, InstanceId};
use protocol::cluster::agent::{JobUser, RelayLink};
use protocol::cluster::client::RunRequest;
use protocol::cluster::settings::JobSettings;
use protocol::cluster::{Epoch, NodeName};
use protocol::json;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

/// Marks remembered, for a copy of the job's log that ends before the last.
const MOST_MARKS: usize = 64;

/// Places of marks that are remembered.
const MOST_MARK_PLACES: usize = 1024;

/// Epochs and numbers of instances that are left out where another coordinator carries on: the lost
/// one may have used some without a copy of its log that says so.
const LEFT_OUT: u32 = 1000;

/// Rollbacks remembered for listings.
const MOST_ROLLBACKS: usize = 100;

/// How a job came to rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cluster) struct Over {
    /// How it ended; None: given up.
    pub(in crate::cluster) status: Option<ExitKind>,
    /// Why it was given up.
    pub(in crate::cluster) reason: Option<String>,
    /// When, in milliseconds since 1970 UTC.
    pub(in crate::cluster) at_ms: u64,
    /// Length of the job's log then.
    pub(in crate::cluster) length: u64,
    /// Whether something was marked in the log since.
    pub(in crate::cluster) marked: bool,
}

/// Where the job's log stood at the last mark.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cluster) struct Mark {
    pub(in crate::cluster) length: u64,
    pub(in crate::cluster) console: u64,
    pub(in crate::cluster) text: String,
}

/// See the module. A log that was made shorter has it as it is here: a field that is added needs a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::cluster) struct Ledger {
    pub(in crate::cluster) id: String,
    pub(in crate::cluster) name: String,
    pub(in crate::cluster) user: JobUser,
    pub(in crate::cluster) client_node: Option<NodeName>,
    pub(in crate::cluster) request: RunRequest,
    pub(in crate::cluster) created_at_ms: u64,
    pub(in crate::cluster) epoch: Epoch,
    /// The checkpoint that this epoch starts from.
    pub(in crate::cluster) checkpoint: Option<CheckpointNumber>,
    pub(in crate::cluster) cause: Cause,
    /// When this epoch began, in milliseconds since 1970 UTC.
    pub(in crate::cluster) epoch_at_ms: u64,
    /// Rollbacks without a commit.
    pub(in crate::cluster) failures: u32,
    /// Of this epoch, those that have not ended.
    pub(in crate::cluster) instances: Roster,
    next_instance: u32,
    /// The addresses by which its processes know logical nodes.
    pub(in crate::cluster) addresses: BTreeMap<NodeName, Vec<IpAddr>>,
    /// The key of its images, where it was imported with one.
    pub(in crate::cluster) image_key: Option<WrappedKey>,
    /// Of those that shells called for, the ones that run.
    pub(in crate::cluster) launched: BTreeSet<InstanceId>,
    /// Where the other sides of its relays were when it began to run.
    pub(in crate::cluster) links: BTreeMap<InstanceId, Vec<RelayLink>>,
    /// Daemons that this epoch does without.
    pub(in crate::cluster) departed: Vec<DepartedDaemon>,
    /// The same of the epochs in which checkpoints were taken, where there were any.
    departed_at: BTreeMap<CheckpointNumber, Vec<DepartedDaemon>>,
    /// Whether this epoch runs.
    pub(in crate::cluster) running: bool,
    /// The last epoch that has run; 0 if none has.
    pub(in crate::cluster) ran: Epoch,
    pub(in crate::cluster) history: History,
    /// The checkpoint that was begun and of which nothing more has been said.
    pub(in crate::cluster) in_flight: Option<CheckpointNumber>,
    pub(in crate::cluster) images: BTreeMap<CheckpointNumber, BTreeMap<InstanceId, ImageRecord>>,
    /// The same by who holds them.
    #[serde(skip)]
    held: Held,
    pub(in crate::cluster) rollbacks: Vec<RollbackRecord>,
    /// The last ones of this epoch, the newest last.
    pub(in crate::cluster) marks: Vec<Mark>,
    /// Where marks are in the log, from their first byte to behind their last: the last ones.
    pub(in crate::cluster) mark_places: VecDeque<(u64, u64)>,
    /// The epochs that began from a checkpoint, the last ones, and what the log was cut back to for them.
    pub(in crate::cluster) cuts: VecDeque<(Epoch, u64)>,
    /// Checkpoints whose output is not all in the log any more, and how much of the log is still theirs: the job has gone
    /// on from an older one since, or another coordinator from a copy of the log that was shorter.
    cut_off: BTreeMap<CheckpointNumber, u64>,
    /// Why the job stands still behind its newest checkpoint.
    pub(in crate::cluster) parked: Option<Cause>,
    /// Machines that were there when the job began, and have been there since, or have had a part of it
    /// since: the others are newcomers.
    pub(in crate::cluster) familiar: BTreeSet<NodeName>,
    /// Whether output of this epoch may have been lost with another coordinator's machine.
    pub(in crate::cluster) taken_over: bool,
    /// How much its processes have to do.
    pub(in crate::cluster) works: Works,
    least_epoch: Epoch,
    pub(in crate::cluster) over: Option<Over>,
    /// What has happened to it, for commands that its user wants called then.
    pub(in crate::cluster) events: Events,
}

type Held = BTreeMap<NodeName, BTreeSet<(CheckpointNumber, InstanceId)>>;

fn note_holders(
    held: &mut Held,
    checkpoint: CheckpointNumber,
    images: &BTreeMap<InstanceId, ImageRecord>,
) {
    for (instance, image) in images {
        for holder in &image.holders {
            held.entry(holder.clone()).or_default().insert((checkpoint, *instance));
        }
    }
}

fn keep_last<T>(list: &mut VecDeque<T>, most: usize, one: T) {
    if list.len() >= most {
        list.pop_front();
    }
    list.push_back(one);
}

impl Ledger {
    /// The ledger of a job that has come from an archive, at rest: as if it had run here until its checkpoint.
    pub(in crate::cluster) fn of_import(imported: JobImported) -> Self {
        let JobImported { job, name, user, client_node, request, at_ms, .. } = imported;
        let created = JobCreated { job, name, user, client_node, request, at_ms };
        let JobImported { epoch, record, images, addresses, departed, image_key, .. } = imported;
        let mut ledger = Self::begin(created);
        (ledger.epoch, ledger.ran) = (epoch, epoch);
        let highest = images.keys().next_back().map_or(0, |instance| instance.0);
        ledger.next_instance = highest.saturating_add(1);
        ledger.addresses = addresses;
        ledger.image_key = image_key;
        if !departed.is_empty() {
            ledger.departed_at.insert(record.checkpoint, departed);
        }
        ledger.works.see(&images);
        ledger.keep_images(record.checkpoint, images);
        let length = record.log_length;
        ledger.history.apply(&Entry::Committed(record));
        ledger.over = Some(Over { status: None, reason: None, at_ms, length, marked: false });
        ledger
    }

    /// The ledger of a job that nothing else is known of.
    pub(in crate::cluster) fn begin(created: JobCreated) -> Self {
        let JobCreated { job, name, user, client_node, request, at_ms } = created;
        Self {
            id: job,
            name,
            user,
            client_node,
            request,
            created_at_ms: at_ms,
            epoch: 0,
            checkpoint: None,
            cause: Cause::Run,
            epoch_at_ms: at_ms,
            failures: 0,
            instances: Roster::default(),
            next_instance: 1,
            addresses: BTreeMap::new(),
            image_key: None,
            launched: BTreeSet::new(),
            links: BTreeMap::new(),
            departed: Vec::new(),
            departed_at: BTreeMap::new(),
            running: false,
            ran: 0,
            history: History::default(),
            in_flight: None,
            images: BTreeMap::new(),
            held: BTreeMap::new(),
            rollbacks: Vec::new(),
            marks: Vec::new(),
            mark_places: VecDeque::new(),
            cuts: VecDeque::new(),
            cut_off: BTreeMap::new(),
            parked: None,
            familiar: BTreeSet::new(),
            taken_over: false,
            works: Works::default(),
            least_epoch: 1,
            over: None,
            events: Events::default(),
        }
    }

    /// Daemons that are not brought back from a checkpoint.
    pub(in crate::cluster) fn departed_at(
        &self,
        checkpoint: CheckpointNumber,
    ) -> &[DepartedDaemon] {
        self.departed_at.get(&checkpoint).map_or(&[], Vec::as_slice)
    }

    /// The first epoch that no older one can be taken for.
    pub(in crate::cluster) fn next_epoch(&self) -> Epoch {
        self.epoch.saturating_add(1).max(self.least_epoch)
    }

    /// Whether what comes before the first mark that is remembered came from the console alone.
    pub(in crate::cluster) fn knows_all_marks(&self) -> bool {
        self.epoch <= 1 && self.marks.len() < MOST_MARKS
    }

    /// Another coordinator carries on from here.
    pub(in crate::cluster) fn take_over(&mut self) {
        self.least_epoch = self.next_epoch().saturating_add(u64::from(LEFT_OUT));
        self.next_instance = self.next_instance.saturating_add(LEFT_OUT);
        self.taken_over = true;
    }

    /// Whether a member may run processes of the job: it may have its images, and treats its traffic as it is to be.
    pub(in crate::cluster) fn is_for(&self, member: &crate::cluster::members::Member) -> bool {
        member.misfit_of(&self.user, self.settings()).is_none()
    }

    /// Whether a member may have its images: it has an account for the user, and is of those that the user trusts.
    pub(in crate::cluster) fn trusts(&self, member: &crate::cluster::members::Member) -> bool {
        member.distrust_of(&self.user, self.settings().trust).is_none()
    }

    pub(in crate::cluster) fn settings(&self) -> &JobSettings {
        &self.request.settings
    }

    /// The first number that no instance has had.
    pub(in crate::cluster) fn next_instance(&self) -> InstanceId {
        InstanceId(self.next_instance)
    }

    /// The instance with the job's first process.
    pub(in crate::cluster) fn root(&self) -> Option<InstanceId> {
        self.instances.root()
    }

    /// Takes one more entry about this job into account.
    pub(in crate::cluster) fn apply(&mut self, entry: &ClusterEntry) {
        if let Some(event) = self.event_of(entry) {
            self.events.add(event);
        }
        match entry {
            ClusterEntry::Settings { settings, .. } => {
                self.request.settings = settings.as_ref().clone();
            }
            ClusterEntry::EpochBegun { epoch, checkpoint, rollbacks, cause, at_ms, .. } => {
                self.failures = *rollbacks;
                self.cause = cause.clone();
                self.epoch_at_ms = *at_ms;
                self.begin_epoch(*epoch, *checkpoint);
            }
            ClusterEntry::Instances { instances, .. } => self.take_in(instances),
            ClusterEntry::Departed { daemons, .. } => self.departed.extend_from_slice(daemons),
            ClusterEntry::InstanceRuns { instance, .. } => {
                self.launched.insert(*instance);
            }
            ClusterEntry::InstanceEnded { instance, .. } => {
                self.launched.remove(instance);
                self.instances.remove(*instance);
            }
            ClusterEntry::Running { rollback, links, .. } => {
                self.running = true;
                self.ran = self.epoch;
                self.links.clone_from(links);
                if let Some(rollback) = rollback {
                    self.rollbacks.push(rollback.as_ref().clone());
                    let surplus = self.rollbacks.len().saturating_sub(MOST_ROLLBACKS);
                    self.rollbacks.drain(..surplus);
                }
            }
            ClusterEntry::Job { entry, .. } => self.apply_job(entry),
            ClusterEntry::Committed { record, images, parked, .. } => {
                self.parked.clone_from(parked);
                self.commit(record, images);
            }
            ClusterEntry::Held { checkpoint, instance, node, .. } => {
                let image = self.images.get_mut(checkpoint).and_then(|of| of.get_mut(instance));
                if let Some(image) = image.filter(|image| !image.holders.contains(node)) {
                    image.holders.push(node.clone());
                    let held = self.held.entry(node.clone()).or_default();
                    held.insert((*checkpoint, *instance));
                }
            }
            ClusterEntry::Mark { length, console, text, .. } => {
                self.note_mark(Mark { length: *length, console: *console, text: text.clone() });
            }
            ClusterEntry::JobOver { status, reason, length, at_ms, .. } => {
                self.running = false;
                self.parked = None;
                self.instances.clear();
                let length = length.unwrap_or(0);
                let (status, reason) = (*status, reason.clone());
                self.over = Some(Over { status, reason, at_ms: *at_ms, length, marked: false });
            }
            ClusterEntry::Opened { .. }
            | ClusterEntry::JobKnown(_)
            | ClusterEntry::JobsRemoved { .. }
            | ClusterEntry::Reopened { .. }
            | ClusterEntry::Shortened { .. }
            | ClusterEntry::TermBegun { .. }
            | ClusterEntry::NodeKnown { .. }
            | ClusterEntry::NodeGone { .. }
            | ClusterEntry::NodeRemoved { .. }
            | ClusterEntry::NodeReadmitted { .. }
            | ClusterEntry::NodeLeaves { .. }
            | ClusterEntry::NodeDrained { .. }
            | ClusterEntry::JobCreated(_)
            | ClusterEntry::JobImported(_)
            | ClusterEntry::KeyAdded { .. }
            | ClusterEntry::KeyRemoved { .. }
            | ClusterEntry::LoggedIn(_)
            | ClusterEntry::LoggedOut { .. }
            | ClusterEntry::JobRemoved { .. } => {}
        }
    }

    /// A machine takes processes again: where the job has none, it is a newcomer.
    pub(in crate::cluster) fn takes_again(&mut self, node: &NodeName) {
        if !self.instances.is_on(node) {
            self.familiar.remove(node);
        }
    }

    fn begin_epoch(&mut self, epoch: Epoch, checkpoint: Option<CheckpointNumber>) {
        self.epoch = epoch;
        self.checkpoint = checkpoint;
        self.instances.clear();
        self.links.clear();
        self.launched.clear();
        self.departed = checkpoint
            .and_then(|number| self.departed_at.get(&number).cloned())
            .unwrap_or_default();
        self.running = false;
        self.in_flight = None;
        self.marks.clear();
        let length = checkpoint.map_or(0, |number| self.log_of(number));
        // An epoch that never ran has cut nothing off.
        let ran = self.ran;
        self.cuts.retain(|(epoch, _)| *epoch <= ran);
        if epoch > 1 {
            keep_last(&mut self.cuts, MOST_ROLLBACKS, (epoch, length));
        }
        self.parked = None;
        self.taken_over = false;
        self.over = None;
    }

    fn take_in(&mut self, instances: &BTreeMap<InstanceId, InstanceRecord>) {
        self.works.inherit(instances);
        for (instance, record) in instances {
            self.next_instance = self.next_instance.max(instance.0.saturating_add(1));
            for ip in &record.addresses {
                let known = self.addresses.entry(record.logical_node.clone()).or_default();
                if !known.contains(ip) {
                    known.push(*ip);
                }
            }
            self.familiar.insert(record.node.clone());
            self.instances.insert(*instance, record.clone());
        }
    }

    fn commit(&mut self, record: &CommitRecord, images: &BTreeMap<InstanceId, ImageRecord>) {
        self.history.apply(&Entry::Committed(record.clone()));
        self.works.see(images);
        self.keep_images(record.checkpoint, images.clone());
        self.forget_works();
        if !self.departed.is_empty() {
            self.departed_at.insert(record.checkpoint, self.departed.clone());
        }
        self.in_flight = None;
        self.failures = 0;
    }

    fn note_mark(&mut self, mark: Mark) {
        let surplus = (self.marks.len() + 1).saturating_sub(MOST_MARKS);
        self.marks.drain(..surplus);
        let start = mark.length.saturating_sub(mark.text.len() as u64);
        // Those behind it were cut off.
        self.mark_places.retain(|(_, after)| *after <= start);
        keep_last(&mut self.mark_places, MOST_MARK_PLACES, (start, mark.length));
        self.note_cut(start);
        self.marks.push(mark);
        if let Some(over) = &mut self.over {
            over.marked = true;
        }
    }

    /// Something is in the log from this place on that no checkpoint knows: what checkpoints had there was cut off.
    fn note_cut(&mut self, start: u64) {
        let committed = self.history.committed().map(|(record, _)| record);
        for record in committed.filter(|record| record.log_length > start) {
            let kept = self.cut_off.entry(record.checkpoint).or_insert(start);
            *kept = start.min(*kept);
        }
    }

    /// How much of the log is what the job had written when a checkpoint was taken, in bytes.
    pub(in crate::cluster) fn log_of(&self, checkpoint: CheckpointNumber) -> u64 {
        let written = self.history.record(checkpoint).map_or(0, |record| record.log_length);
        self.cut_off.get(&checkpoint).map_or(written, |kept| written.min(*kept))
    }

    fn apply_job(&mut self, entry: &Entry) {
        self.history.apply(entry);
        match entry {
            Entry::Begun { checkpoint } => self.in_flight = Some(*checkpoint),
            Entry::Abandoned { checkpoint, .. } if self.in_flight == Some(*checkpoint) => {
                self.in_flight = None;
            }
            Entry::Collected { kept } => {
                self.forget_images(kept);
                self.departed_at.retain(|checkpoint, _| kept.contains(checkpoint));
                self.cut_off.retain(|checkpoint, _| kept.contains(checkpoint));
                self.forget_works();
            }
            _ => {}
        }
    }

    fn keep_images(
        &mut self,
        checkpoint: CheckpointNumber,
        images: BTreeMap<InstanceId, ImageRecord>,
    ) {
        if self.images.contains_key(&checkpoint) {
            self.held.retain(|_, held| {
                held.retain(|(of, _)| *of != checkpoint);
                !held.is_empty()
            });
        }
        note_holders(&mut self.held, checkpoint, &images);
        self.images.insert(checkpoint, images);
    }

    /// As a log that was made shorter has it.
    pub(in crate::cluster) fn to_known(&self) -> serde_json::Result<KnownJob> {
        Ok(KnownJob { job: self.id.clone(), ledger: json::to_value(self)? })
    }

    /// As it was when it was written.
    pub(in crate::cluster) fn of_known(known: &KnownJob) -> serde_json::Result<Self> {
        let mut ledger: Self = json::of_value(&known.ledger)?;
        // What follows from the rest is not written.
        for (checkpoint, images) in &ledger.images {
            note_holders(&mut ledger.held, *checkpoint, images);
        }
        Ok(ledger)
    }

    fn forget_images(&mut self, kept: &[CheckpointNumber]) {
        self.images.retain(|checkpoint, _| kept.contains(checkpoint));
        self.held.retain(|_, held| {
            held.retain(|(checkpoint, _)| kept.contains(checkpoint));
            !held.is_empty()
        });
    }

    /// Images that a machine holds, as far as the log tells.
    pub(in crate::cluster) fn held_by(
        &self,
        node: &NodeName,
    ) -> impl Iterator<Item = (CheckpointNumber, InstanceId)> {
        self.held.get(node).into_iter().flatten().copied()
    }

    /// What is known of processes that are neither there nor in an image is not asked for.
    fn forget_works(&mut self) {
        let Self { works, images, instances, .. } = self;
        works.retain(|instance| {
            instances.contains_key(&instance)
                || images.values().any(|images| images.contains_key(&instance))
        });
    }

    /// What every node must keep of the job.
    pub(in crate::cluster) fn kept(&self) -> BTreeMap<InstanceId, Vec<CheckpointNumber>> {
        let mut kept: BTreeMap<InstanceId, Vec<CheckpointNumber>> = BTreeMap::new();
        for (checkpoint, images) in &self.images {
            for instance in images.keys() {
                kept.entry(*instance).or_default().push(*checkpoint);
            }
        }
        kept
    }
}
