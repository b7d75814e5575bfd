//! What follows an entry of the log is done once that is durable; what is vital, once an agent has a
//! copy of it, too.

use super::{Driver, Ending, disk};
use crate::cluster::entry::ClusterEntry;
use crate::cluster::{ClusterAction, ClusterEvent};
use crate::server::replication::{Extent, Need, Replication, Send};
use protocol::cluster::agent::ToAgent;
use protocol::cluster::replica::ReplicaReport;
use protocol::cluster::{InstanceKey, NodeName, Term};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, PoisonError};

/// What copies may take before nobody waits for them any more, in nanoseconds: as long as the
/// disk of a busy machine does. Heartbeats are answered all the time.
const PATIENCE: u64 = 3_000_000_000;

/// One thing to be done.
#[derive(Debug)]
// As short-lived as a message.
#[allow(clippy::large_enum_variant)]
pub enum Queued {
    /// This.
    Act(ClusterAction),
    /// Nothing that follows before a copy has the entries with these numbers.
    Copied {
        /// What a copy must have.
        need: Need,
        /// The entries.
        numbers: Vec<u64>,
        /// When patience is over, once it has been waited for.
        until: Option<u64>,
    },
}

/// An agent is to be told that its output is in the job's log.
#[derive(Debug)]
pub struct Kept {
    node: NodeName,
    connection: u64,
    message: ToAgent,
    need: Need,
    until: u64,
}

impl Kept {
    /// Whether it is about that job's output.
    pub fn is_of(&self, job: &str) -> bool {
        self.need.jobs.contains_key(job)
    }
}

/// Entries that are in the log, but not durable yet. Nothing that follows them is done before.
#[derive(Debug, Default)]
pub struct Written {
    numbers: Vec<u64>,
    vital: bool,
    waits: bool,
    jobs: Vec<String>,
    /// What a copy must have once they are durable.
    need: Need,
}

impl Driver {
    /// Takes what the machine wants done. A heartbeat is answered at once: it decides nothing.
    pub(super) fn put(&mut self, actions: Vec<ClusterAction>) {
        for action in actions {
            match action {
                ClusterAction::Send { node, message: message @ ToAgent::Heard { .. }, body } => {
                    self.send(&node, &message, &body);
                }
                action => self.queue.push_back(Queued::Act(action)),
            }
        }
    }

    /// Does what can be done.
    pub(super) fn go_on(&mut self) {
        while self.ending.is_none() && !self.disk.is_busy() {
            match self.queue.front_mut() {
                // Nobody waits for a copy, which would be one of the log as it was.
                None => return self.exchange_log(),
                Some(Queued::Act(ClusterAction::Append { .. })) => self.append(),
                Some(Queued::Act(_)) => {
                    if let Some(Queued::Act(action)) = self.queue.pop_front() {
                        self.act(action);
                    }
                }
                Some(Queued::Copied { .. }) => {
                    if !self.is_copied() {
                        return;
                    }
                    if let Some(Queued::Copied { numbers, .. }) = self.queue.pop_front() {
                        let numbers = numbers.into_iter();
                        let recorded = numbers.map(|number| ClusterEvent::Recorded { number });
                        self.pending.extend(recorded);
                    }
                }
            }
        }
    }

    /// Writes the entries at the head of the queue, which become durable together.
    fn append(&mut self) {
        self.log_holders_changed = true;
        let mut written = Written::default();
        while let Some(Queued::Act(ClusterAction::Append { .. })) = self.queue.front() {
            let Some(Queued::Act(ClusterAction::Append { number, entry })) = self.queue.pop_front()
            else {
                break;
            };
            written.numbers.push(number);
            if let ClusterEntry::NodeGone { node, .. } = &entry {
                self.dmtcp.lost(node);
            }
            written.vital |= entry.is_vital();
            written.waits |= entry.waits_for_copy();
            written.jobs.extend(entry.job().map(str::to_owned));
            if let Err(error) = self.journal.write(&entry) {
                self.not_recorded(std::mem::take(&mut written), &error.to_string());
                if self.ending.is_some() {
                    return;
                }
            }
        }
        if written.numbers.is_empty() {
            return;
        }
        if written.waits {
            let lengths = self.logs.lengths();
            let length = |job: String| lengths.get(&job).map(|length| (job, *length));
            let jobs = std::mem::take(&mut written.jobs).into_iter().filter_map(length).collect();
            let register = self.admission().changes();
            written.need = Need { register, jobs, ..Need::default() };
        }
        let (outputs, audit) = (self.logs.take_unsynced(), self.audit.take_unsynced());
        let sync = disk::Sync { outputs, audit, log: self.journal.file() };
        self.disk.begin(disk::Order::Sync(sync), written);
    }

    /// What the disk was asked for has been done, or has failed.
    pub(super) fn is_done(&mut self, written: Written, done: disk::Done) {
        match done {
            disk::Done::Synced(result) => self.is_synced(written, result),
            disk::Done::Exchanged(exchanged) => self.is_exchanged(exchanged),
        }
    }

    fn is_synced(&mut self, mut written: Written, result: io::Result<()>) {
        if let Err(error) = self.journal.synced(result) {
            return self.not_recorded(written, &error.to_string());
        }
        if written.waits {
            written.need.log = self.journal.length();
        }
        let Written { numbers, need, .. } = written;
        self.queue.push_front(Queued::Copied { need, numbers, until: None });
    }

    fn not_recorded(&mut self, written: Written, reason: &str) {
        tracing::error!("failed to {reason}");
        if written.vital {
            self.ending = Some(Ending::Unrecorded(reason.to_owned()));
            return;
        }
        let numbers = written.numbers.into_iter();
        let failed = |number| ClusterEvent::RecordFailed { number, reason: reason.to_owned() };
        self.pending.extend(numbers.map(failed));
    }

    /// Whether the first of the queue need not wait any longer.
    fn is_copied(&mut self) -> bool {
        let now = self.clock.now().nanos;
        let Some(Queued::Copied { need, until, .. }) = self.queue.front_mut() else { return true };
        if need.log == 0 || self.replication.has(need) {
            return true;
        }
        if now < *until.get_or_insert(now.saturating_add(PATIENCE)) {
            return false;
        }
        let slow = self.replication.give_up(need);
        let names: Vec<&str> = slow.iter().map(NodeName::as_str).collect();
        tracing::warn!(
            "no copy of this coordinator's log is up to date: {} took longer than {} s",
            names.join(", "),
            PATIENCE / 1_000_000_000
        );
        true
    }

    /// When the machine's clock is to be looked at for the sake of copies.
    pub(super) fn patience(&self) -> Option<u64> {
        let first = match self.queue.front() {
            Some(Queued::Copied { until, .. }) => *until,
            _ => None,
        };
        first.into_iter().chain(self.kept.front().map(|kept| kept.until)).min()
    }

    /// Output is forgotten by its agent once all copies of the job's log have it, too: else it would be
    /// lost with this machine, or with one that has the newest copy.
    pub(super) fn console_kept(&mut self, node: NodeName, key: InstanceKey, offset: u64) {
        // A node that is away sends again what it was not told is kept.
        let Some(link) = self.links.get(&node) else { return };
        let length = self.logs.lengths().get(&key.job).copied().unwrap_or(0);
        let jobs = BTreeMap::from([(key.job.clone(), length)]);
        let kept = Kept {
            connection: link.connection,
            node,
            message: ToAgent::ConsoleKept { key, offset },
            need: Need { jobs, ..Need::default() },
            until: self.clock.now().nanos.saturating_add(PATIENCE),
        };
        self.kept.push_back(kept);
    }

    fn tell_kept(&mut self) {
        while let Some(kept) = self.take_kept() {
            if self.is_current(&kept.node, kept.connection) {
                self.send(&kept.node, &kept.message, &[]);
            }
        }
    }

    /// The oldest, if copies have what it is about, or are waited for no longer.
    fn take_kept(&mut self) -> Option<Kept> {
        let oldest = self.kept.front()?;
        let is_due = self.clock.now().nanos >= oldest.until;
        if is_due || self.replication.all_have(&oldest.need) { self.kept.pop_front() } else { None }
    }

    /// Brings the copies up to date, as far as that goes.
    pub(super) fn replicate(&mut self) {
        // While another log takes its place, it is not known which one its name leads to.
        if self.ending.is_some() || self.disk.is_exchanging() {
            return;
        }
        if std::mem::take(&mut self.log_holders_changed) {
            let links = &self.links;
            let elsewhere =
                |node: &NodeName| links.get(node).filter(|link| link.welcome && !link.is_here);
            let holders = self.machine.log_holders(|node| elsewhere(node).is_some()).into_iter();
            let connection = |node: NodeName| {
                let number = elsewhere(&node)?.connection;
                Some((node, number))
            };
            let wanted = holders.filter_map(connection).collect();
            let standbys = self.admission().standbys();
            let absent = self.machine.absent();
            self.absent.send_if_modified(|known| {
                let news = *known != absent;
                *known = absent;
                news
            });
            let connections: BTreeMap<NodeName, u64> =
                links.iter().map(|(node, link)| (node.clone(), link.connection)).collect();
            self.copies(|replication, send| {
                let is = |node: &NodeName, number| connections.get(node) == Some(&number);
                replication.want(&wanted, &standbys, is, send);
            });
        }
        let extent = Extent {
            log: self.journal.length(),
            register: self.admission().changes(),
            jobs: self.logs.lengths().clone(),
        };
        let admission = Arc::clone(&self.admission);
        self.copies(|replication, send| {
            let admission = admission.lock().unwrap_or_else(PoisonError::into_inner);
            replication.pump(&extent, &|node| admission.may_hold_key(node), send);
        });
        self.tell_kept();
    }

    pub(super) fn replica_report(&mut self, node: &NodeName, report: ReplicaReport) {
        self.copies(|replication, send| replication.reported(node, report, send));
    }

    /// Does something about the copies. What can't be sent is noticed with the connection's end.
    pub(super) fn copies(&mut self, act: impl FnOnce(&mut Replication, &mut Send<'_>)) {
        let links = &self.links;
        act(&mut self.replication, &mut |node, order, body| {
            if let Some(link) = links.get(node) {
                let _ = link.outbox.send(&ToAgent::Replica(order), body);
            }
        });
    }

    /// Another coordinator has taken over: nothing more is done.
    pub(super) fn end_for(&mut self, term: Term, by: String) {
        self.ending.get_or_insert(Ending::Superseded { term, by });
    }
}
