//! Where a job's checkpoints stand.

use super::spans::Spans;
use crate::event::{Action, StepTimes, Time};
use crate::settings::Limits;
use protocol::agent::{
    AgentCommand, AgentEvent, CheckpointNumber, CommitRecord, ImageSummary, InstanceId, Step,
};
use protocol::control::InFlight;
use std::collections::{BTreeMap, BTreeSet};

/// Where the job's checkpoints stand.
#[derive(Debug, PartialEq, Eq)]
// One per job: the room that an idle one wastes is nothing.
#[allow(clippy::large_enum_variant)]
pub(super) enum Phase {
    /// None is in flight.
    Idle,
    /// One is being taken.
    Taking(Taking),
    /// One was given up, and some agents have not said yet that nothing is left of it.
    Abandoning(Abandoning),
}

impl Phase {
    /// The checkpoint that is being taken, for a step that is done only while there is one. Without one, the fault is
    /// our own: it is told, and the step left out.
    pub(super) fn taking(&mut self, step: &'static str) -> Option<&mut Taking> {
        match self {
            Self::Taking(taking) => Some(taking),
            Self::Idle | Self::Abandoning(_) => {
                crate::fault::tell(step, "a checkpoint");
                None
            }
        }
    }
}

impl Phase {
    /// Ends the taking of a checkpoint whose record the log has. Without one, the fault is our own: it is told.
    pub(super) fn take_committed(&mut self) -> Option<(Taking, CommitRecord)> {
        if let Self::Taking(taking) = std::mem::replace(self, Self::Idle) {
            if let (true, Some(record)) = (taking.recorded, taking.record.clone()) {
                return Some((taking, record));
            }
        }
        crate::fault::tell("announce a commit", "a checkpoint that the log has");
        None
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taking {
    pub(super) number: CheckpointNumber,
    pub(super) step: Step,
    /// Agents that take part: those that the job had when it was begun.
    pub(super) agents: BTreeSet<InstanceId>,
    /// Places in which their images are durable, where they have told.
    pub(super) copies: BTreeMap<InstanceId, u32>,
    /// Agents whose answer to the step is still to come.
    pub(super) awaited: BTreeSet<InstanceId>,
    pub(super) deadline: u64,
    pub(super) began: Time,
    /// When the step began, ns.
    pub(super) entered: u64,
    /// The steps before it.
    pub(super) steps: StepTimes,
    pub(super) taken_at_ms: u64,
    pub(super) processes: u32,
    pub(super) log_length: u64,
    pub(super) pause_us: u64,
    /// Bytes that each agent has dealt with in this step, as far as it has told.
    pub(super) progress: BTreeMap<InstanceId, u64>,
    /// What agents said that they are doing in this step.
    pub(super) doing: BTreeMap<InstanceId, String>,
    pub(super) summary: ImageSummary,
    /// The record, once it has been handed to the log.
    pub(super) record: Option<CommitRecord>,
    /// Whether the log has it.
    pub(super) recorded: bool,
    /// Whether the job is not let go, since it is to go on elsewhere.
    pub(super) parks: bool,
    pub(super) spans: Spans,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Abandoning {
    pub(super) number: CheckpointNumber,
    pub(super) awaited: BTreeSet<InstanceId>,
    pub(super) repeat_at: u64,
    pub(super) repeated: bool,
}

impl Phase {
    pub(super) fn deadline(&self) -> Option<u64> {
        match self {
            Phase::Idle => None,
            Phase::Taking(taking) => Some(taking.deadline),
            Phase::Abandoning(abandoning) => Some(abandoning.repeat_at),
        }
    }

    pub(super) fn is_before_frozen(&self) -> bool {
        matches!(self, Phase::Taking(Taking { step: Step::Freeze, .. }))
    }

    pub(super) fn is_pausing(&self) -> bool {
        matches!(self, Phase::Taking(taking) if taking.step < Step::Write || taking.parks)
    }

    pub(super) fn takes_from(&self, agent: InstanceId) -> bool {
        matches!(self, Phase::Taking(taking) if taking.agents.contains(&agent))
    }

    pub(super) fn is_parking(&self) -> bool {
        matches!(self, Phase::Taking(Taking { parks: true, .. }))
    }

    /// The job is not let go, unless it is too late for that: its streams are drained otherwise.
    pub(super) fn park(&mut self) {
        match self {
            Phase::Taking(taking) if taking.step < Step::Drain => taking.parks = true,
            _ => {}
        }
    }

    pub(super) fn is_stuck(&self) -> bool {
        matches!(self, Phase::Abandoning(Abandoning { repeated: true, .. }))
    }

    pub(super) fn in_flight(&self, now: Time) -> Option<InFlight> {
        match self {
            Phase::Taking(taking) => Some(InFlight {
                checkpoint: taking.number,
                step: taking.step,
                age_ms: now.nanos.saturating_sub(taking.began.nanos) / 1_000_000,
                bytes: taking.progress.values().fold(0, |sum, bytes| sum.saturating_add(*bytes)),
            }),
            _ => None,
        }
    }
}

/// Tells these agents the same.
pub(super) fn tell(agents: &BTreeSet<InstanceId>, command: &AgentCommand, out: &mut Vec<Action>) {
    for agent in agents {
        out.push(Action::Tell { agent: *agent, command: command.clone() });
    }
}

/// How long a step may take, in nanoseconds.
pub(super) fn limit(limits: &Limits, step: Step) -> u64 {
    match step {
        Step::Freeze => limits.freeze,
        Step::Drain => limits.drain,
        Step::Quiesce => limits.quiesce,
        Step::Snapshot => limits.snapshot,
        Step::Resume => limits.resume,
        Step::Write => limits.write,
        Step::Commit => limits.commit,
    }
}

impl Taking {
    /// How long the job has stood still, in microseconds: from the end of the freeze, which is when it was
    /// taken.
    pub(super) fn stood_us(&self, now: Time) -> u64 {
        let frozen = self.steps.first().map_or(0, |(_, took)| *took);
        now.nanos.saturating_sub(self.began.nanos.saturating_add(frozen)) / 1000
    }

    /// What each step has taken until now. A commit is one step, in the log and with the agents.
    pub(super) fn step_times(&self, now: Time) -> StepTimes {
        let mut steps = self.steps.clone();
        let took = now.nanos.saturating_sub(self.entered);
        match steps.last_mut() {
            Some((last, time)) if *last == self.step => *time = time.saturating_add(took),
            _ => steps.push((self.step, took)),
        }
        steps
    }

    pub(super) fn enter(
        &mut self,
        now: Time,
        step: Step,
        limits: &Limits,
        awaited: &BTreeSet<InstanceId>,
    ) {
        if step != self.step {
            self.spans.enter(step);
        }
        self.steps = self.step_times(now);
        self.entered = now.nanos;
        self.step = step;
        self.awaited = awaited.clone();
        self.progress.clear();
        self.doing.clear();
        self.deadline = now.nanos.saturating_add(limit(limits, step));
    }

    /// Who has not answered, and what they said last: for the reason of a step that has taken too long.
    pub(super) fn awaited_in_words(&self) -> String {
        let names = |instance: &InstanceId| match self.agents.len() {
            // There is nobody else whom it could be.
            0 | 1 => "the agent".to_owned(),
            _ => format!("instance {}", instance.0),
        };
        let Some(first) = self.awaited.iter().find(|agent| self.doing.contains_key(agent)) else {
            let first = self.awaited.first().map(names).unwrap_or_default();
            return match self.awaited.len() {
                0 if self.step == Step::Drain => " from the job's streams".to_owned(),
                0 => " from the log on disk".to_owned(),
                1 => format!(" from {first}"),
                count => {
                    format!(" from {count} of {} instances, {first} among them", self.agents.len())
                }
            };
        };
        let doing = self.doing.get(first).map_or("", String::as_str);
        format!(" from {} (last: {doing})", names(first))
    }

    /// What the agents have been told for the step that is under way.
    pub(super) fn command(&self) -> Option<AgentCommand> {
        let checkpoint = self.number;
        match (self.step, &self.record) {
            (Step::Freeze, _) => Some(AgentCommand::Freeze { checkpoint }),
            (Step::Quiesce, _) => Some(AgentCommand::Quiesce { checkpoint }),
            (Step::Snapshot, _) => Some(AgentCommand::Snapshot { checkpoint }),
            (Step::Resume, _) => Some(AgentCommand::Resume { checkpoint }),
            (Step::Write, _) => Some(AgentCommand::Write { checkpoint }),
            (Step::Commit, Some(record)) => {
                Some(AgentCommand::Commit { checkpoint, record: record.clone() })
            }
            (Step::Drain | Step::Commit, _) => None,
        }
    }

    /// Takes an agent's answer into account; false where it is not one that is awaited.
    pub(super) fn note(&mut self, now: Time, agent: InstanceId, event: AgentEvent) -> bool {
        let (step, number) = match &event {
            AgentEvent::Frozen { checkpoint, .. } => (Step::Freeze, *checkpoint),
            AgentEvent::Quiesced { checkpoint } => (Step::Quiesce, *checkpoint),
            AgentEvent::SnapshotTaken { checkpoint } => (Step::Snapshot, *checkpoint),
            AgentEvent::Resumed { checkpoint, .. } => (Step::Resume, *checkpoint),
            AgentEvent::Written { checkpoint, .. } => (Step::Write, *checkpoint),
            AgentEvent::Committed { checkpoint } => (Step::Commit, *checkpoint),
            _ => return false,
        };
        let awaited = self.number == number && self.step == step && self.awaited.remove(&agent);
        if !awaited {
            return false;
        }
        match event {
            AgentEvent::Frozen { processes, .. } => {
                self.processes = self.processes.saturating_add(processes);
                self.taken_at_ms = now.unix_ms;
            }
            AgentEvent::Resumed { pause_us, .. } => self.pause_us = self.pause_us.max(pause_us),
            AgentEvent::Written { summary, .. } => self.summary.add(&summary),
            _ => {}
        }
        true
    }
}
