//! The coordinator of a cluster: a state machine without I/O.
//!
//! [`ClusterMachine`] takes a [`ClusterEvent`] and gives [`ClusterAction`]s, which are to be done in
//! their order: what follows an [`ClusterAction::Append`], in the same step or a later one, only
//! after the entry is durable. One that can't be written ends the coordinator, if it
//! [is vital](ClusterEntry::is_vital). Killed at any instant, it is made again by
//! [`ClusterMachine::recover`] from the entries that became durable.
//!
//! The rooms: `members` and `membership` (who is there, who is gone), `agents` (what they say),
//! `replicas` (who has copies of the log), `job` (one job: its instances, its one-job machine, its console),
//! `rollback` (from a loss to progress), `tree` (steps that agents pass on to each other), `leave` (announced departures), `drain` (members that are to run nothing), `attention` (what somebody should look after), `copies` (images that are in too few
//! places), `ahead` (images that go ahead of a move), `work` (how much processes have to do, learned over checkpoints), `joining` (a share for newcomers), [`placement`] (who goes where, a pure function),
//! `clients`, `logins`, `looks`, `exports`, `imports`, `image_keys`, `rehearsals` and `listing` (what commands ask), [`entry`] (the log), `recover`, and `decisions` (lines for people).

mod agents;
mod ahead;
mod attention;
mod audit;
mod callers;
mod changes;
mod clients;
mod clock_watch;
mod copies;
mod decisions;
mod drain;
pub mod entry;
pub mod event;
mod exports;
mod grants;
mod image_keys;
mod imports;
mod job;
mod joining;
mod leave;
mod listing;
mod logins;
mod looks;
mod members;
mod membership;
mod noted_readings;
mod page_certificate;
mod peers;
pub mod placement;
mod recover;
mod rehearsals;
mod replicas;
mod rollback;
mod secrets;
mod settings;
mod shared;
mod shortening;
mod text;
mod tree;
mod unproven_orders;
mod work;

pub use entry::{ClusterEntry, Login};
pub use event::{ClientId, ClusterAction, ClusterEvent, LogPiece, Now, Written};
pub use image_keys::{ImageSecret, WrappedKey};
pub use page_certificate::PageCertificate;
pub use secrets::SeededSecrets;
pub use settings::{ArchiveKey, ClusterSettings, RollbackLimits};
pub use shortening::{say_the_same, shorten};

use crate::event::Event;
use copies::Copying;
use drain::Drain;
use imports::Imports;
use job::{Job, State};
use leave::Leaving;
use protocol::cluster::NodeName;
use recover::Recovered;
use rehearsals::Rehearsals;
use shared::{Hanging, Shared};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Debug)]
pub struct ClusterMachine {
    shared: Shared,
    jobs: BTreeMap<String, Job>,
    removed_jobs: BTreeSet<String>,
    leaving: BTreeMap<NodeName, Leaving>,
    /// Members that are drained.
    drains: BTreeMap<NodeName, Drain>,
    copying: Copying,
    rehearsals: Rehearsals,
    imports: Imports,
    /// When grants are renewed next, on the same clock.
    grants_due: Option<u64>,
    /// When the last step was taken, on the clock of [`crate::Time::nanos`].
    last_step: Option<u64>,
}

impl ClusterMachine {
    /// The machine of a new cluster. Its log is begun by the caller with
    /// [`ClusterEntry::Opened`].
    #[must_use]
    pub fn new(settings: ClusterSettings, secrets: SeededSecrets) -> Self {
        Self {
            shared: Shared::new(settings, secrets),
            jobs: BTreeMap::new(),
            removed_jobs: BTreeSet::new(),
            leaving: BTreeMap::new(),
            drains: BTreeMap::new(),
            copying: Copying::default(),
            rehearsals: Rehearsals::default(),
            imports: Imports::default(),
            grants_due: None,
            last_step: None,
        }
    }

    fn of(shared: Shared, now: Now) -> Self {
        Self {
            shared,
            jobs: BTreeMap::new(),
            removed_jobs: BTreeSet::new(),
            leaving: BTreeMap::new(),
            drains: BTreeMap::new(),
            copying: Copying::default(),
            rehearsals: Rehearsals::default(),
            imports: Imports::default(),
            grants_due: None,
            last_step: Some(now.nanos),
        }
    }

    /// The machine as it was, from its log and the lengths of the jobs' logs, in bytes, by job. What it
    /// wants done at once comes with the first step, which should follow immediately.
    ///
    /// Nobody is declared gone for one full grace; jobs run on.
    ///
    /// # Errors
    /// Where the log was written by a newer ckptd.
    pub fn recover(
        settings: ClusterSettings,
        secrets: SeededSecrets,
        now: Now,
        entries: impl IntoIterator<Item = ClusterEntry>,
        job_logs: &BTreeMap<String, u64>,
    ) -> Result<Self, RecoverError> {
        let recovered = Recovered::read(now, entries)?;
        Ok(recovered.into_machine(Shared::new(settings, secrets), now, job_logs))
    }

    /// Takes an event and says what is to be done, in this order.
    pub fn step(&mut self, now: Now, event: ClusterEvent) -> Vec<ClusterAction> {
        self.forgive_own_absence(now);
        self.shared.tell_left_out(now);
        match event {
            ClusterEvent::Clock => {}
            ClusterEvent::Agent { node, connection, message, body } => {
                self.agent_says(now, &node, connection, message, body);
            }
            ClusterEvent::Disconnected { node, connection } => {
                self.disconnected(now, &node, connection);
            }
            ClusterEvent::Invited { node } => self.invited(&node),
            ClusterEvent::Admitted { node, powers, key } => {
                self.shared.members.certify(&node, key);
                self.shared.powers.insert(node, powers);
            }
            ClusterEvent::Named { users } => self.shared.named = users,
            ClusterEvent::OwnRoom { room } => self.shared.own_room = Some(room),
            ClusterEvent::Page { certificate } => self.shared.certificate.becomes(certificate),
            ClusterEvent::Standbys { nodes } => self.shared.standbys = nodes,
            ClusterEvent::Asked { client, user, ask } => self.asked(now, &client, user, ask),
            ClusterEvent::ClientGone { client } => self.client_gone(&client),
            ClusterEvent::Recorded { number } => self.recorded(now, number),
            ClusterEvent::RecordFailed { number, reason } => {
                self.record_failed(now, number, reason);
            }
        }
        self.shared.certificate.tell(now);
        self.pass_time(now);
        self.go_on_moving_away(now);
        self.shared.take_actions()
    }

    /// When the machine next wants a [`ClusterEvent::Clock`], on the clock of
    /// [`crate::Time::nanos`].
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        // Woken regularly while there are members, it notices when it was not.
        let pulse = self
            .last_step
            .filter(|_| self.shared.members.iter().next().is_some())
            .map(|last| last.saturating_add(self.shared.settings.heartbeat()));
        let jobs = self.jobs.values().filter_map(Job::deadline).min();
        let leaving = self.moving_away_deadline();
        let grace = self.shared.members.deadline();
        let tree = self.shared.tree.deadline();
        let rehearsals = self.rehearsals_deadline();
        let imports = self.imports_deadline();
        let left_out = self.shared.unproven_orders.deadline();
        [pulse, jobs, leaving, grace, tree, rehearsals, imports, left_out]
            .into_iter()
            .flatten()
            .min()
    }

    /// A coordinator that was stopped, or whose machine slept, has heard nobody meanwhile: that is no
    /// node's fault.
    fn forgive_own_absence(&mut self, now: Now) {
        let last = self.last_step.replace(now.nanos).unwrap_or(now.nanos);
        if now.nanos.saturating_sub(last) > self.shared.settings.grace / 2 {
            self.shared.members.forgive(now);
        }
    }

    /// An entry is durable. Those that no checkpoint waits for were acted upon when they were written.
    fn recorded(&mut self, now: Now, number: u64) {
        if let Some(Hanging { job, epoch, entry, .. }) = self.shared.recorded(number) {
            if let Some(job) = self.jobs.get_mut(&job) {
                job.recorded(now, &mut self.shared, epoch, &entry);
                if let ClusterEntry::Committed { record, .. } = *entry {
                    let has_place = self.rehearsals.have_place();
                    let due = job.rehearsal_due(&mut self.shared, record.checkpoint, has_place);
                    if let Some(plan) = due {
                        self.begin_rehearsal(now, None, plan);
                    }
                }
            }
        }
    }

    fn record_failed(&mut self, now: Now, number: u64, reason: String) {
        let hanging = self.shared.record_failed(number);
        if let Some(Hanging { job, epoch, checkpoint, .. }) = hanging {
            if let Some(job) = self.jobs.get_mut(&job) {
                if job.ledger.epoch == epoch {
                    let event = Event::RecordFailed { checkpoint, reason };
                    job.feed(now, &mut self.shared, event);
                }
            }
        }
    }

    fn pass_time(&mut self, now: Now) {
        self.check_grace(now);
        self.pass_tree_time(now);
        self.check_rehearsals(now);
        self.check_imports(now);
        self.check_logins(now);
        self.renew_grants(now);
        for job in self.jobs.values_mut() {
            if matches!(job.state, State::Running(_)) {
                job.check_ahead(now, &self.shared);
                job.tick(now, &mut self.shared);
                job.check_launches(now, &mut self.shared);
                job.check_rest(now, &mut self.shared);
            }
            job.check_making(now, &mut self.shared);
        }
    }
}

/// Why a cluster's log can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// It was written by a newer ckptd.
    #[error(
        "cluster's log has format {found}, this ckptd reads up to {}: use a newer one",
        entry::NEWEST_FORMAT
    )]
    Newer {
        /// Its format.
        found: u32,
    },
    /// What it says of a job is not known here.
    #[error("cluster's log says what this ckptd does not know of job {job}: use a newer one")]
    Unknown {
        /// The job.
        job: String,
    },
}
