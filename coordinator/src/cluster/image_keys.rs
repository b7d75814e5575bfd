//! Keys of jobs' images. They follow from one secret of the cluster, so that nothing about them has to be kept; only of an
//! imported job, whose images have the key of another, that is in the log: encrypted with a key that follows from the secret.

use super::ClusterMachine;
use protocol::cluster::image_key::{Encryption, ImageKeys, JobKey};
use serde::{Deserialize, Serialize};

/// A secret that only the cluster's coordinators have.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ImageSecret(pub [u8; 32]);

impl std::fmt::Debug for ImageSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ImageSecret(..)")
    }
}

/// The key of an imported job's images, which only the cluster's coordinators can tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WrappedKey(String);

impl ImageSecret {
    fn derived(&self, purpose: &str, job: &str) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(purpose.as_bytes()).update(&[0]).update(job.as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// The key of a job's images.
    fn of_job(&self, job: &str) -> JobKey {
        JobKey::new(self.derived("images of a job", job))
    }

    /// Each job's id is used once, and so is what the key is combined with.
    fn combined(&self, job: &str, key: &JobKey) -> JobKey {
        let mut bytes = self.derived("key of an imported job", job);
        for (byte, with) in bytes.iter_mut().zip(key.bytes()) {
            *byte ^= with;
        }
        JobKey::new(bytes)
    }

    /// As it stands in the log of the job that has this id now.
    pub(super) fn wrap(&self, job: &str, key: &JobKey) -> WrappedKey {
        WrappedKey(self.combined(job, key).into())
    }

    /// None: it is not one that was written.
    fn unwrap(&self, job: &str, wrapped: &WrappedKey) -> Option<JobKey> {
        JobKey::try_from(wrapped.0.clone()).ok().map(|key| self.combined(job, &key))
    }
}

impl ClusterMachine {
    /// What a machine must know that is to read or write a job's images.
    #[must_use]
    pub fn image_keys(&self, job: &str) -> ImageKeys {
        let settings = &self.shared.settings;
        let imported = self.jobs.get(job).and_then(|job| job.ledger.image_key.as_ref());
        let imported = imported.and_then(|wrapped| settings.image_secret.unwrap(job, wrapped));
        let key = imported
            .or_else(|| self.imports.key(job).cloned())
            .unwrap_or_else(|| settings.image_secret.of_job(job));
        ImageKeys { job: job.to_owned(), key, encryption: settings.encryption }
    }

    /// The key that goes with a job's images to a user who takes them elsewhere; none, where images are not encrypted.
    pub(super) fn key_to_take(&self, job: &str) -> Option<JobKey> {
        let ImageKeys { key, encryption, .. } = self.image_keys(job);
        let imported = self.jobs.get(job).is_some_and(|job| job.ledger.image_key.is_some());
        (imported || encryption != Encryption::Off).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_job_has_a_key_of_its_own_and_an_imported_one_keeps_its() {
        let (secret, other) = (ImageSecret([1; 32]), ImageSecret([2; 32]));
        assert_eq!(secret.of_job("a"), secret.of_job("a"));
        assert_ne!(secret.of_job("a"), secret.of_job("b"));
        assert_ne!(secret.of_job("a"), other.of_job("a"));
        let key = other.of_job("a");
        let wrapped = secret.wrap("c", &key);
        assert_eq!(secret.unwrap("c", &wrapped), Some(key.clone()));
        assert_ne!(secret.unwrap("d", &wrapped), Some(key.clone()));
        assert_ne!(wrapped.0, String::from(key));
        assert_eq!(secret.unwrap("c", &WrappedKey("x".into())), None);
        assert!(!format!("{secret:?}").contains('1'));
    }
}
