//! The images of a cluster's job, and which of them can be read on this machine.

use super::Context;
use crate::client::refusal::unexpected;
use crate::cluster::Cluster;
use crate::cluster::listing::{self, list, number, word};
use crate::failure::Failure;
use protocol::agent::InstanceId;
use protocol::cluster::client::{Answer, Ask};
use protocol::cluster::look::{Finding, ImageName, Look};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// One instance's part of a committed checkpoint.
pub struct Image {
    /// The checkpoint.
    pub checkpoint: u64,
    /// Whether it is one that the job would go back to, and not newer than the one that it was restarted from.
    pub is_current: bool,
    /// The instance.
    pub instance: u64,
    /// The machines that hold it.
    pub holders: Vec<String>,
    /// Where it is for this user.
    pub place: Place,
}

impl Image {
    /// What cluster and agents call it.
    pub fn key(&self) -> ImageName {
        let instance = InstanceId(u32::try_from(self.instance).unwrap_or(u32::MAX));
        ImageName { instance, checkpoint: self.checkpoint }
    }
}

/// Where an image is for this user.
pub enum Place {
    /// In this folder, laid out as a job's on one machine.
    Here(PathBuf),
    /// Perhaps on this machine, in the agent's folder, which is open to the agent's user alone: the agent tells.
    Closed,
    /// On other machines.
    Elsewhere,
}

/// A cluster's job.
pub struct ClusterJob {
    /// Its id.
    pub id: String,
    /// The name that its user knows it by.
    pub name: String,
    /// Its command.
    pub command: String,
    /// Images of its committed checkpoints, oldest first.
    pub images: Vec<Image>,
}

impl ClusterJob {
    /// The job that is meant, as the coordinator knows it.
    pub fn find(
        context: &Context,
        cluster: &Cluster,
        wanted: &str,
        what: &str,
    ) -> Result<Self, Failure> {
        let status = cluster.listing(what, &Ask::Status { job: Some(wanted.to_owned()) })?;
        let id = word(&status, "id");
        let mut own = Path::new(&id).components();
        if !matches!((own.next(), own.next()), (Some(Component::Normal(_)), None)) {
            return Err(Failure::of(what, format!("{id:?} is no id of a job")));
        }
        let mut folders: Vec<PathBuf> = cluster.folder().into_iter().collect();
        folders.push(context.state.path().to_owned());
        let images = list(&status, "checkpoints").iter().flat_map(|checkpoint| {
            list(checkpoint, "images").iter().filter_map(|image| {
                let (checkpoint_number, instance) =
                    (number(checkpoint, "checkpoint")?, number(image, "instance")?);
                Some(Image {
                    checkpoint: checkpoint_number,
                    is_current: word(checkpoint, "state") != "superseded",
                    instance,
                    holders: texts(image, "holders"),
                    place: place(&folders, &id, instance, checkpoint_number),
                })
            })
        });
        let images = images.collect();
        let (name, command) = (word(&status, "name"), listing::command(&status));
        Ok(Self { id, name, command, images })
    }

    /// What the agent finds of those that lie in its folder, which is closed to this user.
    pub fn ask(
        &self,
        cluster: &Cluster,
        images: &[&Image],
        checkpoint: Option<u64>,
        look: Look,
        what: &str,
    ) -> Result<BTreeMap<ImageName, Finding>, Failure> {
        if !images.iter().any(|image| matches!(image.place, Place::Closed)) {
            return Ok(BTreeMap::new());
        }
        self.ask_agent(cluster, checkpoint, look, what)
    }

    /// What the agent finds of all that lie in its folder.
    pub fn ask_agent(
        &self,
        cluster: &Cluster,
        checkpoint: Option<u64>,
        look: Look,
        what: &str,
    ) -> Result<BTreeMap<ImageName, Finding>, Failure> {
        let ask = Ask::Look { job: self.id.clone(), checkpoint, look };
        let mut found = BTreeMap::new();
        cluster.each(what, &ask, |answer| match answer {
            Answer::Image { image, finding } => {
                found.insert(image, finding);
                Ok(true)
            }
            Answer::Done { .. } => Ok(false),
            other => Err(unexpected(what, &other)),
        })?;
        Ok(found)
    }

    /// Why none of these images can be read here, and what to do.
    pub fn nothing_here(command: &str, images: &[&Image]) -> String {
        match holders(images.iter().copied()) {
            holders if holders.is_empty() => "no machine is known to hold its images".to_owned(),
            holders => format!(
                "none of its images is on this machine: run 'ckptd {command}' on {holders}, with the --dir of \
                 the agent there"
            ),
        }
    }
}

/// The machines that hold these images.
pub fn holders<'a>(images: impl Iterator<Item = &'a Image>) -> String {
    let all: BTreeSet<&str> = images.flat_map(|image| &image.holders).map(String::as_str).collect();
    all.into_iter().collect::<Vec<_>>().join(", ")
}

fn texts(value: &Value, key: &str) -> Vec<String> {
    let texts = list(value, key).iter().filter_map(Value::as_str);
    texts.map(crate::tables::printable).collect()
}

fn place(folders: &[PathBuf], job: &str, instance: u64, checkpoint: u64) -> Place {
    let mut closed = false;
    for folder in folders {
        let folder = folder.join(job).join("instances").join(instance.to_string());
        match folder.join("checkpoints").join(checkpoint.to_string()).symlink_metadata() {
            Ok(_) => return Place::Here(folder),
            Err(error) => closed |= error.kind() == ErrorKind::PermissionDenied,
        }
    }
    if closed { Place::Closed } else { Place::Elsewhere }
}
