//! A job of a cluster as it is taken elsewhere: what its coordinator knows of it at one of its checkpoints. The images
//! travel beside it.

use super::agent::JobUser;
use super::client::RunRequest;
use super::image_key::JobKey;
use super::look::ImageName;
use super::{Epoch, NodeName};
use crate::agent::{CheckpointNumber, CommitRecord, InstanceId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Version of [`PortableJob`] that this build writes.
pub const FORMAT: u32 = 1;
/// The longest text of one, in bytes.
pub const MAX_TEXT: usize = 6 << 20;
/// The most instances.
pub const MAX_INSTANCES: usize = 10_000;
/// The most addresses of logical nodes, and the most daemons that are left out.
const MAX_KNOWN: usize = 100_000;
/// The highest epoch and the highest number of an instance: far from where they end.
const HIGHEST: u32 = u32::MAX / 4;

/// See the module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PortableJob {
    /// [`FORMAT`].
    pub format: u32,
    /// The id that it had.
    pub id: String,
    /// The name that it had.
    pub name: String,
    /// Whose it was.
    pub user: JobUser,
    /// What was asked for when it was run.
    pub request: RunRequest,
    /// When that was, in milliseconds since 1970 UTC.
    pub created_at_ms: u64,
    /// The record of the checkpoint's commit.
    pub record: CommitRecord,
    /// The epoch that the job was in.
    pub epoch: Epoch,
    /// Every instance's part of the checkpoint.
    pub images: BTreeMap<InstanceId, PortableImage>,
    /// The addresses by which its processes know logical nodes.
    pub addresses: BTreeMap<NodeName, Vec<IpAddr>>,
    /// Daemons that are not brought back.
    pub departed: Vec<DepartedDaemon>,
}

/// One instance's part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortableImage {
    /// The machine on which it was taken.
    pub node: NodeName,
    /// Its logical node.
    pub logical_node: NodeName,
    /// Speed of a core of its machine then, in thousandths.
    pub speed_permille: u32,
    /// Hash of its index files and of its list of the job's files ([`super::image::ImageFacts::digest`]).
    pub digest: String,
    /// Bytes of memory in it.
    pub bytes: u64,
    /// Whether the job's first process is in it.
    pub root: bool,
}

/// A daemon that is not brought back: its children fall back to the daemons of the machines where they
/// are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepartedDaemon {
    /// The machine where it was when the checkpoint was taken.
    pub node: NodeName,
    /// Its logical node.
    pub logical_node: NodeName,
    /// Its number there.
    pub pid: i32,
    /// Its program's name.
    pub name: String,
}

/// What every version says of itself.
#[derive(Deserialize)]
struct Form {
    format: u64,
}

/// The text of a [`PortableJob`], and by what its cluster knows it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedJob {
    /// JSON.
    pub text: String,
    /// BLAKE3 of the text, under a key that only the cluster's coordinator has; hexadecimal.
    pub seal: String,
    /// The key of its images, for a user who may read them; none: they are not encrypted. Not sealed: with a wrong one
    /// nothing can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<JobKey>,
}

/// Why a [`PortableJob`] is not taken; one line that fits after "its description ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortableError {
    /// It is not one.
    #[error("is not one: {0}")]
    Foreign(String),
    /// It is newer.
    #[error("has format {found}, this ckptd knows up to {FORMAT}; use a newer ckptd")]
    Newer {
        /// Its format.
        found: u64,
    },
    /// It has more of something than any job has, or what does not fit together.
    #[error("makes no sense: {0}")]
    Unsound(&'static str),
}

impl SealedJob {
    /// What the text says. Whoever has no key can't tell whether that is true.
    ///
    /// # Errors
    /// Where it says nothing that makes sense.
    pub fn read(&self) -> Result<PortableJob, PortableError> {
        if self.text.len() > MAX_TEXT {
            return Err(PortableError::Unsound("it is too long"));
        }
        let foreign = |error: serde_json::Error| PortableError::Foreign(error.to_string());
        match crate::json::read::<Form>(self.text.as_bytes()) {
            Ok(Form { format: found }) if found > u64::from(FORMAT) => {
                return Err(PortableError::Newer { found });
            }
            _ => {}
        }
        let job: PortableJob = crate::json::read(self.text.as_bytes()).map_err(foreign)?;
        job.complaint().map_or(Ok(job), |complaint| Err(PortableError::Unsound(complaint)))
    }
}

impl PortableJob {
    fn complaint(&self) -> Option<&'static str> {
        let addresses: usize = self.addresses.values().map(|known| known.len().max(1)).sum();
        let highest = self.images.keys().next_back().map_or(0, |instance| instance.0);
        if self.images.is_empty() || self.images.len() > MAX_INSTANCES {
            Some("it has no images, or too many")
        } else if addresses > MAX_KNOWN || self.departed.len() > MAX_KNOWN {
            Some("it knows too many addresses or daemons")
        } else if highest > HIGHEST || self.epoch > u64::from(HIGHEST) {
            Some("its numbers are too high")
        } else if self.record.checkpoint > u64::from(HIGHEST) {
            Some("its checkpoint's number is too high")
        } else if self.record.format > CommitRecord::FORMAT {
            Some("the record of its commit is of a newer ckptd")
        } else if self.request.launch.program.is_empty() {
            Some("it has no command")
        } else {
            None
        }
    }

    /// The names of its images.
    pub fn names(&self) -> impl Iterator<Item = ImageName> {
        let checkpoint = self.record.checkpoint;
        self.images.keys().map(move |instance| ImageName { instance: *instance, checkpoint })
    }
}

/// A job that is to become the cluster's. Its log follows by [`super::client::Ask::ImportLog`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportRequest {
    /// The name that it is to have; None: the one that it had.
    pub name: Option<String>,
    /// Whose it is to be; None: whoever asks. Only an operator may say so.
    pub owner: Option<JobUser>,
    /// What its cluster knew.
    pub job: SealedJob,
    /// The folder, on the machine of this socket, with the images in `INSTANCE/`, which the agent reads with the rights
    /// of whoever asks.
    pub folder: String,
    /// Bytes of the log that follow.
    pub log_length: u64,
}

/// Images that an agent is to take over for a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdoptOrder {
    /// The agent's number for the client whose folder it is.
    pub client: u64,
    /// The user of that client: the folder is read with its rights.
    pub user: JobUser,
    /// The job's id.
    pub job: String,
    /// The folder, with an image in each `INSTANCE/`.
    pub folder: String,
    /// The images, with the digests that they must have.
    pub images: BTreeMap<InstanceId, String>,
    /// The record for their commit marks.
    pub record: CommitRecord,
    /// Whether callers of `ckptd rsh` are restored with the job.
    pub callers: bool,
}

impl AdoptOrder {
    /// The checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> CheckpointNumber {
        self.record.checkpoint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(text: &str) -> SealedJob {
        SealedJob { text: text.to_owned(), seal: String::new(), key: None }
    }

    #[test]
    fn what_is_newer_or_none_is_told_apart() {
        let newer = sealed(r#"{"format": 2, "what": "else"}"#).read();
        assert_eq!(newer.unwrap_err(), PortableError::Newer { found: 2 });
        for text in ["", "{}", "[1]", r#"{"format": 1}"#] {
            assert!(matches!(sealed(text).read(), Err(PortableError::Foreign(_))), "{text}");
        }
        let long = "x".repeat(MAX_TEXT + 1);
        assert!(matches!(sealed(&long).read(), Err(PortableError::Unsound(_))));
    }
}
