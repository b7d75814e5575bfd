//! Images that lie here: those that are marked, kept, removed and fetched without an instance of theirs.

use std::collections::BTreeSet;

use ckpt_node::{Event, Kept, is_job_id};
use protocol::agent::{AgentCommand, CheckpointNumber, CommitRecord, InstanceId};
use protocol::cluster::NodeName;
use protocol::task;

use super::Driver;
use super::failure::Failure;
use crate::driver::copies::{self, Wanted};

impl Driver {
    /// Making the mark durable may take a while, so it is done beside the event loop; until then the image counts as one
    /// that waits for its commit, and nothing removes it.
    pub(super) fn mark(&self, job: &str, instance: InstanceId, record: CommitRecord) {
        let folder = self.parts.folders.instance(job, instance);
        let (busy, checkpoint) = (self.parts.busy.clone(), record.checkpoint);
        busy.await_commit(&folder, checkpoint);
        task::spawn(async move {
            let lock = busy.fetching(&folder);
            let _alone = lock.lock().await;
            let place = folder.clone();
            let mark =
                move || Ok::<_, Failure>(ckpt_store::commit_copy(&place, checkpoint, &record)?);
            // As of a disk that was lost.
            if let Err(error) = task::blocking(mark).await {
                tracing::warn!(%error, folder = %folder.display(), checkpoint, "no mark");
            }
            busy.end_commit(&folder, checkpoint);
        });
    }

    pub(super) fn keep(&mut self, kept: Kept) {
        let Kept { job, images, alive, passing } = kept;
        let mut removals = Vec::new();
        for number in self.parts.folders.instances(&job) {
            let folder = self.parts.folders.instance(&job, number);
            let alone = self.parts.busy.removing(&folder);
            let kept = images.get(&number).filter(|kept| !kept.is_empty());
            // One that is being made was not known yet when this was said.
            let kept = kept.map(|kept| {
                let newest = kept.iter().max().copied().unwrap_or_default();
                let all = copies::checkpoints(&folder).into_iter();
                let newer = all.filter(|number| *number > newest);
                kept.iter().copied().chain(newer).collect::<Vec<_>>()
            });
            match (alive.get(&number), kept) {
                (Some(key), Some(keep)) => {
                    self.with(key, |served| {
                        served.instance.session().command(AgentCommand::Collect { keep });
                    });
                }
                (Some(_), None) => {}
                (None, _) if passing.contains(&number) => {}
                // A copy that comes or waits for its commit would be taken for a leftover.
                (None, kept) => removals.extend(alone.map(|alone| (number, folder, kept, alone))),
            }
        }
        let folders = self.parts.folders.clone();
        task::spawn_blocking(move || {
            for (number, folder, kept, _alone) in removals {
                let Some(kept) = kept else {
                    if let Err(error) = folders.remove_instance(&job, number) {
                        tracing::warn!(%error, folder = %folder.display(), "not removed");
                    }
                    continue;
                };
                match ckpt_store::collect(&folder, &kept) {
                    Ok(_) => copies::prune(&folder),
                    Err(error) => {
                        tracing::warn!(%error, folder = %folder.display(), "not collected");
                    }
                }
            }
            copies::forget_files(&folders, &job);
        });
    }

    /// One more copy of a committed image is to be here.
    pub(super) fn fetch_copy(
        &self,
        job: String,
        instance: InstanceId,
        checkpoint: CheckpointNumber,
        holders: Vec<NodeName>,
        digest: String,
    ) {
        let (peers, reports, busy) =
            (self.parts.peers.clone(), self.parts.reports.clone(), self.parts.busy.clone());
        let folders = self.parts.folders.clone();
        let (own, arriving) = (self.parts.name.clone(), folders.arriving());
        task::spawn(async move {
            let result = async {
                if !is_job_id(&job) {
                    return Err(Failure::NoJob(job.clone()));
                }
                let folder = folders.instance(&job, instance);
                let lock = busy.fetching(&folder);
                let _alone = lock.lock().await;
                let made = folders.make_instance(&job, instance);
                made.map_err(Failure::system("create the image's folder"))?;
                let is_here = copies::is_here(&folder, checkpoint).await;
                if !is_here || copies::must_be(&folder, checkpoint, &digest).await.is_err() {
                    let holders: Vec<_> = holders.into_iter().filter(|node| *node != own).collect();
                    let without = BTreeSet::new();
                    let (job, folder, without) = (job.as_str(), folder.as_path(), &without);
                    let digest = digest.as_str();
                    let arriving = arriving.as_path();
                    let wanted =
                        Wanted { job, instance, checkpoint, digest, folder, arriving, without };
                    let fetched = copies::fetch(&peers, &holders, wanted).await;
                    fetched.map_err(Failure::Lacking)?;
                }
                Ok(copies::complete(&folder, checkpoint).await?)
            };
            let result = result.await.map_err(|failure| failure.to_string());
            reports.event(Event::Fetched(job, instance, checkpoint, result));
        });
    }
}
