//! What is kept of DMTCP's checkpoints: the images of this machine, hashed, and the record in the job's log.
//!
//! ```text
//! JOB/dmtcp/images/           where DMTCP writes; it replaces images at each checkpoint
//! JOB/dmtcp/N/                a committed checkpoint's images, and
//! JOB/dmtcp/N/images.json     what they are, and where agents keep those of other machines
//! ```

use super::shared;
use crate::failure::Failure;
use crate::jobs::{self, JobFolder};
use crate::text;
use ckpt_dmtcp::cluster::Cluster;
use ckpt_dmtcp::machine::{Checkpoint, Image, Notice};
use ckpt_dmtcp::server::Recorder;
use coordinator::log::LogFile;
use coordinator::{Entry, History};
use protocol::agent::{CommitRecord, ExitKind, ImageSummary, InstanceId};
use protocol::cluster::NodeName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// Version of images.json.
const FORMAT: u32 = 1;

/// The largest images.json that is read, in bytes.
const MAX_DESCRIPTION: u64 = 64 * 1024 * 1024;

/// Where a job's images are.
pub fn folder(job: &JobFolder) -> PathBuf {
    job.path().join("dmtcp")
}

/// Where DMTCP writes.
pub fn written_in(job: &JobFolder) -> PathBuf {
    folder(job).join("images")
}

/// What a checkpoint has.
#[derive(Debug, Serialize, Deserialize)]
pub struct Description {
    format: u32,
    /// The computation, as DMTCP names it.
    pub group: String,
    /// Its images.
    pub images: Vec<Kept>,
}

/// An image.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kept {
    /// The host, as its process knows it.
    pub host: String,
    /// The file as DMTCP wrote it.
    pub path: String,
    /// The process's program.
    pub program: String,
    /// Its name in the checkpoint's folder; None: it is on its own machine only.
    pub file: Option<String>,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its BLAKE3 hash.
    pub blake3: Option<String>,
    /// Where agents keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Place>,
}

/// What agents keep of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The machine's number in the job.
    pub instance: u32,
    /// Its node at the checkpoint.
    pub node: NodeName,
    /// Nodes that hold its images.
    pub holders: Vec<NodeName>,
}

/// What happens to the job, for who runs it.
#[derive(Debug)]
pub enum Told {
    /// A checkpoint is committed.
    Committed(CommitRecord),
    /// One was given up.
    Failed(String),
    /// Something to be said.
    Warning(String),
    /// All processes run again.
    Restarted,
}

/// Keeps a job's checkpoints.
pub struct JobRecorder {
    job: JobFolder,
    log: LogFile,
    history: History,
    keep: usize,
    restored_from: Option<u64>,
    told: mpsc::UnboundedSender<Told>,
    /// Whose agents keep images.
    cluster: Option<Cluster>,
}

impl JobRecorder {
    /// Opens the job's log; the caller holds its lock.
    pub fn open(
        job: &JobFolder,
        keep: usize,
        told: mpsc::UnboundedSender<Told>,
    ) -> Result<Self, Failure> {
        let (log, history, _) = jobs::open_log(job)?;
        Ok(Self { job: job.clone(), log, history, keep, restored_from: None, told, cluster: None })
    }

    /// With agents that keep images.
    pub fn with(self, cluster: Option<Cluster>) -> Self {
        Self { cluster, ..self }
    }

    /// Has agents restart the newest checkpoint where its images are.
    pub fn return_by_agents(&self) -> Result<(), String> {
        let (Some(cluster), Some(number)) = (&self.cluster, self.newest()) else {
            return Err("no checkpoint of it was committed".to_owned());
        };
        shared::restart(cluster, &self.job, number)
    }

    /// Whether agents keep all images of the newest checkpoint.
    pub fn is_with_agents(&self) -> Result<(), String> {
        let number = self.newest().ok_or("no checkpoint of it was committed")?;
        shared::places(&self.job, number).map(drop)
    }

    /// The job begins, or goes on.
    pub fn begin(&mut self, restored_from: Option<u64>) -> Result<(), Failure> {
        self.restored_from = restored_from;
        self.append(Entry::Started { at_ms: text::now_ms(), restored_from })
            .map_err(Failure::Failed)
    }

    /// The job has ended; as far as that is known, how.
    pub fn end(&mut self, status: Option<ExitKind>, asked: bool) -> Result<(), String> {
        self.append(Entry::Ended { at_ms: text::now_ms(), status, asked })
    }

    /// The newest committed checkpoint.
    pub fn newest(&self) -> Option<u64> {
        self.history.newest().map(|record| record.checkpoint)
    }

    fn append(&mut self, entry: Entry) -> Result<(), String> {
        self.log.append(&entry).map_err(|error| error.to_string())?;
        self.history.apply(&entry);
        Ok(())
    }

    fn record(&mut self, checkpoint: &Checkpoint) -> Result<CommitRecord, String> {
        let number = self.history.next_number();
        self.append(Entry::Begun { checkpoint: number })?;
        let kept = self.keep(number, checkpoint);
        let (bytes, copies, degraded) = match kept {
            Ok(bytes) => bytes,
            Err(error) => {
                let reason = format!("keep DMTCP's images: {error}");
                self.append(Entry::Abandoned { checkpoint: number, reason: reason.clone() })?;
                return Err(reason);
            }
        };
        let record = CommitRecord {
            format: CommitRecord::FORMAT,
            job: self.job.id().to_owned(),
            checkpoint: number,
            restored_from: self.restored_from,
            taken_at_ms: checkpoint.begun_at_ms,
            committed_at_ms: text::now_ms(),
            pause_us: checkpoint.took_us,
            log_length: 0,
            copies,
            degraded,
            suspended: false,
            summary: ImageSummary {
                processes: u32::try_from(checkpoint.images.len()).unwrap_or(u32::MAX),
                bytes,
                stored_bytes: bytes,
                files: 0,
                connections: 0,
            },
            agents: vec![InstanceId::EMBEDDED].into(),
        };
        self.append(Entry::Committed(record.clone()))?;
        self.collect();
        Ok(record)
    }

    /// Removes all but the newest. What can't be removed is removed with the job.
    fn collect(&mut self) {
        let numbers: Vec<u64> =
            self.history.committed().map(|(record, _)| record.checkpoint).collect();
        let (old, kept) = numbers.split_at(numbers.len().saturating_sub(self.keep));
        if old.is_empty() || self.append(Entry::Collected { kept: kept.to_vec() }).is_err() {
            return;
        }
        for number in old {
            let _ = fs::remove_dir_all(folder(&self.job).join(number.to_string()));
        }
        if let Some(cluster) = &self.cluster {
            shared::collect(cluster, &self.job, kept);
        }
    }

    /// Keeps images: bytes, copies of each, and whether some have fewer than they should.
    fn keep(&self, number: u64, checkpoint: &Checkpoint) -> io::Result<(u64, u32, bool)> {
        let taken = match &self.cluster {
            Some(cluster) => {
                shared::take_in(cluster, &self.job, number, checkpoint).map_err(io::Error::other)?
            }
            None => BTreeMap::new(),
        };
        let bytes = keep(&folder(&self.job), number, checkpoint, &taken)?;
        let holders = |index| taken.get(&index).and_then(|kept: &Kept| kept.share.as_ref());
        let copies = (0..checkpoint.images.len())
            .map(|index| holders(index).map_or(1, |place| place.holders.len()))
            .min()
            .unwrap_or(1);
        let degraded = self.cluster.is_some() && copies < shared::COPIES;
        Ok((bytes, u32::try_from(copies).unwrap_or(u32::MAX), degraded))
    }
}

impl Recorder for JobRecorder {
    fn commit(&mut self, checkpoint: &Checkpoint) -> Result<(), String> {
        let record = self.record(checkpoint)?;
        // Whoever runs the job has ended it: it is in the log all the same.
        let _ = self.told.send(Told::Committed(record));
        Ok(())
    }

    fn notice(&mut self, notice: &Notice) {
        let told = match notice {
            Notice::Failed { reason, .. } => Told::Failed(reason.clone()),
            Notice::Warning(text) => Told::Warning(text.clone()),
            Notice::Restarted { .. } => Told::Restarted,
            _ => return,
        };
        let _ = self.told.send(told);
    }
}

/// Makes a checkpoint's folder whole or not at all; the bytes of its images.
fn keep(
    folder: &Path,
    number: u64,
    checkpoint: &Checkpoint,
    taken: &BTreeMap<usize, Kept>,
) -> io::Result<u64> {
    let own = nix::unistd::gethostname()?.to_string_lossy().into_owned();
    let new = folder.join(format!(".{number}.new"));
    let _ = fs::remove_dir_all(&new);
    fs::create_dir_all(&new)?;
    let mut images = Vec::new();
    for (index, image) in checkpoint.images.iter().enumerate() {
        images.push(match taken.get(&index) {
            Some(kept) => kept.clone(),
            None => keep_image(&new, index, image, &own)?,
        });
    }
    let bytes = images.iter().map(|image| image.bytes).sum();
    let description = Description { format: FORMAT, group: checkpoint.group.to_string(), images };
    let path = new.join("images.json");
    fs::write(&path, serde_json::to_vec_pretty(&description)?)?;
    File::open(&path)?.sync_all()?;
    File::open(&new)?.sync_all()?;
    fs::rename(&new, folder.join(number.to_string()))?;
    File::open(folder)?.sync_all()?;
    Ok(bytes)
}

fn keep_image(new: &Path, index: usize, image: &Image, own: &str) -> io::Result<Kept> {
    let path = Path::new(&image.name.path);
    let mut kept = Kept {
        host: image.name.host.clone(),
        path: image.name.path.clone(),
        program: image.program.clone(),
        file: None,
        bytes: 0,
        blake3: None,
        share: None,
    };
    if image.name.host != own {
        return Ok(kept);
    }
    let base = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let file = match base {
        Some(base) if !new.join(&base).exists() => base,
        _ => format!("{index}.dmtcp"),
    };
    let place = new.join(&file);
    // DMTCP replaces images by new files, so that a second name keeps this one.
    if fs::hard_link(path, &place).is_err() {
        fs::copy(path, &place)?;
    }
    let opened = File::open(&place)?;
    opened.sync_all()?;
    kept.bytes = opened.metadata()?.len();
    kept.blake3 = Some(hash(opened)?);
    kept.file = Some(file);
    Ok(kept)
}

fn hash(file: File) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// The images of a committed checkpoint, each checked against its hash.
pub fn images(job: &JobFolder, number: u64) -> Result<Vec<PathBuf>, String> {
    let mut images = Vec::new();
    for image in description(job, number)?.images {
        if let Some(place) = &image.share {
            return Err(format!(
                "the image {} of {} is kept by the agents of {}: the cluster's coordinator restarts the job when a node is \
                 lost; to do it by hand, execute dmtcp_restart_script.sh",
                image.path,
                place.node,
                names(&place.holders)
            ));
        }
        images.push(checked(job, number, &image)?);
    }
    Ok(images)
}

/// The numbers of the checkpoints that are kept.
pub fn kept_numbers(job: &JobFolder) -> Vec<u64> {
    let listing = fs::read_dir(folder(job)).into_iter().flatten().flatten();
    listing.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Names in a row.
pub fn names(nodes: &[NodeName]) -> String {
    nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ")
}

/// What a committed checkpoint has.
pub fn description(job: &JobFolder, number: u64) -> Result<Description, String> {
    let place = folder(job).join(number.to_string());
    let path = place.join("images.json");
    let failed = |error: io::Error| format!("read {}: {error}", path.display());
    if fs::metadata(&path).map_err(failed)?.len() > MAX_DESCRIPTION {
        return Err(format!("read {}: it exceeds {MAX_DESCRIPTION} bytes", path.display()));
    }
    let description: Description = protocol::json::read(&fs::read(&path).map_err(failed)?)
        .map_err(|error| format!("read {}: {error}", path.display()))?;
    if description.format > FORMAT {
        return Err(format!("read {}: it is of a newer ckptd", path.display()));
    }
    Ok(description)
}

/// An image that is kept on this machine, checked against its hash.
pub fn checked(job: &JobFolder, number: u64, image: &Kept) -> Result<PathBuf, String> {
    let place = folder(job).join(number.to_string());
    let Some(file) = &image.file else {
        return Err(format!(
            "the image {} is on {} only, where no agent of ckptd runs: start dmtcp_restart there and here by hand, \
             with DMTCP's own coordinator or 'ckptd coordinator --dmtcp-port'",
            image.path, image.host
        ));
    };
    // A name, never a path.
    let found = place.join(Path::new(file).file_name().unwrap_or_default());
    let opened =
        File::open(&found).map_err(|error| format!("open {}: {error}", found.display()))?;
    let hash = hash(opened).map_err(|error| format!("read {}: {error}", found.display()))?;
    if image.blake3.as_deref() != Some(hash.as_str()) {
        return Err(format!("the image {} is damaged: its hash is another", found.display()));
    }
    Ok(found)
}
