//! One checkpoint after the other, step by step.

use super::phase::{Phase, Taking, limit, tell};
use super::spans::Spans;
use super::{JobMachine, Life, Waiter};
use crate::event::{Action, Notice, StepTimes, Time};
use crate::history::Entry;
use protocol::agent::{
    AgentCommand, AgentEvent, CheckpointNumber, CommitRecord, ImageSummary, InstanceId, Step,
};
use protocol::cluster::tree::TreeSum;
use protocol::control::Reply;
use std::collections::{BTreeMap, BTreeSet};

/// Characters kept of what an agent says that it is doing.
const LONGEST_DOING: usize = 300;

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
            progress: BTreeMap::new(),
            doing: BTreeMap::new(),
            summary: ImageSummary::default(),
            record: None,
            recorded: false,
            parks: (self.park || self.parks_next)
                && !self.joined.iter().any(|waiter| waiter.then_stop),
            spans: Spans::begin(&self.job, number, Step::Freeze),
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
        agent: InstanceId,
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
                    && matches!(
                        taking.step,
                        Step::Freeze | Step::Quiesce | Step::Snapshot | Step::Write
                    )
                    && taking.awaited.contains(&agent)
                    && bytes > taking.progress.get(&agent).copied().unwrap_or(0) =>
            {
                taking.progress.insert(agent, bytes);
                let limit = limit(&self.settings.limits, taking.step);
                taking.deadline = now.nanos.saturating_add(limit);
            }
            (Phase::Taking(taking), AgentEvent::Doing { checkpoint, doing })
                if taking.number == checkpoint && taking.awaited.contains(&agent) =>
            {
                taking.doing.insert(agent, doing.chars().take(LONGEST_DOING).collect());
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

    /// All who were told the step have done it.
    pub(super) fn all_answered(
        &mut self,
        now: Time,
        checkpoint: CheckpointNumber,
        step: Step,
        sum: &TreeSum,
        out: &mut Vec<Action>,
    ) {
        // The answers may be those of a checkpoint that was given up meanwhile.
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

    pub(super) fn next_step(&mut self, now: Time, out: &mut Vec<Action>) {
        let Some(taking) = self.phase.taking("order a step") else { return };
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
        let Some(taking) = self.phase.taking("write down a checkpoint") else { return };
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
            suspended: self.suspended,
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
        // The log may have it only after the checkpoint was given up.
        let Phase::Taking(taking) = &mut self.phase else { return };
        let awaited = taking.number == checkpoint && !taking.recorded;
        // Only what was handed to the log is waited for.
        let Some(record) = taking.record.clone().filter(|_| awaited) else { return };
        taking.recorded = true;
        let agents = taking.agents.clone();
        taking.enter(now, Step::Commit, &self.settings.limits, &agents);
        self.attempts = 0;
        self.last_failure = None;
        self.history.apply(&Entry::Committed(record.clone()));
        tell(&agents, &AgentCommand::Commit { checkpoint, record }, out);
    }

    /// Every agent holds the mark: tells who waits, and gives older checkpoints up.
    fn commit_done(&mut self, now: Time, out: &mut Vec<Action>) {
        let mut kept = self.history.retained(self.settings.keep);
        let read = self.read.iter().filter(|number| self.history.record(**number).is_some());
        kept.extend(read.copied());
        kept.sort_unstable();
        kept.dedup();
        let collected =
            self.history.committed().any(|(record, _)| !kept.contains(&record.checkpoint));
        if collected {
            self.append(Entry::Collected { kept: kept.clone() }, out);
        }
        self.tell_all(&AgentCommand::Collect { keep: kept }, out);
        self.announce(now, out);
    }

    pub(super) fn announce(&mut self, now: Time, out: &mut Vec<Action>) {
        let Some((taking, record)) = self.phase.take_committed() else { return };
        let steps = taking.step_times(now);
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

    pub(super) fn park(&mut self, now: Time, out: &mut Vec<Action>) {
        let stops = self.joined.iter().chain(&self.waiting).any(|waiter| waiter.then_stop);
        if self.life == Life::Running && self.ending.is_none() && !stops {
            self.park = true;
            self.phase.park();
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

    /// In how many places an agent's image of the checkpoint in flight is durable.
    pub(super) fn note_copies(
        &mut self,
        agent: InstanceId,
        checkpoint: CheckpointNumber,
        copies: u32,
    ) {
        if let Phase::Taking(taking) = &mut self.phase {
            if taking.number == checkpoint && taking.agents.contains(&agent) {
                taking.copies.insert(agent, copies);
            }
        }
    }

    /// An agent can be reached again: what it has not answered may not have come to it.
    pub(super) fn heard_again(&mut self, agent: InstanceId, out: &mut Vec<Action>) {
        let command = match &self.phase {
            Phase::Taking(taking) if taking.awaited.contains(&agent) => taking.command(),
            Phase::Abandoning(abandoning) if abandoning.awaited.contains(&agent) => {
                Some(AgentCommand::Abandon { checkpoint: abandoning.number })
            }
            _ => None,
        };
        out.extend(command.map(|command| Action::Tell { agent, command }));
    }

    /// Whether a commit is under way that must be brought to its end before the job's own.
    pub(super) fn is_committing(&self) -> bool {
        matches!(self.phase, Phase::Taking(Taking { step: Step::Commit, .. }))
    }
}
