//! One checkpoint after the other, step by step.

use super::{JobMachine, Life, Waiter};
use crate::event::{Action, Notice, StepTimes, Time};
use crate::history::Entry;
use crate::settings::Limits;
use protocol::agent::{
    AgentCommand, AgentEvent, AgentId, CheckpointNumber, CommitRecord, ImageSummary, Step,
};
use protocol::control::{InFlight, Reply};
use std::collections::BTreeSet;

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

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taking {
    number: CheckpointNumber,
    step: Step,
    /// Agents whose answer to the step is still to come.
    awaited: BTreeSet<AgentId>,
    deadline: u64,
    began: Time,
    /// When the step began, ns.
    entered: u64,
    /// The steps before it.
    steps: StepTimes,
    taken_at_ms: u64,
    processes: u32,
    log_length: u64,
    pause_us: u64,
    bytes: u64,
    summary: ImageSummary,
    /// The record, once it has been handed to the log.
    record: Option<CommitRecord>,
    /// Whether the log has it.
    recorded: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Abandoning {
    number: CheckpointNumber,
    awaited: BTreeSet<AgentId>,
    repeat_at: u64,
    repeated: bool,
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

    pub(super) fn is_stuck(&self) -> bool {
        matches!(self, Phase::Abandoning(Abandoning { repeated: true, .. }))
    }

    pub(super) fn in_flight(&self, now: Time) -> Option<InFlight> {
        match self {
            Phase::Taking(taking) => Some(InFlight {
                checkpoint: taking.number,
                step: taking.step,
                age_ms: now.nanos.saturating_sub(taking.began.nanos) / 1_000_000,
                bytes: taking.bytes,
            }),
            _ => None,
        }
    }
}

fn limit(limits: &Limits, step: Step) -> u64 {
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

impl JobMachine {
    /// Begins a checkpoint; only when none is in flight.
    pub(super) fn begin(&mut self, now: Time, out: &mut Vec<Action>) {
        let number = self.history.next_number();
        self.append(Entry::Begun { checkpoint: number }, out);
        self.joined.append(&mut self.waiting);
        self.phase = Phase::Taking(Taking {
            number,
            step: Step::Freeze,
            awaited: self.agents.clone(),
            deadline: now.nanos.saturating_add(self.settings.limits.freeze),
            began: now,
            entered: now.nanos,
            steps: StepTimes::new(),
            taken_at_ms: now.unix_ms,
            processes: 0,
            log_length: 0,
            pause_us: 0,
            bytes: 0,
            summary: ImageSummary::default(),
            record: None,
            recorded: false,
        });
        self.tell_all(&AgentCommand::Freeze { checkpoint: number }, out);
    }

    pub(super) fn begin_if_waited_for(&mut self, now: Time, out: &mut Vec<Action>) {
        if !self.waiting.is_empty() && self.may_begin() {
            self.begin(now, out);
        }
    }

    /// An agent's report about a checkpoint. One that is late, repeated, or about another
    /// checkpoint or step changes nothing.
    pub(super) fn checkpoint_event(
        &mut self,
        now: Time,
        agent: AgentId,
        event: AgentEvent,
        out: &mut Vec<Action>,
    ) {
        match (&mut self.phase, event) {
            (Phase::Abandoning(abandoning), AgentEvent::Abandoned { checkpoint })
                if abandoning.number == checkpoint =>
            {
                abandoning.awaited.remove(&agent);
                if abandoning.awaited.is_empty() {
                    self.phase = Phase::Idle;
                    self.begin_if_waited_for(now, out);
                }
            }
            (Phase::Taking(taking), AgentEvent::Failed { checkpoint, step, reason })
                if taking.number == checkpoint =>
            {
                self.fail(now, step, reason, out);
            }
            (Phase::Taking(taking), AgentEvent::Progress { checkpoint, bytes })
                // Only what moves is progress.
                if taking.number == checkpoint
                    && taking.step == Step::Write
                    && bytes > taking.bytes =>
            {
                taking.bytes = bytes;
                taking.deadline = now.nanos.saturating_add(self.settings.limits.write);
            }
            (Phase::Taking(taking), event) => {
                let answered = taking.note(now, agent, event);
                if answered && taking.awaited.is_empty() {
                    self.next_step(now, out);
                }
            }
            _ => {}
        }
    }

    fn next_step(&mut self, now: Time, out: &mut Vec<Action>) {
        let Phase::Taking(taking) = &mut self.phase else { return };
        let checkpoint = taking.number;
        let (step, command) = match taking.step {
            Step::Freeze => {
                self.processes = Some(taking.processes);
                taking.enter(now, Step::Drain, &self.settings.limits, &BTreeSet::new());
                out.push(Action::DrainConsole { checkpoint });
                return;
            }
            Step::Drain => (Step::Quiesce, AgentCommand::Quiesce { checkpoint }),
            Step::Quiesce => (Step::Snapshot, AgentCommand::Snapshot { checkpoint }),
            Step::Snapshot => (Step::Resume, AgentCommand::Resume { checkpoint }),
            Step::Resume => (Step::Write, AgentCommand::Write { checkpoint }),
            Step::Write => return self.record(now, out),
            Step::Commit => return self.commit_done(now, out),
        };
        taking.enter(now, step, &self.settings.limits, &self.agents);
        self.tell_all(&command, out);
    }

    /// Every agent has written its part: hands the record to the log.
    fn record(&mut self, now: Time, out: &mut Vec<Action>) {
        let Phase::Taking(taking) = &mut self.phase else { return };
        let record = CommitRecord {
            format: CommitRecord::FORMAT,
            job: self.job.clone(),
            checkpoint: taking.number,
            restored_from: self.history.restored_from(),
            taken_at_ms: taking.taken_at_ms,
            committed_at_ms: now.unix_ms,
            pause_us: taking.pause_us,
            log_length: taking.log_length,
            copies: 1,
            degraded: self.settings.copies > 1,
            summary: taking.summary,
            agents: self.agents.iter().copied().collect(),
        };
        taking.enter(now, Step::Commit, &self.settings.limits, &BTreeSet::new());
        taking.record = Some(record.clone());
        // Not applied to the history before the log has it.
        out.push(Action::Append(Entry::Committed(record)));
    }

    /// The log has the record: from here on the checkpoint counts.
    pub(super) fn recorded(
        &mut self,
        now: Time,
        checkpoint: CheckpointNumber,
        out: &mut Vec<Action>,
    ) {
        let Phase::Taking(taking) = &mut self.phase else { return };
        if taking.number != checkpoint || taking.recorded {
            return;
        }
        let Some(record) = taking.record.clone() else { return };
        taking.recorded = true;
        taking.enter(now, Step::Commit, &self.settings.limits, &self.agents);
        self.history.apply(&Entry::Committed(record.clone()));
        self.tell_all(&AgentCommand::Commit { checkpoint, record }, out);
    }

    /// Every agent holds the mark: tells who waits, and gives older checkpoints up.
    fn commit_done(&mut self, now: Time, out: &mut Vec<Action>) {
        let kept = self.history.retained(self.settings.keep);
        let collected =
            self.history.committed().any(|(record, _)| !kept.contains(&record.checkpoint));
        if collected {
            self.append(Entry::Collected { kept: kept.clone() }, out);
        }
        self.tell_all(&AgentCommand::Collect { keep: kept }, out);
        self.announce(now, out);
    }

    fn announce(&mut self, now: Time, out: &mut Vec<Action>) {
        let Phase::Taking(taking) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            return;
        };
        let steps = taking.step_times(now);
        let Some(record) = taking.record else { return };
        let lasted = now.nanos.saturating_sub(taking.began.nanos);
        let interval = self.settings.interval.after(record.pause_us.saturating_mul(1000), lasted);
        if interval != self.interval {
            self.interval = interval;
            self.due = interval.map(|interval| now.nanos.saturating_add(interval));
        }
        out.push(Action::Notify(Notice::Committed { record: record.clone(), steps }));
        let mut stopping = Vec::new();
        for Waiter { ticket, then_stop } in std::mem::take(&mut self.joined) {
            if then_stop {
                stopping.push(ticket);
            } else {
                out.push(Action::Reply { ticket, reply: Reply::Committed(record.clone()) });
            }
        }
        for ticket in stopping {
            self.stop(now, ticket, out);
        }
        if let Life::Ended(status) = self.life {
            self.finish(now, status, out);
        } else {
            self.begin_if_waited_for(now, out);
        }
    }

    pub(super) fn drained(
        &mut self,
        now: Time,
        checkpoint: CheckpointNumber,
        log_length: u64,
        out: &mut Vec<Action>,
    ) {
        if let Phase::Taking(taking) = &mut self.phase {
            if taking.number == checkpoint && taking.step == Step::Drain {
                taking.log_length = log_length;
                self.next_step(now, out);
            }
        }
    }

    /// A failure on the coordinator's own side.
    pub(super) fn own_failure(
        &mut self,
        now: Time,
        checkpoint: CheckpointNumber,
        reason: String,
        out: &mut Vec<Action>,
    ) {
        if let Phase::Taking(taking) = &self.phase {
            if taking.number == checkpoint {
                let step = taking.step;
                self.fail(now, step, reason, out);
            }
        }
    }

    /// A step failed: the checkpoint is given up, unless the log has it already.
    fn fail(&mut self, now: Time, step: Step, reason: String, out: &mut Vec<Action>) {
        let Phase::Taking(taking) = &self.phase else { return };
        let checkpoint = taking.number;
        let steps = taking.step_times(now);
        if taking.recorded {
            out.push(Action::Notify(Notice::Warning(format!(
                "checkpoint {checkpoint} is committed, but its mark beside the image failed: \
                 {reason}"
            ))));
            // Nothing older is collected before a mark has succeeded.
            self.announce(now, out);
            return;
        }
        self.drop_checkpoint(out);
        self.append(Entry::Abandoned { checkpoint, reason: reason.clone() }, out);
        let text = format!("take checkpoint {checkpoint}: {step}: {reason}");
        for Waiter { ticket, .. } in std::mem::take(&mut self.joined) {
            out.push(Action::Reply { ticket, reply: Reply::Failed(text.clone()) });
        }
        out.push(Action::Notify(Notice::Abandoned { checkpoint, step, reason, steps }));
        if let Life::Ended(status) = self.life {
            self.finish(now, status, out);
            return;
        }
        self.phase = Phase::Abandoning(Abandoning {
            number: checkpoint,
            awaited: self.agents.clone(),
            repeat_at: now.nanos.saturating_add(self.settings.limits.abandon),
            repeated: false,
        });
    }

    /// Tells every agent to give up the checkpoint in flight, without waiting for it.
    pub(super) fn drop_checkpoint(&mut self, out: &mut Vec<Action>) {
        if let Phase::Taking(Taking { number, recorded: false, .. }) = self.phase {
            self.tell_all(&AgentCommand::Abandon { checkpoint: number }, out);
        }
        self.phase = Phase::Idle;
    }

    /// Whether a commit is under way that must be brought to its end before the job's own.
    pub(super) fn is_committing(&self) -> bool {
        matches!(self.phase, Phase::Taking(Taking { step: Step::Commit, .. }))
    }

    pub(super) fn check_limits(&mut self, now: Time, out: &mut Vec<Action>) {
        match &mut self.phase {
            Phase::Taking(taking) if now.nanos >= taking.deadline => {
                let step = taking.step;
                let allowed = limit(&self.settings.limits, step) / 1_000_000_000;
                let what = if step == Step::Write { "no progress for" } else { "no answer in" };
                self.fail(now, step, format!("{what} {allowed} s"), out);
            }
            Phase::Abandoning(abandoning) if now.nanos >= abandoning.repeat_at => {
                abandoning.repeat_at = now.nanos.saturating_add(self.settings.limits.abandon);
                let first = !std::mem::replace(&mut abandoning.repeated, true);
                let checkpoint = abandoning.number;
                let awaited = abandoning.awaited.clone();
                for agent in awaited {
                    let command = AgentCommand::Abandon { checkpoint };
                    out.push(Action::Tell { agent, command });
                }
                if first {
                    let text = format!("the agent has not let go of checkpoint {checkpoint} yet");
                    out.push(Action::Notify(Notice::Warning(text.clone())));
                    let text = format!("checkpoint the job: {text}");
                    for Waiter { ticket, .. } in std::mem::take(&mut self.waiting) {
                        out.push(Action::Reply { ticket, reply: Reply::Failed(text.clone()) });
                    }
                }
            }
            _ => {}
        }
    }
}

impl Taking {
    /// What each step has taken until now. A commit is one step, in the log and with the agents.
    fn step_times(&self, now: Time) -> StepTimes {
        let mut steps = self.steps.clone();
        let took = now.nanos.saturating_sub(self.entered);
        match steps.last_mut() {
            Some((last, time)) if *last == self.step => *time = time.saturating_add(took),
            _ => steps.push((self.step, took)),
        }
        steps
    }

    fn enter(&mut self, now: Time, step: Step, limits: &Limits, awaited: &BTreeSet<AgentId>) {
        self.steps = self.step_times(now);
        self.entered = now.nanos;
        self.step = step;
        self.awaited = awaited.clone();
        self.deadline = now.nanos.saturating_add(limit(limits, step));
    }

    /// Takes an agent's answer into account; false where it is not one that is awaited.
    fn note(&mut self, now: Time, agent: AgentId, event: AgentEvent) -> bool {
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
