//! What is known of a job's move to other machines.

use crate::cluster::entry::Cause;
use crate::cluster::placement::Paces;
use protocol::cluster::NodeName;
use std::collections::BTreeMap;

/// How long a machine must have been slower or faster, in nanoseconds.
const STEADY: u64 = 2_000_000_000;
/// From one look whether a move pays to the next, at first.
const LOOK_AGAIN: u64 = 10_000_000_000;
/// Machines that are faster or slower than when the job was placed.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Altered {
    /// Since when.
    pub(in crate::cluster) since: BTreeMap<NodeName, u64>,
    /// Before that time nobody looks whether a move pays.
    pub(in crate::cluster) not_before: u64,
    /// How long not, the next time.
    pub(in crate::cluster) wait: u64,
}

impl Altered {
    /// Whether it is time to look if a move pays: this machine has been another one for a while.
    pub(in crate::cluster) fn is_steady(
        &mut self,
        node: &NodeName,
        changed: bool,
        now: u64,
    ) -> bool {
        if !changed {
            self.since.remove(node);
            return false;
        }
        let since = *self.since.entry(node.clone()).or_insert(now);
        now.saturating_sub(since) >= STEADY && now >= self.not_before
    }

    /// What does not pay now, or fails, may do so later; it is looked at less and less often.
    pub(in crate::cluster) fn look_later(&mut self, now: u64) {
        self.wait = self.wait.saturating_mul(2).max(LOOK_AGAIN);
        self.not_before = now.saturating_add(self.wait);
    }
}

/// What was found about a move, for listings.
#[derive(Debug)]
pub(in crate::cluster) struct Verdict {
    /// It is about machines that have become slower or faster, not about newcomers.
    pub(in crate::cluster) is_of_speeds: bool,
    pub(in crate::cluster) text: String,
}

/// What is known of a move of a job that runs, to newcomers or for machines' speeds.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Migration {
    /// Why the job is to be moved at its next checkpoint.
    pub(in crate::cluster) cause: Option<Cause>,
    pub(in crate::cluster) verdict: Option<Verdict>,
    /// How fast machines were when the job was last placed.
    pub(in crate::cluster) paces: Paces,
    pub(in crate::cluster) altered: Altered,
}

impl Migration {
    /// Why the job is to be moved at its next checkpoint, if it is.
    pub(in crate::cluster) fn cause(&self) -> Option<&Cause> {
        self.cause.as_ref()
    }

    /// The job is placed anew: an earlier decision is void.
    pub(in crate::cluster) fn withdraw(&mut self) {
        self.cause = None;
    }

    /// Whether a machine is faster or slower than when the job was placed.
    pub(in crate::cluster) fn is_altered(&self, node: &NodeName) -> bool {
        self.altered.since.contains_key(node)
    }

    /// What was found about newcomers, or else about machines' speeds.
    pub(in crate::cluster) fn verdict(&self, is_of_speeds: bool) -> Option<&str> {
        let verdict = self.verdict.as_ref().filter(|found| found.is_of_speeds == is_of_speeds);
        verdict.map(|verdict| verdict.text.as_str())
    }
}
