//! Rehearsals of a cluster's job: each instance of a checkpoint is brought back on a machine that holds its image, until it is
//! complete, and taken down again, while the job runs on.

use super::NodeName;
use super::agent::{InstanceSettings, JobUser};
use super::look::ImageName;
use crate::compact::Shared;
use crate::control::RehearsalOutcome;
use serde::{Deserialize, Serialize};

/// An instance to be rehearsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RehearsedImage {
    /// Its image.
    pub image: ImageName,
    /// [`crate::cluster::image::ImageFacts::digest`] of that image, as it was committed.
    pub digest: String,
    /// Its logical node: the host name inside.
    pub logical_node: NodeName,
}

/// Instances of a job that one agent is to rehearse, one after the other. Answers:
/// [`super::agent::FromAgent::Rehearsed`], for each one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RehearsalOrder {
    /// The coordinator's number for it.
    pub number: u64,
    /// The job.
    pub job: String,
    /// The images that this node rehearses, with where each belongs.
    pub images: Vec<RehearsedImage>,
    /// Content of /etc/hosts inside.
    pub hosts: Shared<String>,
    /// The user whose job it is.
    pub user: JobUser,
    /// Settings.
    pub settings: InstanceSettings,
}

/// How the rehearsal of one instance came out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RehearsedInstance {
    /// Its image.
    pub image: ImageName,
    /// How.
    pub outcome: RehearsalOutcome,
    /// What the restart would have warned of.
    pub warnings: Vec<String>,
}
