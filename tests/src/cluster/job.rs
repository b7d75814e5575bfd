//! A job that runs on a cluster.

use std::time::Duration;

use super::ckptd::Ckptd;
use super::status::Status;
use super::{Background, until};
use crate::job::Failure;

/// `ckptd run`, and the job behind it, which may outlive it.
pub struct ClusterJob<'a> {
    ckptd: &'a Ckptd,
    name: String,
    launcher: Background,
}

impl<'a> ClusterJob<'a> {
    pub(super) fn new(ckptd: &'a Ckptd, name: &str, launcher: Background) -> ClusterJob<'a> {
        ClusterJob { ckptd, name: name.to_owned(), launcher }
    }

    /// The name by which the cluster's commands know it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What `ckptd run` is.
    pub fn launcher(&mut self) -> &mut Background {
        &mut self.launcher
    }

    /// What it has written to standard output; a terminal's line ends made plain.
    pub fn output(&self) -> String {
        self.launcher.output().replace("\r\n", "\n")
    }

    /// What `ckptd run` and the job have written to standard error.
    pub fn errors(&self) -> String {
        self.launcher.errors()
    }

    /// What `ckptd status --json` tells on the coordinator's machine.
    ///
    /// # Errors
    /// When it is refused.
    pub fn status(&self) -> Result<Status, Failure> {
        Status::of(self.ckptd, &self.name)
    }

    /// Waits until the job has written a text.
    ///
    /// # Errors
    /// When it does not, or ends before.
    pub fn wait_for_output(&mut self, text: &str, limit: Duration) -> Result<(), Failure> {
        let seen = self.launcher.wait_for_output(text, limit);
        seen.map_err(|failure| self.ckptd.explain(&failure))
    }

    /// Waits until something is to be seen in the job's status. A coordinator that is away is waited for, too.
    ///
    /// # Errors
    /// When it is not, or `ckptd run` ends before.
    pub fn wait_for<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut look: impl FnMut(&Status) -> Option<T>,
    ) -> Result<T, Failure> {
        let mut last = None;
        let seen = until(&format!("{what} ({})", self.name), limit, || {
            let ended = self.launcher.ended()?;
            if let Ok(status) = self.status() {
                let seen = look(&status);
                last = Some(status);
                if seen.is_some() {
                    return Ok(seen);
                }
            }
            match ended {
                None => Ok(None),
                Some(status) => Err(Failure(format!("the job ended with {status} before {what}"))),
            }
        });
        seen.map_err(|failure| {
            let told = last.map_or("none".to_owned(), |status| status.text());
            self.explain(&Failure(format!("{failure}\n--- status\n{told}")))
        })
    }

    /// Waits until checkpoint number `number`, or a later one, is committed; its number.
    ///
    /// # Errors
    /// When none is.
    pub fn wait_for_checkpoint(&mut self, number: u64, limit: Duration) -> Result<u64, Failure> {
        self.wait_for(&format!("checkpoint {number} is committed"), limit, |status| {
            status.newest_checkpoint().filter(|newest| *newest >= number)
        })
    }

    /// Waits until so many more checkpoints are committed than there are now; the newest one's number.
    ///
    /// # Errors
    /// When they are not.
    pub fn wait_for_more_checkpoints(
        &mut self,
        count: u64,
        limit: Duration,
    ) -> Result<u64, Failure> {
        let newest = self.status()?.newest_checkpoint().unwrap_or(0);
        self.wait_for_checkpoint(newest + count, limit)
    }

    /// `ckptd checkpoint`, which must succeed; its number.
    ///
    /// # Errors
    /// When it is refused.
    pub fn checkpoint(&self) -> Result<u64, Failure> {
        let node = self.ckptd.coordinator_node();
        let output = node.run(&["ckptd", "checkpoint", &self.name], &[])?;
        let number = output.stdout.trim().parse().ok().filter(|_| output.status == 0);
        number.ok_or_else(|| {
            let errors = output.stderr.trim();
            self.explain(&Failure(format!("the checkpoint was refused: {errors}")))
        })
    }

    /// Waits until the job runs again after `number` rollbacks.
    ///
    /// # Errors
    /// When it does not.
    pub fn wait_for_rollback(&mut self, number: usize, limit: Duration) -> Result<(), Failure> {
        self.wait_for(&format!("rollback {number} is done"), limit, |status| {
            (status.completed_rollbacks() >= number).then_some(())
        })
    }

    /// Waits for the end of `ckptd run`: its exit status.
    ///
    /// # Errors
    /// When it does not come in time.
    pub fn wait(&mut self, limit: Duration) -> Result<i32, Failure> {
        self.launcher.wait(limit).map_err(|failure| self.ckptd.explain(&failure))
    }

    /// Waits for the end of the job, which must be exit status 0, with this line in its output.
    ///
    /// # Errors
    /// When it is another.
    pub fn must_end_with(&mut self, line: &str, limit: Duration) -> Result<(), Failure> {
        let status = self.wait(limit)?;
        if status != 0 {
            return Err(self.explain(&Failure(format!("the job ended with status {status}"))));
        }
        // A job that was rolled back may say it twice, but never another.
        if !self.output().lines().any(|written| written == line) {
            return Err(self.explain(&Failure(format!("the job never said \"{line}\""))));
        }
        Ok(())
    }

    /// A failure with what everybody said.
    pub fn explain(&self, failure: &Failure) -> Failure {
        self.ckptd.explain(&self.launcher.explain(failure))
    }
}
