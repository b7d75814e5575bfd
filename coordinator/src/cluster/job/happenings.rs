//! Which entries of the log are events for the job's user, and the processes that they are about.

use super::Job;
use super::events::News;
use super::ledger::Ledger;
use crate::cluster::entry::{
    Cause, ClusterEntry, ImageRecord, InstanceRecord, Origin, RollbackRecord,
};
use crate::history::Entry;
use protocol::agent::InstanceId;
use protocol::cluster::NodeName;
use protocol::cluster::client::Answer;
use protocol::cluster::image::ProcessFacts;
use protocol::cluster::job_event::{Happening, JobEvent, MOST_NAMED, Moved, Process};

impl Ledger {
    /// What an entry tells the job's user that is about to be taken into account.
    pub(super) fn event_of(&self, entry: &ClusterEntry) -> Option<JobEvent> {
        let event = |at_ms: u64, what| Some(JobEvent { at_ms: Some(at_ms), what });
        match entry {
            ClusterEntry::Committed { record, .. } => {
                event(record.committed_at_ms, Happening::committed(record))
            }
            // One that is taken again soon has not failed.
            ClusterEntry::Job {
                entry: Entry::Abandoned { checkpoint, reason, again: false },
                ..
            } => Some(JobEvent { at_ms: None, what: Happening::failed(*checkpoint, reason) }),
            ClusterEntry::EpochBegun { cause: Cause::Lost { node }, at_ms, .. } => {
                let processes = self.processes_on(node);
                event(*at_ms, Happening::Lost { node: node.clone(), processes })
            }
            ClusterEntry::Running { rollback: Some(record), .. } => {
                Some(JobEvent { at_ms: record.running_ms, what: moved(record) })
            }
            ClusterEntry::JobOver { status, reason, at_ms, .. } => {
                let checkpoint = self.history.newest().map(|record| record.checkpoint);
                event(*at_ms, Happening::ended(*status, reason.as_deref(), checkpoint))
            }
            _ => None,
        }
    }

    /// The job's processes on a machine; while an epoch is being made that has none yet, those that the checkpoint has from
    /// there.
    fn processes_on(&self, node: &NodeName) -> Vec<Process> {
        let here = || self.instances.iter().filter(|(_, record)| record.node == *node);
        let known = here().filter_map(|(number, record)| self.processes_of(*number, record));
        let mut processes: Vec<Process> = known.flatten().map(named).collect();
        if here().next().is_none() {
            let images = self.checkpoint.and_then(|number| self.images.get(&number));
            let images = images.into_iter().flat_map(|images| images.values());
            let of_node = images.filter(|image| image.node == *node);
            processes.extend(of_node.flat_map(|image| &image.facts.processes).map(named));
        }
        processes.truncate(MOST_NAMED);
        processes
    }

    /// Processes of an instance, as the newest checkpoint knows them, or the one that it comes from; None: no checkpoint has
    /// seen it.
    pub(in crate::cluster) fn processes_of<'a>(
        &'a self,
        number: InstanceId,
        record: &'a InstanceRecord,
    ) -> Option<impl Iterator<Item = &'a ProcessFacts>> {
        // The newest checkpoint of this epoch names instances that run.
        let newest = self.images.values().next_back().and_then(|images| images.get(&number));
        let (image, part) = match (newest, &record.origin) {
            (Some(image), _) => (image, None),
            (None, Origin::Image { assignment, part, .. }) => {
                (self.image_of(&record.origin)?, Some((assignment, part)))
            }
            (None, Origin::Run | Origin::Shell { .. }) => return None,
        };
        let is_of = move |process: &&ProcessFacts| {
            part.is_none_or(|(assignment, part)| assignment.get(&process.pid) == Some(part))
        };
        Some(image.facts.processes.iter().filter(is_of))
    }

    /// The image that an instance comes from.
    pub(in crate::cluster) fn image_of(&self, origin: &Origin) -> Option<&ImageRecord> {
        match origin {
            Origin::Image { instance, .. } => self.images.get(&self.checkpoint?)?.get(instance),
            Origin::Run | Origin::Shell { .. } => None,
        }
    }
}

fn named(process: &ProcessFacts) -> Process {
    Process { pid: process.pid, name: process.name.clone() }
}

fn moved(record: &RollbackRecord) -> Happening {
    let moves = record.moves.iter().take(MOST_NAMED).map(|one| Moved {
        pid: one.pid,
        name: one.process.clone(),
        from: one.from.clone(),
        to: one.to.clone(),
    });
    Happening::Moved {
        reason: record.reason.clone(),
        node: record.node.clone(),
        checkpoint: record.checkpoint,
        moves: moves.collect(),
    }
}

impl Job {
    /// What has happened since so many events; None: nothing of that is asked, only how many there were.
    pub(in crate::cluster) fn tell_events(&self, known: Option<u64>) -> Answer {
        let News { events, forgotten, count } = self.ledger.events.since(known.unwrap_or(u64::MAX));
        let (name, over) = (self.ledger.name.clone(), self.is_over());
        Answer::Events { name, events, forgotten, known: count, over }
    }
}
