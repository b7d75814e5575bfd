//! How a job on a cluster is kept.

use super::NodeName;
use super::baseline::Baseline;
use crate::launch::External;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// When checkpoints fall due.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interval {
    /// Every so many seconds; 0: only on demand.
    Seconds(f64),
    /// As long as its cost asks for.
    Auto,
}

/// What may be moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Each placement unit by itself.
    #[default]
    Process,
    /// All processes of a logical node together, with shared memory.
    Node,
}

/// What becomes of a departed node's daemons.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Daemons {
    /// They are restored on a survivor like any other process.
    #[default]
    Restore,
    /// Orphans fall back to the daemon of the node where they are now.
    Fallback,
}

/// On whose machines a job may run and have its images: whoever an agent runs as can read them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// Where the agent is the user's own.
    Own,
    /// There, and where it is root's, which runs the job as its user.
    #[default]
    Root,
    /// Also where it is another user's, who shares the machine: there the job runs as that user.
    Any,
}

/// How what a job's processes send each other goes from machine to machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// As they send it.
    #[default]
    Clear,
    /// Encrypted by the agents: the job is nowhere but on machines that do so.
    Encrypted,
}

impl Traffic {
    fn is_clear(&self) -> bool {
        *self == Self::Clear
    }
}

/// How a job is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSettings {
    /// Seconds between checkpoints.
    pub interval: Interval,
    /// Committed checkpoints kept.
    pub keep: u32,
    /// Places in which an image is durable before a commit.
    pub copies: u32,
    /// What is done about connections to outside.
    pub external: External,
    /// What may be moved.
    pub placement: Placement,
    /// What becomes of a departed node's daemons.
    pub daemons: Daemons,
    /// Consecutive rollbacks without a commit.
    pub max_restarts: u32,
    /// Whether connections that are made after a move find their peers.
    #[serde(default = "yes")]
    pub rewire_connect: bool,
    /// What the C library is held to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_baseline: Option<Baseline>,
    /// On whose machines it may be.
    #[serde(default)]
    pub trust: Trust,
    /// How its traffic goes between machines.
    #[serde(default, skip_serializing_if = "Traffic::is_clear")]
    pub traffic: Traffic,
    /// After every so many checkpoints a restart is rehearsed; 0: never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rehearse: u32,
    /// Numbers of processes pinned to nodes, for measuring.
    #[serde(default)]
    pub place: BTreeMap<NodeName, u32>,
}

fn yes() -> bool {
    true
}

// As serde calls it.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Default for JobSettings {
    fn default() -> Self {
        Self {
            interval: Interval::Seconds(30.0),
            keep: 2,
            copies: 2,
            external: External::Warn,
            placement: Placement::Process,
            daemons: Daemons::Restore,
            max_restarts: 10,
            rewire_connect: true,
            cpu_baseline: None,
            trust: Trust::default(),
            traffic: Traffic::default(),
            rehearse: 0,
            place: BTreeMap::new(),
        }
    }
}
