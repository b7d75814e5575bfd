//! What a cluster's coordinator may be told to do differently.

use super::image_keys::ImageSecret;
use crate::settings::{Limits, SECOND};
use protocol::cluster::image_key::Encryption;
use protocol::transport::Fingerprint;

/// The longest time between two heartbeats, in nanoseconds.
const LONGEST_HEARTBEAT: u64 = SECOND;

/// With fewer, the coordinator has told all of them itself before a first one could help.
const TREE_ABOVE: u32 = 8;

/// Less takes no longer to fetch than what a move does besides.
const AHEAD_FROM: u64 = 32 << 20;

/// How a cluster is kept. Times are nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    /// From the last heartbeat of a node to its being declared gone.
    pub grace: u64,
    /// Limits of a checkpoint's steps.
    pub limits: Limits,
    /// Limits of a rollback's steps.
    pub rollback: RollbackLimits,
    /// Bytes of memory, in images that would have to be fetched for a move, from which on they are sent ahead of it.
    pub ahead_from: u64,
    /// A job's steps go by the command tree where it is on more nodes than these.
    pub tree_above: u32,
    /// The user, besides root, who may turn nodes out: the coordinator's own.
    pub operator: u32,
    /// Where agents reach this coordinator, HOST:PORT.
    pub addresses: Vec<String>,
    /// The folder with a folder for each job, for listings.
    pub jobs_folder: String,
    /// What names the cluster's authority.
    pub authority: Fingerprint,
    /// By which the cluster knows the archives of its own jobs again.
    pub archive_key: ArchiveKey,
    /// From which the keys of jobs' images follow.
    pub image_secret: ImageSecret,
    /// How new images are encrypted.
    pub encryption: Encryption,
}

/// A key that only the cluster's coordinators have.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ArchiveKey(pub [u8; 32]);

impl std::fmt::Debug for ArchiveKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ArchiveKey(..)")
    }
}

/// How long a step of a rollback may take, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollbackLimits {
    /// From the order to kill to a word to the user about who has not answered. A machine that
    /// does not answer is waited for until it is declared gone.
    pub kill: u64,
    /// Fetching images.
    pub prepare: u64,
    /// Restoring.
    pub restore: u64,
    /// Letting everything run.
    pub start: u64,
    /// Launching an instance.
    pub launch: u64,
    /// Waiting for a machine that can take the job.
    pub machines: u64,
}

impl Default for RollbackLimits {
    fn default() -> Self {
        Self {
            kill: 5 * SECOND,
            prepare: 600 * SECOND,
            restore: 120 * SECOND,
            start: 30 * SECOND,
            launch: 30 * SECOND,
            machines: 600 * SECOND,
        }
    }
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            grace: 10 * SECOND,
            limits: Limits::default(),
            rollback: RollbackLimits::default(),
            ahead_from: AHEAD_FROM,
            tree_above: TREE_ABOVE,
            operator: 0,
            addresses: Vec::new(),
            jobs_folder: String::new(),
            authority: Fingerprint::default(),
            archive_key: ArchiveKey::default(),
            image_secret: ImageSecret::default(),
            encryption: Encryption::default(),
        }
    }
}

impl ClusterSettings {
    /// Time between two heartbeats.
    #[must_use]
    pub fn heartbeat(&self) -> u64 {
        (self.grace / 10).clamp(1, LONGEST_HEARTBEAT)
    }

    /// From the sending of an acknowledged heartbeat until a node's lease runs out: shorter than
    /// the grace, so that what the node still runs stands still before it is declared gone, by
    /// what clocks may differ and an init may be late.
    #[must_use]
    pub fn lease(&self) -> u64 {
        self.grace - self.grace / 5
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_before_the_grace_and_outlives_lost_heartbeats() {
        for grace in [SECOND, 3 * SECOND, 10 * SECOND, 60 * SECOND] {
            let settings = ClusterSettings { grace, ..ClusterSettings::default() };
            assert!(settings.lease() < grace);
            assert!(settings.heartbeat() * 3 < settings.lease());
            assert!(settings.heartbeat() <= SECOND);
        }
    }
}
