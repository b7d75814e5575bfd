//! Users who take a job elsewhere: what is known of it, and its images from whoever holds them.

use super::ClusterMachine;
use super::callers::Caller;
use super::event::ClientId;
use super::job::ledger::Ledger;
use super::members::Members;
use super::settings::ArchiveKey;
use protocol::agent::{CheckpointNumber, CommitRecord};
use protocol::cluster::NodeName;
use protocol::cluster::agent::ToAgent;
use protocol::cluster::client::Answer;
use protocol::cluster::look::ImageName;
use protocol::cluster::portable::{
    FORMAT, MAX_INSTANCES, MAX_TEXT, PortableImage, PortableJob, SealedJob,
};
use thiserror::Error;

/// Why a job, or an image of it, is not taken elsewhere.
#[derive(Debug, Error)]
enum ExportError {
    #[error("no checkpoint of it was committed")]
    NoneCommitted,
    #[error("it has no committed checkpoint {0}")]
    NoCheckpoint(CheckpointNumber),
    #[error("no machine is known to hold its images")]
    NoImages,
    #[error("it has more than {MAX_INSTANCES} instances")]
    TooManyInstances,
    #[error(
        "its images were taken by an older ckptd, and can't be told from others: take a new checkpoint by 'ckptd \
         checkpoint'"
    )]
    WithoutDigest,
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("its description is too long")]
    TooLong,
    #[error("there is no committed image of that name, or not any more")]
    NoImage,
    #[error(
        "it is held by {} alone, and can't be had from there now",
        .0.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ")
    )]
    HeldBy(Vec<NodeName>),
}

impl ArchiveKey {
    /// What a text is known again by.
    fn seal(&self, text: &str) -> blake3::Hash {
        blake3::keyed_hash(&self.0, text.as_bytes())
    }

    /// Whether a coordinator of this cluster has written it.
    pub(super) fn has_sealed(&self, job: &SealedJob) -> bool {
        // Compared in constant time, as hashes are.
        let told = blake3::Hash::from_hex(job.seal.as_bytes());
        told.is_ok_and(|told| told == self.seal(&job.text))
    }
}

impl Ledger {
    fn portable(&self, record: &CommitRecord) -> Result<PortableJob, ExportError> {
        let images = self.images.get(&record.checkpoint);
        let images = images.ok_or(ExportError::NoImages)?;
        if images.len() > MAX_INSTANCES {
            return Err(ExportError::TooManyInstances);
        }
        if images.values().any(|image| image.facts.digest.is_empty()) {
            return Err(ExportError::WithoutDigest);
        }
        let images = images.iter().map(|(instance, image)| {
            let processes = image.facts.processes.iter();
            let image = PortableImage {
                node: image.node.clone(),
                logical_node: image.logical_node.clone(),
                speed_permille: image.speed_permille,
                digest: image.facts.digest.clone(),
                root: image.facts.root.is_some(),
                bytes: processes.fold(0, |sum, process| process.bytes.saturating_add(sum)),
            };
            (*instance, image)
        });
        Ok(PortableJob {
            format: FORMAT,
            id: self.id.clone(),
            name: self.name.clone(),
            user: self.user.clone(),
            request: self.request.clone(),
            created_at_ms: self.created_at_ms,
            record: CommitRecord { log_length: self.log_of(record.checkpoint), ..record.clone() },
            epoch: self.epoch,
            images: images.collect(),
            addresses: self.addresses.clone(),
            departed: self.departed_at(record.checkpoint).to_vec(),
        })
    }

    /// The machine from which an image is had, by preference the one that asks.
    fn giver(
        &self,
        members: &Members,
        image: ImageName,
        node: &NodeName,
        avoid: &[NodeName],
    ) -> Result<NodeName, ExportError> {
        let of = self.images.get(&image.checkpoint).and_then(|of| of.get(&image.instance));
        let of = of.ok_or(ExportError::NoImage)?;
        let there = |holder: &&NodeName| members.is_connected(holder) && !avoid.contains(holder);
        let mut givers: Vec<&NodeName> = of.holders.iter().filter(there).collect();
        givers.sort_by_key(|holder| *holder != node);
        let giver = givers.first().map(|holder| (*holder).clone());
        giver.ok_or_else(|| ExportError::HeldBy(of.holders.to_vec()))
    }
}

impl ClusterMachine {
    /// Tells a job's user what is known of it at a checkpoint, sealed. Where the client stays, so does the checkpoint.
    pub(super) fn portable(
        &mut self,
        client: &ClientId,
        caller: &Caller,
        wanted: &str,
        (only, stays): (Option<CheckpointNumber>, bool),
    ) {
        let job = match self.find(caller, wanted) {
            Ok(job) => job,
            Err(error) => return self.shared.fail(client, error.to_string()),
        };
        let history = &job.ledger.history;
        let record = only.map_or_else(|| history.newest(), |number| history.record(number));
        let told = match (record, only) {
            (Some(record), _) => job.ledger.portable(record),
            (None, Some(number)) => Err(ExportError::NoCheckpoint(number)),
            (None, None) => Err(ExportError::NoneCommitted),
        };
        let id = job.ledger.id.clone();
        let number = record.map(|record| record.checkpoint).filter(|_| stays);
        let text = told.and_then(|told| {
            let text = serde_json::to_string(&told)?;
            if text.len() <= MAX_TEXT { Ok(text) } else { Err(ExportError::TooLong) }
        });
        match text {
            Ok(text) => {
                let seal = self.shared.settings.archive_key.seal(&text).to_hex().to_string();
                let job = SealedJob { text, seal, key: self.key_to_take(&id) };
                let answer = Answer::Portable { job };
                let reader = number.and_then(|number| Some((number, self.jobs.get_mut(&id)?)));
                match reader.is_some_and(|(number, job)| job.read_by(client, number)) {
                    true => self.shared.answer(client, answer),
                    false => self.shared.answer_last(client, answer),
                }
            }
            Err(reason) => self.shared.fail(client, format!("export {wanted}: {reason}")),
        }
    }

    /// Has the agent of the client's node send it an image, which it gets from whoever holds it.
    pub(super) fn give(
        &mut self,
        client: &ClientId,
        caller: &Caller,
        wanted: &str,
        image: ImageName,
        avoid: &[NodeName],
    ) {
        let job = match self.find(caller, wanted) {
            Ok(job) => job,
            Err(error) => return self.shared.fail(client, error.to_string()),
        };
        let Some(node) = &client.node else {
            let reason = format!("read the images of {wanted}: no agent listens at this socket");
            return self.shared.fail(client, reason);
        };
        let (instance, checkpoint) = (image.instance.0, image.checkpoint);
        match job.ledger.giver(&self.shared.members, image, node, avoid) {
            Ok(holder) => {
                let job = job.ledger.id.clone();
                self.shared.answer(client, Answer::Holder { node: holder.clone() });
                let order = ToAgent::Give { client: client.number, job, image, holder };
                self.shared.send(&node.clone(), order);
            }
            Err(reason) => {
                let what = format!("read the image of instance {instance} at {checkpoint}");
                self.shared.fail(client, format!("{what}: {reason}"));
            }
        }
    }
}
