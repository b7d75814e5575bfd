//! What the coordinator's log says happened: to machines, to jobs, and to their processes.
//!
//! - [`History`]: all of it, within limits; the oldest is forgotten first.
//! - [`Fact`]: what is counted of it.
//! - `job`: one job.
//! - `paths`: on which machines its processes have been.

mod job;
mod paths;
#[cfg(test)]
mod tests;

use coordinator::Entry;
use coordinator::cluster::ClusterEntry;
use coordinator::cluster::entry::{Cause, JobImported, RollbackRecord};
pub use job::JobLine;
use protocol::agent::CommitRecord;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Jobs that are over and shown.
const MOST_OVER: usize = 8;
/// Departures of one machine that are shown.
const MOST_GONE: usize = 64;

/// Something that happened and is counted.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// A checkpoint was committed.
    Committed(CommitRecord),
    /// A checkpoint was given up.
    Abandoned,
    /// A machine was declared gone.
    Lost,
    /// A job was brought back, or moved.
    Rollback(RollbackRecord),
}

/// See the module.
#[derive(Debug, Default)]
pub struct History {
    jobs: BTreeMap<String, JobLine>,
    /// Those that are over, in the order of their ends.
    over: VecDeque<String>,
    gone: BTreeMap<String, VecDeque<u64>>,
    /// Machines that have announced their departure.
    leaving: BTreeSet<String>,
}

impl History {
    /// Takes one more entry into account. What is to be counted of it.
    pub fn apply(&mut self, entry: &ClusterEntry) -> Vec<Fact> {
        match entry {
            // In a log that was made shorter, of which the one before is not there.
            ClusterEntry::JobKnown(known) => {
                known.past().iter().filter_map(|entry| self.apply_one(entry)).collect()
            }
            _ => self.apply_one(entry).into_iter().collect(),
        }
    }

    fn apply_one(&mut self, entry: &ClusterEntry) -> Option<Fact> {
        match entry {
            ClusterEntry::NodeLeaves { node, leaves: true } => {
                self.leaving.insert(node.to_string());
            }
            ClusterEntry::NodeLeaves { node, .. } | ClusterEntry::NodeKnown { node, .. } => {
                self.leaving.remove(node.as_str());
            }
            ClusterEntry::NodeGone { node, at_ms } => {
                let times = self.gone.entry(node.to_string()).or_default();
                keep(times, MOST_GONE, *at_ms);
                let was_announced = self.leaving.remove(node.as_str());
                return (!was_announced).then_some(Fact::Lost);
            }
            ClusterEntry::NodeRemoved { node } => {
                self.gone.remove(node.as_str());
                self.leaving.remove(node.as_str());
            }
            ClusterEntry::JobCreated(created) => {
                let (launch, user) = (&created.request.launch, &created.user);
                let line = JobLine::new(&created.name, user, launch, created.at_ms);
                self.jobs.insert(created.job.clone(), line);
            }
            ClusterEntry::JobImported(imported) => self.imported(imported),
            ClusterEntry::JobRemoved { job } => {
                self.jobs.remove(job);
                self.over.retain(|over| over != job);
            }
            ClusterEntry::JobOver { job, at_ms, status, reason, .. } => {
                if let Some(line) = self.jobs.get_mut(job) {
                    line.ended(*at_ms, *status, reason.as_deref());
                    self.is_over(job);
                }
            }
            _ => return self.apply_to_job(entry),
        }
        None
    }

    fn imported(&mut self, imported: &JobImported) {
        let (launch, user) = (&imported.request.launch, &imported.user);
        let mut line = JobLine::new(&imported.name, user, launch, imported.at_ms);
        line.committed(&imported.record, &imported.images);
        line.ended(imported.at_ms, None, None);
        self.jobs.insert(imported.job.clone(), line);
        self.is_over(&imported.job);
    }

    /// A job is over: of those the newest are kept.
    fn is_over(&mut self, job: &str) {
        self.over.retain(|over| over != job);
        self.over.push_back(job.to_owned());
        if self.over.len() > MOST_OVER {
            // What is restarted from then on is known by its listing alone.
            self.over.pop_front().and_then(|oldest| self.jobs.remove(&oldest));
        }
    }

    fn apply_to_job(&mut self, entry: &ClusterEntry) -> Option<Fact> {
        let job = entry.job()?;
        if let ClusterEntry::EpochBegun { .. } = entry {
            self.over.retain(|over| over != job);
        }
        let line = self.jobs.get_mut(job);
        match entry {
            ClusterEntry::EpochBegun { checkpoint, cause, at_ms, .. } => {
                line?.epoch_begun(*checkpoint, *at_ms, !matches!(cause, Cause::Run));
                None
            }
            ClusterEntry::Instances { instances, .. } => {
                line?.planned(instances);
                None
            }
            ClusterEntry::Running { rollback, .. } => {
                let rollback = rollback.as_deref().cloned();
                if let Some(line) = line {
                    line.running(rollback.as_ref());
                }
                rollback.map(Fact::Rollback)
            }
            ClusterEntry::Committed { record, images, .. } => {
                if let Some(line) = line {
                    line.committed(record, images);
                }
                Some(Fact::Committed(record.clone()))
            }
            ClusterEntry::Job { entry: Entry::Abandoned { .. }, .. } => Some(Fact::Abandoned),
            ClusterEntry::Job { entry: Entry::Collected { kept }, .. } => {
                line?.collected(kept);
                None
            }
            _ => None,
        }
    }

    /// All jobs, by their ids.
    pub fn jobs(&self) -> impl Iterator<Item = (&String, &JobLine)> {
        self.jobs.iter()
    }

    /// One job.
    pub fn job(&self, id: &str) -> Option<&JobLine> {
        self.jobs.get(id)
    }

    /// When a machine was declared gone, in milliseconds since 1970 UTC.
    pub fn gone(&self, node: &str) -> impl Iterator<Item = u64> {
        self.gone.get(node).into_iter().flatten().copied()
    }
}

/// Adds something to a list, whose oldest members are forgotten.
fn keep<T>(list: &mut VecDeque<T>, most: usize, value: T) {
    if list.len() >= most {
        list.pop_front();
    }
    list.push_back(value);
}
