//! What an agent reports of one of its instances.

use super::ends::{MovedListener, OuterSocket, RelaySide};
use super::orders::DamagedCopy;
use crate::agent::{AgentEvent, CheckpointNumber, ExitKind, InstanceEvent};
use crate::cluster::NodeName;
use crate::cluster::image::ImageFacts;
use serde::{Deserialize, Serialize};

/// Which stream of a job's console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stream {
    /// The terminal, or standard output.
    Output,
    /// Standard error.
    Error,
}

/// What is reported of an instance. Which one is said by the envelope, [`super::FromAgent::Instance`], so that whoever passes a
/// report on need not know what is in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceReport {
    /// What has happened to it, as its engine says it.
    Event(InstanceEvent),
    /// The instance runs.
    Launched {
        /// Its first process, as its logical node numbers it.
        root: i32,
    },
    /// The instance could not be started, prepared or restored; nothing of it is left.
    NotMade {
        /// One line.
        reason: String,
    },
    /// As `NotMade`, because copies of its image are damaged.
    Damaged {
        /// Which of them, and what each lacks.
        copies: Vec<DamagedCopy>,
        /// One line.
        reason: String,
    },
    /// Facts of an image that is about to be reported written, and where its copies are durable, this
    /// node included.
    Image {
        /// The checkpoint.
        checkpoint: CheckpointNumber,
        /// What it holds.
        facts: ImageFacts,
        /// Where it is.
        holders: Vec<NodeName>,
    },
    /// The image is here.
    Prepared {
        /// Its sockets whose peers are in other instances.
        sockets: Vec<OuterSocket>,
    },
    /// It is complete and stands still.
    Restored {
        /// Its sides of relays.
        relays: Vec<RelaySide>,
        /// Those among them out of which comes what processes here have written to a terminal or pipe.
        #[serde(default)]
        outputs: Vec<RelaySide>,
        /// Its listening TCP sockets.
        listeners: Vec<MovedListener>,
        /// Lines for the user.
        warnings: Vec<String>,
    },
    /// It runs.
    Running,
    /// A piece of the job's console: the body.
    Console {
        /// Bytes of this instance's console before it.
        offset: u64,
        /// Which stream.
        stream: Stream,
    },
    /// The console was empty, with the job standing still, after so many bytes.
    Drained {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// Bytes of this instance's console so far.
        offset: u64,
    },
    /// Input that has not reached the job, and does not while it stands still: the body, a piece of it.
    InputLeft {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// Whether the end of the input follows it.
        ended: bool,
    },
    /// A relay of this instance was lost, as when its agent died.
    RelaysLost {
        /// One line.
        reason: String,
    },
    /// Of an instance that was let go with [`super::Fallen`]: whether every process of it only waits, as ranks do
    /// that have come to their end and daemons that have nothing to do.
    Rest {
        /// Whether that is so now.
        waits: bool,
    },
    /// A process ended whose parent daemon has departed.
    OrphanEnded {
        /// Its number in its logical node.
        pid: i32,
        /// How.
        status: ExitKind,
    },
}

impl From<InstanceEvent> for InstanceReport {
    fn from(event: InstanceEvent) -> Self {
        Self::Event(event)
    }
}

impl From<AgentEvent> for InstanceReport {
    fn from(event: AgentEvent) -> Self {
        Self::Event(InstanceEvent::Agent(event))
    }
}
