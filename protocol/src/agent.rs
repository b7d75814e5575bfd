//! The narrow interface of an agent: commands to it, events from it.
//!
//! One checkpoint is a sequence of commands, each sent after the event of the one before:
//!
//! ```text
//! Freeze -> Frozen -> Quiesce -> Quiesced -> Snapshot -> SnapshotTaken -> Resume -> Resumed
//!        -> Write -> Progress* -> Written -> Commit -> Committed -> Collect
//! ```
//!
//! A job that is to go on elsewhere is not let go: `Resume` is left out, and it stands still from `Freeze`
//! until it is killed. `Abandon` lets it go on where it is, also after `Commit`.
//!
//! At any point the agent may answer `Failed` instead: it has then already let the job run again.
//! `Abandon` may be sent at any point before `Commit`; the agent lets the job run if it stands
//! still, discards what it has of that checkpoint and answers `Abandoned`, also when it never
//! heard of the checkpoint. Commands are idempotent: a repeated one is answered again.

use crate::cluster::agent::MovedListener;
use crate::compact::AgentSet;
use serde::{Deserialize, Serialize};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// A checkpoint's number: it grows by one at each attempt in the life of a job, is never used
/// twice, and starts at 1.
pub type CheckpointNumber = u64;

/// The number of an instance: a part of a job that one agent holds.
///
/// A job without a cluster has one, [`InstanceId::EMBEDDED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(pub u32);

impl InstanceId {
    /// The only instance of a job without a cluster.
    pub const EMBEDDED: InstanceId = InstanceId(0);
}

/// What an agent is told to do with the one job that it was started for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "kebab-case")]
pub enum AgentCommand {
    /// Stop every thread of the job. Answer: [`AgentEvent::Frozen`].
    Freeze {
        /// The checkpoint that begins with it.
        checkpoint: CheckpointNumber,
    },
    /// Bring the job's connections to rest. Answer: [`AgentEvent::Quiesced`].
    Quiesce {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
    },
    /// Record kernel objects and take the copy-on-write copies. Answer:
    /// [`AgentEvent::SnapshotTaken`].
    Snapshot {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
    },
    /// Let the job run. Answer: [`AgentEvent::Resumed`].
    Resume {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
    },
    /// Write the image until it is durable. Answer: any number of [`AgentEvent::Progress`], then
    /// [`AgentEvent::Written`].
    Write {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
    },
    /// The commit record is in the coordinator's log: put its copy beside the image. Answer:
    /// [`AgentEvent::Committed`].
    Commit {
        /// The checkpoint that is now committed.
        checkpoint: CheckpointNumber,
        /// What the log says of it.
        record: CommitRecord,
    },
    /// Remove every checkpoint of the job that is not named, and what only they needed. No
    /// answer; trouble is reported as [`AgentEvent::Warning`].
    Collect {
        /// The checkpoints that stay, in rising order; never empty.
        keep: Vec<CheckpointNumber>,
    },
    /// Let the job run if it stands still, and discard the checkpoint. Answer:
    /// [`AgentEvent::Abandoned`].
    Abandon {
        /// The checkpoint given up.
        checkpoint: CheckpointNumber,
    },
    /// Send a signal, as a terminal or `kill -- -PGID` would, to the process group of the job's
    /// first process.
    Signal {
        /// The signal's number on this machine.
        signal: i32,
    },
    /// Send a signal to the job's first process alone, as somebody has sent it to the one who stands for it: the
    /// job decides what it means, and what its children get to know of it.
    Forward {
        /// The signal's number on this machine, a real-time signal's too.
        signal: i32,
    },
    /// End every process of the job at once. [`AgentEvent::Ended`] follows.
    Kill,
}
crate::tagged!(AgentCommand, "command");

/// The steps of a checkpoint that may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Stopping all threads.
    Freeze,
    /// Emptying the job's streams into its log, while it stands still.
    Drain,
    /// Bringing the connections to rest.
    Quiesce,
    /// Recording objects and memory.
    Snapshot,
    /// Letting the job run again.
    Resume,
    /// Making the image durable.
    Write,
    /// Recording the commit.
    Commit,
}

impl Step {
    /// The step's name as it is shown to the user.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Step::Freeze => "freeze",
            Step::Drain => "drain",
            Step::Quiesce => "quiesce",
            Step::Snapshot => "snapshot",
            Step::Resume => "resume",
            Step::Write => "write",
            Step::Commit => "commit",
        }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What an agent reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "kebab-case")]
pub enum AgentEvent {
    /// All threads of the job stand still.
    Frozen {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// Processes that were stopped.
        processes: u32,
        /// Threads that were stopped, in all of them.
        threads: u32,
    },
    /// No bytes are under way on a connection inside of the job.
    Quiesced {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
    },
    /// All that the image needs is held apart from the job.
    SnapshotTaken {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
    },
    /// The job runs again.
    Resumed {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// How long the job stood still, in microseconds.
        pause_us: u64,
    },
    /// The step goes on: sent at least every ten seconds while a write does, or the copying of files and shared memory
    /// in a quiesce or a snapshot.
    Progress {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// Bytes dealt with so far, before compression.
        bytes: u64,
    },
    /// What a step that takes long is doing: for the reason, should it not end. It says nothing about progress.
    Doing {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// In words that follow "last: ".
        doing: String,
    },
    /// The image is durable.
    Written {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// What was written.
        summary: ImageSummary,
    },
    /// The commit record's copy is durable beside the image.
    Committed {
        /// The checkpoint.
        checkpoint: CheckpointNumber,
    },
    /// A step failed. The job has been let go already.
    Failed {
        /// The checkpoint in flight.
        checkpoint: CheckpointNumber,
        /// The step that failed.
        step: Step,
        /// Why, in one line that names the process or connection and the way out.
        reason: String,
        /// Whether the same checkpoint may well succeed a moment later: to be tried again as a whole.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        passing: bool,
    },
    /// The job runs and nothing is left of the checkpoint.
    Abandoned {
        /// The checkpoint given up.
        checkpoint: CheckpointNumber,
    },
    /// Something that the user should know and that stops nothing.
    Warning {
        /// One line.
        text: String,
    },
    /// The job has ended or is out of reach, and nobody can tell how it ended: one that was adopted, or whose memory could not
    /// be filled.
    Lost {
        /// Why, in one line.
        reason: String,
    },
    /// The job's first process ended, and with it every other process of the job but of one that was adopted.
    Ended {
        /// How.
        status: ExitKind,
    },
}
crate::tagged!(AgentEvent, "event");

/// What happens to an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceEvent {
    /// A step of a checkpoint, a warning, or the end of it all. [`AgentEvent::Ended`] comes when the first
    /// process of the root instance has ended and nothing else is left, or when the init itself was
    /// killed.
    Agent(AgentEvent),
    /// The first process of an instance that is not the root has ended.
    RootEnded(ExitKind),
    /// No process is left in an instance that is not the root.
    Empty,
    /// There is one more listening socket of which others must know: all of them.
    Listens(Vec<MovedListener>),
}

impl From<AgentEvent> for InstanceEvent {
    fn from(event: AgentEvent) -> Self {
        Self::Agent(event)
    }
}

/// What a checkpoint's image holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSummary {
    /// Processes.
    pub processes: u32,
    /// Bytes of memory and file contents, before compression.
    pub bytes: u64,
    /// Bytes that this checkpoint added to the store.
    pub stored_bytes: u64,
    /// Open files, by open file description.
    pub files: u32,
    /// Connections, counted once for both ends.
    pub connections: u32,
}

impl ImageSummary {
    /// Adds another agent's share of the same checkpoint.
    pub fn add(&mut self, other: &ImageSummary) {
        self.processes = self.processes.saturating_add(other.processes);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.stored_bytes = self.stored_bytes.saturating_add(other.stored_bytes);
        self.files = self.files.saturating_add(other.files);
        self.connections = self.connections.saturating_add(other.connections);
    }
}

/// The record of one committed checkpoint: in the coordinator's log, and as the content of the
/// file COMMITTED beside the image, from which a lost log is rebuilt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitRecord {
    /// Version of this record, [`CommitRecord::FORMAT`].
    pub format: u32,
    /// The job's id.
    pub job: String,
    /// The checkpoint's number.
    pub checkpoint: CheckpointNumber,
    /// The checkpoint that the job was last restored from when it took this one, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_from: Option<CheckpointNumber>,
    /// When the job stood still for it, in milliseconds since 1970 UTC.
    pub taken_at_ms: u64,
    /// When it was committed, in milliseconds since 1970 UTC.
    pub committed_at_ms: u64,
    /// The longest pause of any agent, in microseconds.
    pub pause_us: u64,
    /// Length of the job's log when it stood still, in bytes.
    pub log_length: u64,
    /// Places in which the image is durable.
    pub copies: u32,
    /// Whether these are fewer than were asked for.
    #[serde(default)]
    pub degraded: bool,
    /// Whether the user had stopped the job: restarted from here, it is let go on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// What the image holds, over all agents.
    pub summary: ImageSummary,
    /// The agents that wrote parts of it.
    pub agents: AgentSet,
}

impl CommitRecord {
    /// The version that this build writes.
    pub const FORMAT: u32 = 1;
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitKind {
    /// By exit(2), with this status.
    Exited(u8),
    /// By this signal.
    Signalled(i32),
}

impl From<ExitStatus> for ExitKind {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => ExitKind::Exited(u8::try_from(code).unwrap_or(255)),
            (None, signal) => ExitKind::Signalled(signal.unwrap_or(9)),
        }
    }
}

impl ExitKind {
    /// The exit status by which a shell would report it: 128+N for signal N.
    #[must_use]
    pub fn shell_status(self) -> u8 {
        match self {
            ExitKind::Exited(status) => status,
            ExitKind::Signalled(signal) => {
                u8::try_from(signal.clamp(0, 127)).map_or(255, |signal| 128 + signal)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_status_of_signals() {
        assert_eq!(ExitKind::Exited(3).shell_status(), 3);
        assert_eq!(ExitKind::Signalled(9).shell_status(), 137);
        assert_eq!(ExitKind::Signalled(-1).shell_status(), 128);
        assert_eq!(ExitKind::Signalled(1000).shell_status(), 255);
    }

    #[test]
    fn the_wire_form_is_stable() {
        let event = AgentEvent::Failed {
            checkpoint: 7,
            step: Step::Freeze,
            reason: "slow".into(),
            passing: false,
        };
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(text, r#"{"event":"failed","checkpoint":7,"step":"freeze","reason":"slow"}"#);
        assert_eq!(serde_json::from_str::<AgentEvent>(&text).unwrap(), event);
        let ended = AgentEvent::Ended { status: ExitKind::Signalled(9) };
        let text = serde_json::to_string(&ended).unwrap();
        assert_eq!(text, r#"{"event":"ended","status":{"signalled":9}}"#);
    }
}
