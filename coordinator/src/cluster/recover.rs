//! From the log to the state that it speaks of.

use super::entry::{self, Cause, ClusterEntry, Origin};
use super::event::{ClusterAction, Now, Written};
use super::job::console::Console;
use super::job::instances::Stage;
use super::job::ledger::{Ledger, Mark, Over};
use super::job::{Job, State};
use super::logins::Logins;
use super::members::{Member, Members, Presence};
use super::rollback::Beginning;
use super::shared::Shared;
use super::text;
use super::{ClusterMachine, RecoverError};
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::succession::Followed;
use std::collections::{BTreeMap, BTreeSet};

/// What the whole log says.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    members: Members,
    ledgers: BTreeMap<String, Ledger>,
    removed_jobs: BTreeSet<String>,
    logins: Logins,
    /// The coordinator whose log this is, if it took over from a lost one.
    followed: Option<Followed>,
    /// Where lost ones were.
    lost: Vec<String>,
}

/// Whether two logs say the same of members.
fn are_alike(some: &Members, others: &Members) -> bool {
    let facts = |(name, member): (&NodeName, &Member)| {
        let Member { profile, presence, drained, gone_ms, .. } = member;
        let gone_ms = (*presence == Presence::Gone).then_some(*gone_ms);
        (name.clone(), profile.clone(), *presence, *drained, gone_ms)
    };
    some.removed() == others.removed() && some.iter().map(facts).eq(others.iter().map(facts))
}

impl Recovered {
    pub(super) fn read(
        now: Now,
        entries: impl IntoIterator<Item = ClusterEntry>,
    ) -> Result<Self, RecoverError> {
        let mut state = Self::default();
        for entry in entries {
            state.apply(now, entry)?;
        }
        Ok(state)
    }

    fn apply(&mut self, now: Now, entry: ClusterEntry) -> Result<(), RecoverError> {
        match &entry {
            ClusterEntry::Opened { format } | ClusterEntry::Reopened { format, .. }
                if *format > entry::NEWEST_FORMAT =>
            {
                return Err(RecoverError::Newer { found: *format });
            }
            ClusterEntry::Opened { .. }
            | ClusterEntry::Reopened { .. }
            | ClusterEntry::Shortened { .. } => {}
            ClusterEntry::TermBegun { term, claim, lost, .. } => {
                for address in lost {
                    if !self.lost.contains(address) {
                        self.lost.push(address.clone());
                    }
                }
                let (term, claim) = (*term, claim.clone());
                self.followed = Some(Followed { term, claim, ..Followed::default() });
                self.ledgers.values_mut().for_each(Ledger::take_over);
            }
            ClusterEntry::NodeKnown { node, profile } => {
                self.members.know(node, profile.as_ref().clone(), now);
            }
            ClusterEntry::NodeGone { node, at_ms } => {
                if let Some(member) = self.members.get_mut(node) {
                    member.presence = Presence::Gone;
                    member.gone_ms = *at_ms;
                }
                self.unfamiliar(node);
            }
            ClusterEntry::NodeRemoved { node } => {
                self.logins.apply(&entry);
                self.members.remove(node);
                self.unfamiliar(node);
            }
            ClusterEntry::NodeReadmitted { node } => drop(self.members.readmit(node)),
            ClusterEntry::KeyAdded { .. }
            | ClusterEntry::KeyRemoved { .. }
            | ClusterEntry::LoggedIn(_)
            | ClusterEntry::LoggedOut { .. } => drop(self.logins.apply(&entry)),
            ClusterEntry::NodeLeaves { node, leaves } => {
                if let Some(member) = self.members.get_mut(node) {
                    let leaving = if *leaves { Presence::Leaving } else { Presence::There };
                    member.presence = leaving;
                }
            }
            ClusterEntry::NodeDrained { node, on } => {
                if let Some(member) = self.members.get_mut(node) {
                    member.drained = *on;
                }
                if !on {
                    self.ledgers.values_mut().for_each(|ledger| ledger.takes_again(node));
                }
            }
            ClusterEntry::JobCreated(created) => {
                let mut ledger = Ledger::begin(created.as_ref().clone());
                ledger.familiar = self.members.present();
                self.ledgers.insert(created.job.clone(), ledger);
            }
            ClusterEntry::JobImported(imported) => {
                let mut ledger = Ledger::of_import(imported.as_ref().clone());
                ledger.familiar = self.members.present();
                self.ledgers.insert(imported.job.clone(), ledger);
            }
            ClusterEntry::JobRemoved { job } => {
                self.ledgers.remove(job);
                self.removed_jobs.insert(job.clone());
            }
            ClusterEntry::JobKnown(known) => {
                let ledger = Ledger::of_known(known)
                    .map_err(|_| RecoverError::Unknown { job: known.job.clone() })?;
                self.ledgers.insert(known.job.clone(), ledger);
            }
            ClusterEntry::JobsRemoved { jobs } => self.removed_jobs.extend(jobs.iter().cloned()),
            ClusterEntry::Settings { job, .. }
            | ClusterEntry::EpochBegun { job, .. }
            | ClusterEntry::Instances { job, .. }
            | ClusterEntry::Departed { job, .. }
            | ClusterEntry::InstanceRuns { job, .. }
            | ClusterEntry::InstanceEnded { job, .. }
            | ClusterEntry::Running { job, .. }
            | ClusterEntry::Job { job, .. }
            | ClusterEntry::Committed { job, .. }
            | ClusterEntry::Held { job, .. }
            | ClusterEntry::Mark { job, .. }
            | ClusterEntry::JobOver { job, .. } => {
                if let Some(ledger) = self.ledgers.get_mut(job) {
                    ledger.apply(&entry);
                }
            }
        }
        Ok(())
    }

    /// The members, what is known of jobs, and those that are forgotten.
    pub(super) fn into_parts(self) -> (Members, Vec<Ledger>, BTreeSet<String>) {
        (self.members, self.ledgers.into_values().collect(), self.removed_jobs)
    }

    /// Whether another log says the same.
    pub(super) fn says_the_same(mut self, mut other: Self, now: Now) -> bool {
        self.logins.expire(now.unix_ms);
        other.logins.expire(now.unix_ms);
        let (term, lost) = (&self.followed, &self.lost);
        (term, lost) == (&other.followed, &other.lost)
            && are_alike(&self.members, &other.members)
            && self.logins.are_as(&other.logins)
            && (self.ledgers, self.removed_jobs) == (other.ledgers, other.removed_jobs)
    }

    /// If it comes back, it is a newcomer to every job.
    fn unfamiliar(&mut self, node: &NodeName) {
        for ledger in self.ledgers.values_mut() {
            ledger.familiar.remove(node);
        }
    }

    /// The machine that goes on from here.
    pub(super) fn into_machine(
        self,
        mut shared: Shared,
        now: Now,
        job_logs: &BTreeMap<String, u64>,
    ) -> ClusterMachine {
        shared.members = self.members;
        shared.logins = self.logins;
        shared.logins.expire(now.unix_ms);
        if let Some(Followed { term, claim, .. }) = self.followed {
            shared.coordinator = Followed { term, claim, ..shared.coordinator };
        }
        shared.lost = self.lost;
        shared.members.forgive(now);
        // Of an import that a coordinator before did not come to the end of.
        for job in job_logs.keys().filter(|job| !self.ledgers.contains_key(*job)) {
            shared.act(ClusterAction::RemoveJob { job: job.clone() });
        }
        let mut jobs = BTreeMap::new();
        for (id, ledger) in self.ledgers {
            let length = job_logs.get(&id).copied().unwrap_or(0);
            let mut job = Job::new(ledger);
            job.take_up(now, &mut shared, length);
            jobs.insert(id, job);
        }
        let mut machine = ClusterMachine::of(shared, now);
        machine.jobs = jobs;
        machine.removed_jobs = self.removed_jobs;
        machine.take_up_losses(now);
        machine.go_on_letting_go(now);
        machine.take_up_drains();
        machine
    }
}

impl ClusterMachine {
    /// A coordinator may end between two entries, as for want of room on its disk: that a member is gone is in the log then, and
    /// nobody was told.
    fn take_up_losses(&mut self, now: Now) {
        for job in self.jobs.values_mut() {
            let lost = job.nodes().into_iter().filter(|node| self.shared.members.is_gone(node));
            for node in lost.collect::<Vec<_>>() {
                job.node_gone(now, &mut self.shared, &node);
            }
        }
    }
}

impl Job {
    /// Goes on from what the log says.
    fn take_up(&mut self, now: Now, shared: &mut Shared, log_length: u64) {
        let window = self.ledger.request.launch.window;
        if let Some(over) = self.ledger.over.clone() {
            self.console = Console::at(log_length, 0);
            return self.mark_lack(shared, &over, log_length);
        }
        if let Some(end) = self.ledger.history.end().filter(|_| self.ledger.running).copied() {
            // It ended just before; only the last word is lacking.
            self.console = Console::at(log_length, 0);
            match end.status {
                Some(status) => self.over(now, shared, status),
                None => self.give_up(now, shared, "it was lost"),
            }
            return;
        }
        if let Some(cause) = self.ledger.parked.clone().filter(|_| self.ledger.running) {
            // It stands behind this checkpoint since, and is to go on elsewhere.
            self.console = Console::at(log_length, 0).with_window(window);
            self.go_on_elsewhere(now, shared, cause);
            return;
        }
        if !self.ledger.running {
            self.console = Console::at(log_length, 0).with_window(window);
            self.make_again(now, shared);
            return;
        }
        self.console = self.console_at(shared, log_length).with_window(window);
        let records: Vec<_> =
            self.records().map(|(number, record)| (number, record.clone())).collect();
        let mut occupied: BTreeMap<NodeName, u32> = BTreeMap::new();
        for (number, record) in records {
            *occupied.entry(record.node.clone()).or_default() += 1;
            let partners = self.choose_partners(shared, &record.node);
            let stage = match record.origin {
                // Whether it had been launched is seen when its node says Hello.
                Origin::Shell { .. } if !self.ledger.launched.contains(&number) => {
                    Stage::Launching {
                        deadline: now.nanos.saturating_add(
                            shared.settings.grace.saturating_add(shared.settings.rollback.launch),
                        ),
                    }
                }
                _ => Stage::Running,
            };
            let links = self.ledger.links.get(&number).cloned().unwrap_or_default();
            self.live.insert(number, record, stage, partners);
            if let Some(instance) = self.live.instances.get_mut(&number) {
                instance.links = links;
            }
        }
        shared.occupied.insert(self.ledger.id.clone(), occupied);
        self.link_shells();
        self.run(now, shared, true);
    }

    /// Another coordinator's copy of the log of a job that is over may lack its last output. Its machines have forgotten
    /// that: it can only be said.
    fn mark_lack(&mut self, shared: &mut Shared, over: &Over, log_length: u64) {
        let lost = over.length.saturating_sub(log_length);
        match self.ledger.marks.last() {
            // It has been said, and not been written any more.
            Some(mark) if over.marked && log_length < mark.length => {
                let (job, bytes) = (self.ledger.id.clone(), mark.text.clone().into_bytes());
                self.console.lengthen(bytes.len());
                shared.act(ClusterAction::Log { job, bytes, written: Written::Before(Vec::new()) });
            }
            _ if over.marked || lost == 0 || !self.ledger.taken_over => {}
            _ => self.mark(shared, &text::lost_output(lost)),
        }
    }

    /// Where the console stands by a log of this length. Whatever is behind a mark, and before the next,
    /// came from the console.
    fn console_at(&mut self, shared: &mut Shared, log_length: u64) -> Console {
        let may_lack = self.ledger.taken_over;
        let start = Mark::default();
        // A later epoch begins behind what the log was cut to, with a mark; and old ones are forgotten.
        let from_start = !may_lack || self.ledger.knows_all_marks();
        let marks = self.ledger.marks.iter().rev().chain(from_start.then_some(&start));
        for Mark { length, console, text } in marks {
            if log_length >= *length {
                let offset = console.saturating_add(log_length - length);
                return Console::at(log_length, offset).that_may_lack(may_lack);
            }
            // A copy of the log can end long before the last mark.
            let missing = usize::try_from(length - log_length).unwrap_or(usize::MAX);
            if !may_lack || missing <= text.len() {
                // The mark itself was not written any more, or not to its end.
                let bytes = text.as_bytes()[text.len().saturating_sub(missing)..].to_vec();
                let length = log_length.saturating_add(bytes.len() as u64);
                let job = self.ledger.id.clone();
                shared.act(ClusterAction::Log { job, bytes, written: Written::Before(Vec::new()) });
                let console = Console::at(length, *console).that_may_lack(may_lack);
                self.ledger.mark_places.retain(|(_, after)| *after <= length);
                return console;
            }
        }
        Console::at(log_length, 0).that_may_lack(may_lack)
    }

    /// The streams of the remote shells that run, which are told again to who may not know them.
    fn link_shells(&mut self) {
        let shells: Vec<(InstanceId, InstanceId)> = self
            .records()
            .filter(|(number, _)| self.ledger.launched.contains(number))
            .filter_map(|(number, record)| match record.origin {
                Origin::Shell { caller, .. } => Some((caller, number)),
                _ => None,
            })
            .collect();
        for (caller, remote) in shells {
            for (at, links) in self.shell_links(caller, remote) {
                if let Some(instance) = self.live.instances.get_mut(&at) {
                    instance.links.extend(links);
                }
            }
        }
    }

    /// Nobody knows how far the making of the epoch was: one more is begun.
    fn make_again(&mut self, now: Now, shared: &mut Shared) {
        let members = &shared.members;
        self.nodes_with_stale_instances = members
            .iter()
            .map(|(node, _)| node)
            .filter(|node| !members.is_gone(node))
            .cloned()
            .collect();
        // Not a failure: whoever was at fault, it was not the job.
        let mut begin = Beginning::of(now, self.ledger.cause.clone(), self.ledger.checkpoint);
        begin.record.lost_at_ms = self.ledger.epoch_at_ms;
        begin.record.declared_ms = self.ledger.epoch_at_ms;
        begin.failures = self.ledger.failures;
        if self.ledger.epoch > 0 || begin.cause != Cause::Run {
            begin.cause = Cause::Recovered;
        }
        self.state = State::Over;
        self.begin_epoch(now, shared, begin);
    }
}
