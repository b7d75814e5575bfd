//! The job that a command is about: JOB, or JOB@N for one of its checkpoints.

use super::Context;
use crate::client::launcher;
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::jobs::JobFolder;
use protocol::cluster::client::{Answer, Ask};

/// Whose job it is.
#[derive(Debug, Clone)]
pub enum Target {
    /// Perhaps one of the cluster's; it knows.
    Cluster(Cluster),
    /// One without a cluster.
    Own(JobFolder),
}

impl Target {
    /// Asks whoever runs the job for what has one answer. A launcher that is about to begin is waited for.
    ///
    /// # Errors
    /// Where there is no answer, or it is a refusal.
    pub fn ask(
        &self,
        what: &str,
        wanted: &str,
        ask: impl FnOnce(String) -> Ask,
    ) -> Result<Answer, Failure> {
        let job = match self {
            Self::Cluster(cluster) => return cluster.ask(what, &ask(wanted.to_owned())),
            Self::Own(job) => job,
        };
        let begins = || job.is_running().unwrap_or(false);
        // As long as it takes: writing is bounded by its progress, not by a time.
        let answer = launcher::ask_beginning(job.path(), &ask(job.id().to_owned()), None, begins);
        match answer.map_err(|error| Failure::of(what, error))? {
            Answer::Failed { reason, .. } => Err(Failure::Failed(reason)),
            answer => Ok(answer),
        }
    }

    /// What the job is called.
    pub fn name<'a>(&'a self, wanted: &'a str) -> &'a str {
        match self {
            Self::Cluster(_) => wanted,
            Self::Own(job) => job.name(),
        }
    }
}

impl Context {
    /// The job that is meant: one that was run on this machine alone, before or beside the cluster, is found by its
    /// whole name.
    ///
    /// # Errors
    /// Where this machine belongs to no cluster and there is no such job.
    pub fn target(&self, wanted: &str) -> Result<Target, Failure> {
        match self.cluster_of(wanted)? {
            Some(cluster) => Ok(Target::Cluster(cluster)),
            None => Ok(Target::Own(self.state.find_job(wanted)?)),
        }
    }
}

/// The job's name and the checkpoint's number.
pub fn split(wanted: &str) -> Result<(&str, Option<u64>), Failure> {
    match wanted.rsplit_once('@') {
        None => Ok((wanted, None)),
        Some((job, number)) => {
            let number = number.parse().map_err(|_| {
                Failure::Usage(format!("wrong usage: {number:?} is not the number of a checkpoint"))
            })?;
            Ok((job, Some(number)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_at_sign() {
        assert_eq!(split("fold").unwrap(), ("fold", None));
        assert_eq!(split("fold@12").unwrap(), ("fold", Some(12)));
        assert_eq!(split("fold@x").unwrap_err().exit_status(), 2);
    }
}
