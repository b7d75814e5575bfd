//! Keys of jobs whose images this machine may read: they lie in the jobs' folders as long as a job is placed here, or is
//! rehearsed, looked at or imported, and no longer. A machine that only keeps copies has none.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ckpt_store::{StoreError, forget_key, keep_key};
use protocol::cluster::image_key::ImageKeys;

use super::folders::Folders;

/// See the module. Clones are the same.
#[derive(Clone)]
pub struct Keys {
    folders: Folders,
    known: Arc<Mutex<BTreeMap<String, Known>>>,
}

/// What is known of one job's key.
#[derive(Default)]
struct Known {
    /// As the coordinator has told it; none: an agent before has written it down.
    told: Option<ImageKeys>,
    /// Whether that came after it was used last: then an order is on its way that uses it.
    fresh: bool,
    /// Instances, and tasks, that use it.
    uses: usize,
}

/// A key that is used for a while. It can be read until this is dropped.
pub struct Loan {
    keys: Keys,
    job: String,
}

impl Keys {
    /// None yet.
    #[must_use]
    pub fn new(folders: Folders) -> Self {
        Self { folders, known: Arc::default() }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The coordinator says what the next orders take.
    pub fn learn(&self, keys: Vec<ImageKeys>) {
        let mut known = self.known();
        for told in keys {
            let of_job = known.entry(told.job.clone()).or_default();
            of_job.told = Some(told);
            of_job.fresh = true;
        }
    }

    /// The job is placed here: its key is written down, in the job's folder, if the coordinator has told one.
    ///
    /// # Errors
    /// What the kernel refuses; then it counts for nothing.
    pub fn begin(&self, job: &str) -> Result<(), StoreError> {
        let mut known = self.known();
        let of_job = known.entry(job.to_owned()).or_default();
        if let Some(told) = of_job.told.as_ref().filter(|_| of_job.fresh || of_job.uses == 0) {
            keep_key(&self.folders.job(job), &told.key, told.encryption)?;
            of_job.fresh = false;
        }
        of_job.uses += 1;
        Ok(())
    }

    /// An instance of the job has outlived the agent before, which has written the key down.
    pub fn outlived(&self, job: &str) {
        self.known().entry(job.to_owned()).or_default().uses += 1;
    }

    /// What [`begin`](Self::begin) began is over. With the last use the key is removed.
    pub fn end(&self, job: &str) {
        let mut known = self.known();
        let Some(of_job) = known.get_mut(job) else { return };
        of_job.uses = of_job.uses.saturating_sub(1);
        if of_job.uses > 0 {
            return;
        }
        if !of_job.fresh {
            known.remove(job);
        }
        forget(&self.folders.job(job));
    }

    /// As [`begin`](Self::begin), until what comes back is dropped.
    ///
    /// # Errors
    /// As there.
    pub fn lend(&self, job: &str) -> Result<Loan, StoreError> {
        self.begin(job)?;
        Ok(Loan { keys: self.clone(), job: job.to_owned() })
    }

    /// Writes the key down in a folder that is to be the job's, if the coordinator has told one.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn write_to(&self, folder: &Path, job: &str) -> Result<(), StoreError> {
        let told = self.known().get(job).and_then(|known| known.told.clone());
        told.map_or(Ok(()), |told| keep_key(folder, &told.key, told.encryption))
    }

    /// Removes the keys of all jobs that are not placed here: an agent that was killed has left them.
    pub fn sweep(&self) {
        let known = self.known();
        for job in self.folders.jobs() {
            if known.get(&job).is_none_or(|known| known.uses == 0) {
                forget(&self.folders.job(&job));
            }
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.keys.end(&self.job);
    }
}

fn forget(folder: &Path) {
    if let Err(error) = forget_key(folder) {
        tracing::warn!(%error, "a job's key stays on this machine");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ckpt_store::key_of;
    use protocol::agent::InstanceId;
    use protocol::cluster::image_key::{Encryption, JobKey};

    fn told(job: &str) -> Vec<ImageKeys> {
        let (job, key) = (job.to_owned(), JobKey::new([1; 32]));
        vec![ImageKeys { job, key, encryption: Encryption::Shared }]
    }

    struct World {
        _dir: tempfile::TempDir,
        folders: Folders,
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let folders = Folders::new(dir.path().to_owned());
            folders.make_instance("job", InstanceId(1)).unwrap();
            Self { _dir: dir, folders }
        }

        fn is_here(&self) -> bool {
            key_of(&self.folders.instance("job", InstanceId(1))).unwrap().is_some()
        }
    }

    #[test]
    fn a_key_is_here_as_long_as_the_job_is() {
        let world = World::new();
        let keys = Keys::new(world.folders.clone());
        // One that keeps copies alone is told nothing; what is told is not written before it is used.
        keys.begin("job").unwrap();
        assert!(!world.is_here());
        keys.end("job");
        keys.learn(told("job"));
        assert!(!world.is_here());
        keys.begin("job").unwrap();
        let loan = keys.lend("job").unwrap();
        keys.end("job");
        assert!(world.is_here(), "it is still being read");
        drop(loan);
        assert!(!world.is_here());
        // Told before the instance of an older epoch is gone, for the next one.
        keys.learn(told("job"));
        keys.begin("job").unwrap();
        keys.learn(told("job"));
        keys.end("job");
        assert!(!world.is_here());
        keys.begin("job").unwrap();
        assert!(world.is_here());
    }

    #[test]
    fn what_an_agent_before_has_left_stays_for_instances_that_live() {
        let world = World::new();
        let before = Keys::new(world.folders.clone());
        before.learn(told("job"));
        before.begin("job").unwrap();
        let keys = Keys::new(world.folders.clone());
        keys.outlived("job");
        keys.sweep();
        assert!(world.is_here());
        keys.end("job");
        assert!(!world.is_here());
        before.learn(told("job"));
        before.begin("job").unwrap();
        Keys::new(world.folders.clone()).sweep();
        assert!(!world.is_here());
    }
}
