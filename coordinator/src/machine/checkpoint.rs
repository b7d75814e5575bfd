//! One checkpoint after the other, step by step.

use super::{JobMachine, Life, Waiter};
use crate::event::{Action, Notice, StepTimes, Time};
use crate::history::Entry;
use crate::settings::Limits;
use protocol::agent::{
    AgentCommand, AgentEvent, AgentId, CheckpointNumber, CommitRecord, ImageSummary, Step,
};
use protocol::cluster::tree::TreeSum;
use protocol::control::{InFlight, Reply};
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

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taking {
    number: CheckpointNumber,
    step: Step,
    /// Agents that take part: those that the job had when it was begun.
    agents: BTreeSet<AgentId>,
    /// Places in which their images are durable, where they have told.
    copies: BTreeMap<AgentId, u32>,
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
    /// Whether the job is not let go, since it is to go on elsewhere.
    parks: bool,
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

    pub(super) fn is_pausing(&self) -> bool {
        matches!(self, Phase::Taking(taking) if taking.step < Step::Write || taking.parks)
    }

    pub(super) fn takes_from(&self, agent: AgentId) -> bool {
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
                bytes: taking.bytes,
            }),
            _ => None,
        }
    }
}

/// How often a checkpoint that failed for a passing reason is tried again at once.
const MOST_ATTEMPTS: u32 = 5;
/// From the first failure to the next attempt, in nanoseconds; later ones wait longer.
const FIRST_PAUSE: u64 = 20_000_000;

fn tell(agents: &BTreeSet<AgentId>, command: &AgentCommand, out: &mut Vec<Action>) {
    for agent in agents {
        out.push(Action::Tell { agent: *agent, command: command.clone() });
    }
}

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

impl JobMachine {
    /// Begins a checkpoint; only when none is in flight.
    pub(super) fn begin(&mut self, now: Time, out: &mut Vec<Action>) {
        let number = self.history.next_number();
        self.append(Entry::Begun { checkpoint: number }, out);
        self.joined.append(&mut self.waiting);
        self.retry_at = None;
        self.phase = Phase::Taking(Taking {
            number,
            step: Step::Freeze,
            agents: self.agents.clone(),
            copies: BTreeMap::new(),
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
            parks: (self.park || self.parks_next)
                && !self.joined.iter().any(|waiter| waiter.then_stop),
        });
        self.tell_all(&AgentCommand::Freeze { checkpoint: number }, out);
    }

    pub(super) fn begin_if_waited_for(&mut self, now: Time, out: &mut Vec<Action>) {
        let wanted = self.park || !self.waiting.is_empty();
        if wanted && self.retry_at.is_none() && self.may_begin() {
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
            (Phase::Taking(_), AgentEvent::Failed { checkpoint, step, reason, passing }) => {
                self.one_failed(now, checkpoint, step, reason, passing, out);
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

    /// A step of the checkpoint in flight failed somewhere.
    pub(super) fn one_failed(
        &mut self,
        now: Time,
        checkpoint: CheckpointNumber,
        step: Step,
        reason: String,
        passing: bool,
        out: &mut Vec<Action>,
    ) {
        let Phase::Taking(taking) = &self.phase else { return };
        if taking.number != checkpoint {
            return;
        }
        if passing && !taking.recorded && self.attempts < MOST_ATTEMPTS {
            self.try_again(now, reason, out);
        } else {
            self.fail(now, step, reason, out);
        }
    }

    /// All who were told the step have done it.
    pub(super) fn all_answered(
        &mut self,
        now: Time,
        checkpoint: CheckpointNumber,
        step: Step,
        sum: &TreeSum,
        out: &mut Vec<Action>,
    ) {
        let Phase::Taking(taking) = &mut self.phase else { return };
        if taking.number != checkpoint || taking.step != step || taking.awaited.is_empty() {
            return;
        }
        taking.awaited.clear();
        match step {
            Step::Freeze => {
                taking.processes = taking.processes.saturating_add(sum.processes);
                taking.taken_at_ms = now.unix_ms;
            }
            Step::Resume => taking.pause_us = taking.pause_us.max(sum.pause_us),
            _ => {}
        }
        self.next_step(now, out);
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
            Step::Snapshot if taking.parks => (Step::Write, AgentCommand::Write { checkpoint }),
            Step::Snapshot => (Step::Resume, AgentCommand::Resume { checkpoint }),
            Step::Resume => (Step::Write, AgentCommand::Write { checkpoint }),
            Step::Write => return self.record(now, out),
            Step::Commit => return self.commit_done(now, out),
        };
        let agents = taking.agents.clone();
        taking.enter(now, step, &self.settings.limits, &agents);
        tell(&agents, &command, out);
    }

    /// Every agent has written its part: hands the record to the log.
    fn record(&mut self, now: Time, out: &mut Vec<Action>) {
        let Phase::Taking(taking) = &mut self.phase else { return };
        let copies = |agent| taking.copies.get(agent).copied().unwrap_or(1);
        let copies = taking.agents.iter().map(copies).min().unwrap_or(1);
        let record = CommitRecord {
            format: CommitRecord::FORMAT,
            job: self.job.clone(),
            checkpoint: taking.number,
            restored_from: self.history.restored_from(),
            taken_at_ms: taking.taken_at_ms,
            committed_at_ms: now.unix_ms,
            pause_us: if taking.parks { taking.stood_us(now) } else { taking.pause_us },
            log_length: taking.log_length,
            copies,
            degraded: copies < self.settings.copies,
            summary: taking.summary,
            agents: taking.agents.iter().copied().collect(),
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
        let agents = taking.agents.clone();
        taking.enter(now, Step::Commit, &self.settings.limits, &agents);
        self.attempts = 0;
        self.history.apply(&Entry::Committed(record.clone()));
        tell(&agents, &AgentCommand::Commit { checkpoint, record }, out);
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
        let pause = record.pause_us.saturating_mul(1000);
        if let Some(chosen) = self.settings.interval.choose(pause, lasted, self.departures) {
            self.chosen = Some(chosen);
            self.interval = Some(chosen.interval_ns);
            self.due = Some(now.nanos.saturating_add(chosen.interval_ns));
        }
        let checkpoint = record.checkpoint;
        out.push(Action::Notify(Notice::Committed { record: record.clone(), steps }));
        let mut stopping = Vec::new();
        for Waiter { ticket, then_stop } in std::mem::take(&mut self.joined) {
            if then_stop {
                stopping.push(ticket);
            } else {
                out.push(Action::Reply { ticket, reply: Reply::Committed(record.clone()) });
            }
        }
        let ends = !stopping.is_empty() || self.ending.is_some();
        if taking.parks {
            self.park = false;
            self.parks_next = false;
            if self.life != Life::Running {
                // What is left of it stands; nobody waits for an answer.
                tell(&taking.agents, &AgentCommand::Abandon { checkpoint }, out);
            } else if ends {
                // It ends where it is.
                self.give_up_parked(now, checkpoint, taking.agents, out);
            } else {
                // Whatever else was wanted is wanted of what comes after it.
                self.held = true;
                out.push(Action::Parked { checkpoint });
                return;
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

    /// Lets a job go on where it is that was to go on elsewhere; its checkpoint stays.
    fn give_up_parked(
        &mut self,
        now: Time,
        checkpoint: CheckpointNumber,
        agents: BTreeSet<AgentId>,
        out: &mut Vec<Action>,
    ) {
        tell(&agents, &AgentCommand::Abandon { checkpoint }, out);
        self.give_up(now, checkpoint, agents);
    }

    pub(super) fn park(&mut self, now: Time, out: &mut Vec<Action>) {
        let stops = self.joined.iter().chain(&self.waiting).any(|waiter| waiter.then_stop);
        if self.life == Life::Running && self.ending.is_none() && !stops {
            self.park = true;
            self.phase.park();
            self.begin_if_waited_for(now, out);
        }
    }

    /// A signal is to reach the job: it is not kept standing for a move.
    pub(super) fn unpark(&mut self, now: Time, out: &mut Vec<Action>) {
        self.park = false;
        if let Phase::Taking(Taking { parks: true, recorded: false, step, .. }) = &self.phase {
            let step = *step;
            self.fail(now, step, "the job is being ended".to_owned(), out);
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
        let agents = taking.agents.clone();
        self.attempts = 0;
        self.park = false;
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
        self.give_up(now, checkpoint, agents);
    }

    /// Waits until these agents have let go of a checkpoint.
    fn give_up(&mut self, now: Time, number: CheckpointNumber, awaited: BTreeSet<AgentId>) {
        self.phase = Phase::Abandoning(Abandoning {
            number,
            awaited,
            repeat_at: now.nanos.saturating_add(self.settings.limits.abandon),
            repeated: false,
        });
    }

    /// A step failed for a reason that passes: the whole checkpoint is taken once more, soon, for
    /// the same callers.
    fn try_again(&mut self, now: Time, reason: String, out: &mut Vec<Action>) {
        let Phase::Taking(taking) = &self.phase else { return };
        let (checkpoint, agents) = (taking.number, taking.agents.clone());
        self.attempts += 1;
        let pause = FIRST_PAUSE.saturating_mul(u64::from(self.attempts));
        self.retry_at = Some(now.nanos.saturating_add(pause));
        self.drop_checkpoint(out);
        self.append(Entry::Abandoned { checkpoint, reason }, out);
        let joined = std::mem::take(&mut self.joined);
        self.waiting.splice(0..0, joined);
        if let Life::Ended(status) = self.life {
            self.finish(now, status, out);
            return;
        }
        self.give_up(now, checkpoint, agents);
    }

    /// Begins the checkpoint that is to be tried again, once its time has come.
    pub(super) fn retry(&mut self, now: Time, out: &mut Vec<Action>) {
        if self.retry_at.is_some_and(|at| now.nanos >= at) && self.may_begin() {
            self.begin(now, out);
        }
    }

    /// In how many places an agent's image of the checkpoint in flight is durable.
    pub(super) fn note_copies(
        &mut self,
        agent: AgentId,
        checkpoint: CheckpointNumber,
        copies: u32,
    ) {
        if let Phase::Taking(taking) = &mut self.phase {
            if taking.number == checkpoint && taking.agents.contains(&agent) {
                taking.copies.insert(agent, copies);
            }
        }
    }

    /// Goes on with a job that may have been left in the middle of this checkpoint.
    pub(super) fn abandon_unknown(
        &mut self,
        now: Time,
        checkpoint: CheckpointNumber,
        out: &mut Vec<Action>,
    ) {
        let reason = "the coordinator was started again".to_owned();
        self.append(Entry::Abandoned { checkpoint, reason }, out);
        self.tell_all(&AgentCommand::Abandon { checkpoint }, out);
        self.give_up(now, checkpoint, self.agents.clone());
    }

    /// An agent can't be reached for the moment: the job is not kept frozen for its sake.
    pub(super) fn unheard(
        &mut self,
        now: Time,
        agent: AgentId,
        reason: &str,
        out: &mut Vec<Action>,
    ) {
        let Phase::Taking(taking) = &self.phase else { return };
        let step = taking.step;
        let stands = step < Step::Write || (taking.parks && !taking.recorded);
        if stands && taking.agents.contains(&agent) {
            self.fail(now, step, reason.to_owned(), out);
        }
    }

    /// An agent can be reached again: what it has not answered may not have come to it.
    pub(super) fn heard_again(&mut self, agent: AgentId, out: &mut Vec<Action>) {
        let command = match &self.phase {
            Phase::Taking(taking) if taking.awaited.contains(&agent) => taking.command(),
            Phase::Abandoning(abandoning) if abandoning.awaited.contains(&agent) => {
                Some(AgentCommand::Abandon { checkpoint: abandoning.number })
            }
            _ => None,
        };
        out.extend(command.map(|command| Action::Tell { agent, command }));
    }

    /// An agent has no process of the job left. An image that it has in hand is written to its
    /// end.
    pub(super) fn leave_checkpoint(&mut self, now: Time, agent: AgentId, out: &mut Vec<Action>) {
        match &mut self.phase {
            Phase::Taking(taking) if taking.agents.contains(&agent) => match taking.step {
                Step::Freeze if taking.awaited.contains(&agent) => {
                    taking.agents.remove(&agent);
                    taking.awaited.remove(&agent);
                    if taking.agents.is_empty() {
                        self.fail(now, Step::Freeze, "no process is left".to_owned(), out);
                    } else if taking.awaited.is_empty() {
                        self.next_step(now, out);
                    }
                }
                // It is in the log: what its machine does not know of it yet, it is told when it next connects.
                Step::Commit if taking.recorded => {
                    taking.agents.remove(&agent);
                    let awaited = taking.awaited.remove(&agent);
                    if awaited && taking.awaited.is_empty() {
                        self.next_step(now, out);
                    }
                }
                Step::Write | Step::Commit if !taking.parks || taking.recorded => {}
                step => {
                    let reason = format!("the processes of instance {} ended", agent.0);
                    self.fail(now, step, reason, out);
                }
            },
            _ => {}
        }
        if let Phase::Abandoning(abandoning) = &mut self.phase {
            abandoning.awaited.remove(&agent);
            if abandoning.awaited.is_empty() {
                self.phase = Phase::Idle;
                self.begin_if_waited_for(now, out);
            }
        }
    }

    /// Tells every agent to give up the checkpoint in flight, without waiting for it.
    pub(super) fn drop_checkpoint(&mut self, out: &mut Vec<Action>) {
        if let Phase::Taking(Taking { number, recorded: false, agents, .. }) = &self.phase {
            tell(agents, &AgentCommand::Abandon { checkpoint: *number }, out);
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
    /// How long the job has stood still, in microseconds: from the end of the freeze, which is when it was
    /// taken.
    fn stood_us(&self, now: Time) -> u64 {
        let frozen = self.steps.first().map_or(0, |(_, took)| *took);
        now.nanos.saturating_sub(self.began.nanos.saturating_add(frozen)) / 1000
    }

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

    /// What the agents have been told for the step that is under way.
    fn command(&self) -> Option<AgentCommand> {
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
