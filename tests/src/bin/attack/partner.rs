//! A machine that keeps a copy of a job's image, and whose owner wants to read it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ckpt_store::{Checkpoint, CheckpointState, Damage, forget_key, keep_key};
use ckptd_tests::cluster::ckptd::Ckptd;
use ckptd_tests::job::Failure;
use protocol::cluster::image_key::{Encryption, JobKey};
use serde_json::Value;

use super::outcome::{Line, Outcome, worst};

/// How often it is tried while the job's checkpoints replace one another.
const TRIES: usize = 20;

/// Reads what node2 keeps of a job that is on node1.
pub fn reads_copy(ckptd: &Ckptd, job: &str) -> Result<Line, Failure> {
    let kept = ckptd.node(2).disk().join("home/ckptd").join(job);
    let room = tempfile::tempdir().map_err(|error| Failure(error.to_string()))?;
    let mut outcome = Outcome::NotTried("node2 keeps no image".to_owned());
    for number in 0..TRIES {
        let copy = room.path().join(number.to_string());
        // Files that go meanwhile make another try.
        let copied = Command::new("cp").arg("-r").arg(&kept).arg(&copy).output();
        let copied = copied.map_err(|error| Failure(error.to_string()))?;
        if copied.status.success() {
            outcome = worst(
                images(&copy).iter().map(|(folder, checkpoint)| read(&copy, folder, *checkpoint)),
            );
        }
        if !matches!(outcome, Outcome::NotTried(_)) {
            break;
        }
    }
    Ok(Line::new("reads-copy", outcome))
}

/// The committed images in a job's folder.
fn images(job: &Path) -> Vec<(PathBuf, u64)> {
    let instances = fs::read_dir(job.join("instances")).into_iter().flatten().flatten();
    let mut images = Vec::new();
    for folder in instances.map(|entry| entry.path()) {
        for found in ckpt_store::list(&folder).into_iter().flatten() {
            if matches!(found.state, CheckpointState::Committed(_)) {
                images.push((folder.clone(), found.number));
            }
        }
    }
    images
}

fn read(job: &Path, folder: &Path, checkpoint: u64) -> Outcome {
    if job.join("key").exists() {
        return Outcome::Succeeded("it has the key".to_owned());
    }
    let try_to = || Checkpoint::open(folder, checkpoint)?.read_json::<Value>("graph.json");
    let mut outcomes = Vec::new();
    for key in
        [None, Some([0; 32]), Some(*blake3::hash(job.as_os_str().as_encoded_bytes()).as_bytes())]
    {
        if let Some(key) = key {
            if let Err(error) = keep_key(job, &JobKey::new(key), Encryption::Shared) {
                return Outcome::NotTried(error.to_string());
            }
        }
        outcomes.push(match try_to() {
            Ok(_) => Outcome::Succeeded("it reads the graph".to_owned()),
            Err(refused @ (Damage::NoKey { .. } | Damage::WrongKey { .. })) => {
                Outcome::Refused(refused.to_string())
            }
            Err(other) => Outcome::NotTried(other.to_string()),
        });
    }
    if let Err(error) = forget_key(job) {
        return Outcome::NotTried(error.to_string());
    }
    worst(outcomes)
}
