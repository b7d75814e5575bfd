//! Where an agent keeps things, and which names it believes.
//!
//! ```text
//! DIR/JOB/instances/NUMBER/checkpoints/N/   an image, as in a job's folder on one machine
//! DIR/JOB/instances/NUMBER/packs/
//! DIR/JOB/instances/NUMBER/files/           files that only this machine may have, by their hash
//! DIR/JOB/instances/NUMBER/instance.json    what a later agent must know of one that runs here
//! DIR/JOB/instances/NUMBER/init.sock        where its init listens
//! DIR/.incoming/JOB/instances/NUMBER/       as above, of an import until all of it is checked
//! ```

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ckpt_node::is_job_id;
use protocol::agent::InstanceId;
use protocol::cluster::agent::Holding;

use ckpt_store::CheckpointState;

/// What a later agent must know of an instance that runs here, in its folder.
pub const RECORD: &str = "instance.json";
/// Folder of jobs that are being imported.
const INCOMING: &str = ".incoming";
/// The folder of copies that come from other agents.
const ARRIVING: &str = ".arriving";
/// Jobs that are looked at.
const MOST_JOBS: usize = 10_000;
/// Instances of one job that are looked at.
const MOST_INSTANCES: usize = 100_000;

/// The agent's folder.
#[derive(Debug, Clone)]
pub struct Folders {
    dir: PathBuf,
}

impl Folders {
    /// In that folder.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The folder itself.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A job's.
    #[must_use]
    pub fn job(&self, job: &str) -> PathBuf {
        self.dir.join(job)
    }

    /// An instance's.
    #[must_use]
    pub fn instance(&self, job: &str, instance: InstanceId) -> PathBuf {
        self.job(job).join("instances").join(instance.0.to_string())
    }

    /// Makes an instance's folder, and those above it, open to this user alone.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn make_instance(&self, job: &str, instance: InstanceId) -> io::Result<PathBuf> {
        let folder = self.instance(job, instance);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(folder)
    }

    /// Whether any instance runs here, or did when the agent was killed.
    #[must_use]
    pub fn have_records(&self) -> bool {
        let has_record =
            |job: &str, number: &InstanceId| self.instance(job, *number).join(RECORD).exists();
        let is_served =
            |job: &String| self.instances(job).iter().any(|number| has_record(job, number));
        self.jobs().iter().any(is_served)
    }

    /// All jobs of which there is something here.
    #[must_use]
    pub fn jobs(&self) -> Vec<String> {
        let mut jobs = names(&self.dir, MOST_JOBS);
        jobs.retain(|job| is_job_id(job) && self.job(job).join("instances").is_dir());
        jobs
    }

    /// All instances of a job of which there is something here.
    #[must_use]
    pub fn instances(&self, job: &str) -> Vec<InstanceId> {
        let folder = self.job(job).join("instances");
        let mut found: Vec<InstanceId> = names(&folder, MOST_INSTANCES)
            .iter()
            .filter_map(|name| {
                let number: u32 = name.parse().ok()?;
                (number.to_string() == *name).then_some(InstanceId(number))
            })
            .collect();
        found.sort_unstable();
        found
    }

    /// The committed images on this disk.
    #[must_use]
    pub fn holdings(&self) -> Vec<Holding> {
        let mut holdings = Vec::new();
        for job in self.jobs() {
            for instance in self.instances(&job) {
                let Ok(all) = ckpt_store::list(&self.instance(&job, instance)) else { continue };
                let whole =
                    |state: &CheckpointState| matches!(state, CheckpointState::Committed(_));
                let checkpoints: Vec<u64> =
                    all.iter().filter(|c| whole(&c.state)).map(|c| c.number).collect();
                if !checkpoints.is_empty() {
                    holdings.push(Holding { job: job.clone(), instance, checkpoints });
                }
            }
        }
        holdings
    }

    /// Where the folder of a job that is imported lies until all of it is checked: no job's id begins with a dot.
    #[must_use]
    pub fn incoming(&self, job: &str) -> PathBuf {
        self.dir.join(INCOMING).join(job)
    }

    /// Where copies come together that other agents send.
    #[must_use]
    pub fn arriving(&self) -> PathBuf {
        self.dir.join(ARRIVING)
    }

    /// Removes what imports and copies have left that were cut off by the end of an agent before.
    ///
    /// # Errors
    /// As unlink(2), rmdir(2).
    pub fn clear_incoming(&self) -> io::Result<()> {
        gone(fs::remove_dir_all(self.dir.join(INCOMING)))?;
        gone(fs::remove_dir_all(self.dir.join(ARRIVING)))
    }

    /// Removes an instance's folder; what is not there is gone.
    ///
    /// # Errors
    /// As unlink(2), rmdir(2).
    pub fn remove_instance(&self, job: &str, instance: InstanceId) -> io::Result<()> {
        gone(fs::remove_dir_all(self.instance(job, instance)))?;
        // Only if nothing else is in them.
        let _ = fs::remove_dir(self.job(job).join("instances"));
        let _ = fs::remove_dir(self.job(job));
        Ok(())
    }
}

/// What is not there need not be removed.
fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn names(folder: &Path, limit: usize) -> Vec<String> {
    let Ok(listing) = fs::read_dir(folder) else { return Vec::new() };
    listing
        .take(limit)
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_no_paths() {
        for good in ["a", "nqueens-1", "20260101T1200-x_y.z"] {
            assert!(is_job_id(good), "{good}");
        }
        let long = "x".repeat(129);
        for bad in ["", ".", "..", ".x", "a/b", "/a", "a\0", "ä", long.as_str()] {
            assert!(!is_job_id(bad), "{bad}");
        }
    }

    #[test]
    fn only_folders_of_instances_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders::new(dir.path().to_owned());
        folders.make_instance("job", InstanceId(12)).unwrap();
        folders.make_instance("job", InstanceId(2)).unwrap();
        fs::create_dir(folders.job("job").join("instances/007")).unwrap();
        fs::create_dir(dir.path().join("other")).unwrap();
        assert_eq!(folders.jobs(), ["job"]);
        assert_eq!(folders.instances("job"), [InstanceId(2), InstanceId(12)]);
        assert!(folders.holdings().is_empty());
        folders.remove_instance("job", InstanceId(2)).unwrap();
        folders.remove_instance("job", InstanceId(12)).unwrap();
        fs::remove_dir(folders.job("job").join("instances/007")).unwrap();
        folders.remove_instance("job", InstanceId(3)).unwrap();
        assert!(folders.jobs().is_empty());
    }
}
