//! Where tasks run: on this machine, or on those of a cluster.

use super::away::{Away, Came};
use super::keeping::{Jobs, Keeper, how};
use super::products;
use super::{Message, Worker};
use crate::cli::CheckpointSetting;
use crate::farm::tasks::Tasks;
use crate::farm::{FarmError, FarmFolder};
use ckptd_farm::{Attempt, Event, Found, How, Task};
use nix::sys::signal::Signal;
use protocol::cluster::settings::Interval;
use std::io;
use tokio::sync::mpsc::UnboundedSender;

/// Where tasks run.
#[derive(Debug)]
pub enum Hosts {
    /// Here, as processes; those that take long become jobs.
    Here(Jobs),
    /// On machines of a cluster, each as a job.
    Away(Away),
}

impl Hosts {
    /// Of a run.
    ///
    /// # Errors
    /// Where they can't be had.
    pub fn of(folder: &FarmFolder) -> Result<Self, FarmError> {
        let settings = &folder.record().settings;
        let checkpoint = settings.checkpoint.unwrap_or(CheckpointSetting::Auto);
        if !settings.cluster {
            let jobs = Jobs::of(folder, checkpoint.interval());
            return jobs.map(Self::Here).map_err(FarmError::io("create", folder.said()));
        }
        let interval = match checkpoint {
            CheckpointSetting::Auto => Interval::Auto,
            CheckpointSetting::None => Interval::Seconds(0.0),
            CheckpointSetting::Seconds(seconds) => Interval::Seconds(seconds),
        };
        Ok(Self::Away(Away::of(folder, interval)?))
    }

    /// Whether tasks run on a cluster.
    pub fn are_away(&self) -> bool {
        matches!(self, Self::Away(_))
    }

    /// What earlier parts of the run have left.
    ///
    /// # Errors
    /// Where that can't be known.
    pub fn found(&self, tasks: &Tasks, folder: &FarmFolder) -> Result<Vec<Found>, FarmError> {
        let working = &folder.record().working_directory;
        match self {
            Self::Here(jobs) => Ok(jobs.found(|task| products::are_there(tasks, task, working))?),
            Self::Away(away) => away.found(),
        }
    }

    /// Asks for a last checkpoint of a task, and for its end then. The answer comes as a message.
    ///
    /// # Errors
    /// Where there can't be another thread.
    pub fn save(
        &self,
        task: Task,
        keeper: &Keeper,
        tell: UnboundedSender<Message>,
    ) -> io::Result<()> {
        match self {
            Self::Here(jobs) => jobs.save(task, keeper, tell),
            Self::Away(away) => away.save(task, keeper.attempt, tell),
        }
    }

    /// Waits, for a while, until all is removed that was to be.
    pub fn finish(&mut self) {
        if let Self::Away(away) = self {
            away.finish();
        }
    }

    /// Has the job of a task's try removed.
    pub fn forget(&self, task: Task, attempt: Attempt) {
        match self {
            Self::Here(jobs) => jobs.forget(task, attempt),
            Self::Away(away) => away.forget(task, attempt),
        }
    }
}

/// Has the jobs removed that tasks of a run have on a cluster; those that run are ended. The caller has the run's lock.
///
/// # Errors
/// Where the cluster does not answer.
pub fn remove_jobs(folder: &FarmFolder) -> Result<(), FarmError> {
    if let Hosts::Away(mut away) = Hosts::of(folder)? {
        for Found { task, attempt, .. } in away.found()? {
            away.forget(task, attempt);
        }
        away.finish();
    }
    Ok(())
}

impl Worker {
    /// The errand of a task has ended.
    pub(super) fn errand_ended(&mut self, task: Task, by: How) {
        let Some(live) = self.live.remove(&task) else { return };
        let Some(mut keeper) = self.keepers.remove(&task) else { return };
        keeper.ended();
        let said = keeper.heard();
        let came = match &self.hosts {
            Hosts::Away(away) => away.came(task, live.attempt),
            Hosts::Here(_) => None,
        };
        match came {
            Some(Came::Ended(end)) => {
                let how = self.judged(task, how(end));
                self.feed(Event::Ended(task, how));
            }
            Some(Came::Stuck(reason)) => {
                self.progress.say(&format!("task {} could not be kept running: {reason}", task.0));
                self.not_restored(task, &reason);
            }
            Some(Came::Asked) => {
                let way = "'ckptd farm cancel' or 'ckptd farm stop' ends it for good";
                if !self.farm.is_ending() {
                    let text = "was stopped by somebody else, and goes on";
                    self.progress.warn(&format!("task {} {text}; {way}", task.0));
                }
                self.feed(Event::NotNow(task));
            }
            Some(Came::NotNow(reason)) => {
                let text =
                    "tasks can't be begun on the cluster at the moment, which is tried again";
                self.progress.warn(&format!("{text}: {reason}"));
                self.feed(Event::NotNow(task));
            }
            // Somebody has killed it; its job is not its own to decide about.
            None if live.killed => {
                self.feed(Event::Ended(task, How::Signalled(Signal::SIGKILL as i32)));
            }
            None => {
                let reason = said.last().cloned().unwrap_or_else(|| format!("it has {by:?}"));
                self.progress.warn(&format!(
                    "what looks after task {} on the cluster has ended, and is begun again: {reason}",
                    task.0
                ));
                self.feed(Event::NotNow(task));
            }
        }
    }
}
