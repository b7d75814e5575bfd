//! What has happened to a job, out of what is known of it.

use super::ledger::Ledger;
use crate::cluster::entry::{ClusterEntry, JobCreated, KnownJob};
use std::collections::BTreeMap;

impl KnownJob {
    /// What the log may have said of it, as far as that is still known, in the order in which it happened: for who tells of the
    /// past. It does not lead to the same. Nothing of one that this ckptd can't read.
    #[must_use]
    pub fn past(&self) -> Vec<ClusterEntry> {
        Ledger::of_known(self).map(|ledger| ledger.past()).unwrap_or_default()
    }
}

impl Ledger {
    fn past(&self) -> Vec<ClusterEntry> {
        let job = || self.id.clone();
        let created = JobCreated {
            job: job(),
            name: self.name.clone(),
            user: self.user.clone(),
            client_node: self.client_node.clone(),
            request: self.request.clone(),
            at_ms: self.created_at_ms,
        };
        let commits = self.history.committed().map(|(record, _)| {
            let images = self.images.get(&record.checkpoint).cloned().unwrap_or_default();
            let (record, parked) = (record.clone(), None);
            (record.committed_at_ms, ClusterEntry::Committed { job: job(), record, images, parked })
        });
        let rollbacks = self.rollbacks.iter().map(|rollback| {
            let (epoch, links) = (self.epoch, BTreeMap::new());
            let at_ms = rollback.running_ms.unwrap_or(rollback.declared_ms);
            let rollback = Some(Box::new(rollback.clone()));
            (at_ms, ClusterEntry::Running { job: job(), epoch, rollback, links })
        });
        let mut past: Vec<(u64, ClusterEntry)> = commits.chain(rollbacks).collect();
        past.sort_by_key(|(at_ms, _)| *at_ms);
        let over = self.over.as_ref().map(|over| ClusterEntry::JobOver {
            job: job(),
            epoch: self.epoch,
            status: over.status,
            reason: over.reason.clone(),
            length: Some(over.length),
            at_ms: over.at_ms,
        });
        let instances = self.instances.iter().map(|(number, record)| (*number, record.clone()));
        let instances = ClusterEntry::Instances { job: job(), instances: instances.collect() };
        let past = past.into_iter().map(|(_, entry)| entry);
        let first = ClusterEntry::JobCreated(Box::new(created));
        std::iter::once(first).chain(past).chain([instances]).chain(over).collect()
    }
}
